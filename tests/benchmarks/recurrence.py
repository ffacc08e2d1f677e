"""What the rollback benchmark decodes with: targets of a realistic cost that meter their rollbacks, a drafter whose
acceptance is given, and three ways to a recurrent state after a partial acceptance:

* states: the verify pass runs its recurrence one row at a time and keeps the state after each row
* replay: what specdec does; the recurrence alone runs again on rows kept from the pass
  (`specdec_cli/engine/cache/recompute.py`)
* refeed: the state from before the pass is put back, and the accepted tokens are rows of the next pass
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import nemotron_h, qwen3_5
from mlx_lm.models.cache import ArraysCache, make_prompt_cache
from mlx_lm.utils import _get_classes

from specdec_cli.engine.baseline import baseline
from specdec_cli.engine.cache.kinds import leaves, put_back
from specdec_cli.engine.cache.recompute import Call, Recorder, Recording
from specdec_cli.engine.cache.rollback import Caches
from specdec_cli.engine.decode import Clock, decode, rounds_of
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.draft_length.fixed import Fixed
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.events import Round

STRATEGIES = ("states", "replay", "refeed")
WINDOW = 128
VOCABULARY = 16384

# Of each recurrent architecture: where its recurrence is called, and which of the arguments have a row per token.
# The state is argument 7 of both.
RECURRENCES: Mapping[str, tuple[ModuleType, str, Sequence[int]]] = {
    "qwen3_5": (qwen3_5, "gated_delta_update", (0, 1, 2, 3, 4)),
    "nemotron_h": (nemotron_h, "ssm_update", (0, 2, 3, 5)),
}
STATE_ARGUMENT = 7


def configurations(hidden: int, layers: int) -> dict[str, dict[str, Any]]:
    """Proportions of the releases (Qwen3.5, Nemotron-H, LFM2, Gemma 3) at width `hidden`; `layers` in fours."""
    common = {"hidden_size": hidden, "intermediate_size": 3 * hidden, "num_hidden_layers": layers}
    common |= {"vocab_size": VOCABULARY, "max_position_embeddings": 4096, "num_attention_heads": hidden // 128}
    common |= {"num_key_value_heads": max(hidden // 512, 1), "head_dim": 128}
    gated = {"linear_num_value_heads": 16, "linear_num_key_heads": 16, "linear_conv_kernel_dim": 4}
    gated |= {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "tie_word_embeddings": True}
    mamba = {"mamba_num_heads": hidden // 32, "mamba_head_dim": 64, "ssm_state_size": 128, "conv_kernel": 4}
    mamba |= {"n_groups": 8, "attention_bias": False, "mamba_proj_bias": False, "mlp_bias": False, "use_bias": False}
    mamba |= {"use_conv_bias": True, "layer_norm_epsilon": 1e-5, "hybrid_override_pattern": layers // 4 * [*"M-M-M-*-"]}
    short = {"norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3, "block_dim": hidden, "block_multiple_of": 256}
    short |= {"block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False, "block_ff_dim": 3 * hidden}
    short["layer_types"] = ["conv", "conv", "conv", "full_attention"] * (layers // 4)
    window = {"sliding_window": WINDOW, "sliding_window_pattern": 4, "query_pre_attn_scalar": 128}
    text = {"model_type": "qwen3_5_text"} | common | gated
    return {
        "qwen3_5": {"model_type": "qwen3_5", "text_config": text},
        "nemotron_h": {"model_type": "nemotron_h"} | common | mamba,
        "lfm2": {"model_type": "lfm2"} | common | short,
        "gemma3_text": {"model_type": "gemma3_text"} | common | window,
    }


def random_network(config: Mapping[str, Any], seed: int = 1) -> nn.Module:
    """Float32, evaluated; matrices uniform and scaled by their fan-in, decays such that a state lasts for a while."""
    network, weights, key = _blank(config), [], mx.random.key(seed)
    for path, value in sorted(tree_flatten(network.parameters())):
        key, own = mx.random.split(key)
        if path.endswith("A_log"):
            value = mx.random.uniform(-3.0, 0.0, value.shape, key=own)
        elif value.ndim > 1:
            bound = (3 * value.shape[0] / value.size) ** 0.5
            value = mx.random.uniform(-bound, bound, value.shape, key=own)
        weights.append((path, value.astype(mx.float32)))
        mx.eval(value)
    network.update(tree_unflatten(weights))
    mx.eval(network.parameters())
    return network


def twin(network: nn.Module, config: Mapping[str, Any]) -> nn.Module:
    """The same weights in a network of mlx-lm's own, which no recorder watches."""
    other = _blank(config)
    other.update(network.parameters())
    return other


def _blank(config: Mapping[str, Any]) -> nn.Module:
    model_class, args_class = _get_classes(dict(config))
    return model_class(args_class.from_dict(dict(config)))


class Scripted(Drafter):
    """Knows the answer and tells each of its tokens with the given probability, else a wrong one. Costs nothing.

    The chance belongs to the position: every way to decode sees the same drafts.
    """

    name = "scripted"

    def __init__(self, prompt_tokens: int, answer: Sequence[int], acceptance: float, seed: int) -> None:
        draws = Random(seed)
        self._prompt_tokens = prompt_tokens
        self._drafts = [t if draws.random() < acceptance else (t + 1) % VOCABULARY for t in answer]

    def propose(self, context: Sequence[int], k: int) -> Draft:
        at = len(context) - self._prompt_tokens
        return Draft(mx.array(self._drafts[at : at + k], dtype=mx.int32), drafter=self.name)


class Metered(CachedModel):
    """Counts passes and rows, and times commits; while `waits`, also what they leave to the device."""

    def __init__(self, network: nn.Module, clock: Clock) -> None:
        self.clock = clock
        self.waits = False
        self.seen: list[mx.array] | None = None
        self.kept_bytes = 0
        self.start()
        super().__init__(network, "target")

    def start(self) -> None:
        """Count from here."""
        self.passes = self.rows = 0
        self.host_seconds = self.device_seconds = 0.0

    def extend(self, tokens: mx.array) -> mx.array:
        self.passes += 1
        self.rows += tokens.size
        return super().extend(tokens)

    def logits(self, context: Sequence[int], pending: mx.array) -> mx.array:
        found = super().logits(context, pending)
        if self.seen is not None:
            self.seen.append(found)
            self.kept_bytes = max(self.kept_bytes, kept_bytes(self._caches))
        return found

    def commit(self, context: Sequence[int], length: int) -> None:
        begin = self.clock()
        super().commit(context, length)
        middle = self.clock()
        self.host_seconds += middle - begin
        if self.waits:
            parts = leaves(self._caches.layers)
            mx.eval([p.cache if isinstance(p, ArraysCache) else (p.keys, p.values) for p in parts])
            self.device_seconds += self.clock() - middle


@dataclass(frozen=True, slots=True)
class Measured:
    """One round and what it took; `seconds` includes its own commit, and the wait behind it if there was one."""

    round: Round
    seconds: float
    host_seconds: float
    device_seconds: float
    passes: int
    rows: int

    @property
    def rejects(self) -> bool:
        return self.round.accepted < len(self.round.draft)


def measured(target: Metered, drafter: Drafter, k: int, prompt: list[int], answer: list[int]) -> list[Measured]:
    """All rounds behind the first, which never drafts. Raises: SystemExit if a token is not mlx-lm's."""
    context, found, clock = list(prompt), [], target.clock
    target.reuse(context)
    deque(target.prefill(context), maxlen=0)
    steps = decode(target, drafter, greedy(target.vocab_size), Fixed(k), context, len(answer), frozenset(), clock)
    rounds = rounds_of(steps)
    next(rounds)
    while True:
        target.start()
        begin = clock()
        round = next(rounds, None)
        seconds = clock() - begin
        if round is None:
            break
        spent = (target.host_seconds, target.device_seconds, target.passes, target.rows)
        found.append(Measured(round, seconds, *spent))
    if context[len(prompt) :] != answer:
        raise SystemExit(f"not mlx-lm's tokens: {drafter.name}, K = {k}: {context[len(prompt) :]}, not {answer}")
    return found


def plainly(network: nn.Module, prompt: list[int], tokens: int, clock: Clock) -> tuple[float, list[int]]:
    """mlx-lm's seconds a token from the first token to the last, and its tokens."""
    rounds = baseline(network, prompt, tokens, frozenset(), clock)
    answer = [next(rounds).next]
    begin = clock()
    answer += [round.next for round in rounds]
    return (clock() - begin) / (tokens - 1), answer


def one_row_logits(network: nn.Module, prompt: list[int], answer: list[int]) -> list[mx.array]:
    """What mlx-lm's own caches give before each token of `answer`, fed one row at a time behind the prompt."""
    layers = make_prompt_cache(network)
    network(mx.array([prompt[:-1]]), cache=layers)
    found = [network(mx.array([[token]]), cache=layers)[0, 0] for token in [prompt[-1], *answer[:-1]]]
    mx.eval(found)
    return found


def shares_of_a_pass(target: Metered, prompt: list[int], drafted: list[int]) -> list[float]:
    """What of a verify pass is its own recurrence, which no way of decoding avoids; nothing without a recurrence."""
    caches, shares, clock = target._caches, [], target.clock
    if caches._recorder is None:
        return []
    target.reuse(prompt)
    for _ in range(15):
        begin = clock()
        mx.eval(target.logits(prompt, mx.array(drafted)))
        fed, middle = caches._fed[-1], clock()
        put_back(caches._rewound, fed.states)
        assert fed.recording is not None
        caches._recorder.recompute(fed.recording, fed.recording.tokens)
        mx.eval([part.cache for part in caches._rewound])
        shares.append((clock() - middle) / (middle - begin))
        target.commit(prompt, len(prompt) - 1)
    return shares


class StepStates(Recorder):
    """A recorder that keeps the recurrence's state behind each row of a pass, and takes it instead of recomputing."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, list[mx.array]] = {}

    def recording(self, tokens: int) -> AbstractContextManager[Recording]:
        self.kept = {}
        return super().recording(tokens)

    def recompute(self, recording: Recording, tokens: int) -> None:
        for call in recording.calls:
            cache = next(v for v in (*call.args, *call.kwargs.values()) if isinstance(v, ArraysCache))
            read = mx.concatenate([cache[0], convolved(call)[:, :tokens]], axis=1)
            cache[0] = read[:, -cache[0].shape[1] :]
            cache[1] = self.kept[id(call)][tokens - 1]

    def stepping(self, update: Callable[..., Any], per_row: Sequence[int]) -> Callable[..., Any]:
        """`update` row by row while a pass is recorded, as it is otherwise."""

        def stepped(*args: Any, **kwargs: Any) -> Any:
            if self._call is None:
                return update(*args, **kwargs)
            state, outputs, states = args[STATE_ARGUMENT], [], []
            for t in range(args[0].shape[1]):
                row = [a[:, t : t + 1] if i in per_row else a for i, a in enumerate(args)]
                row[STATE_ARGUMENT] = state
                output, state = update(*row, **kwargs)
                outputs.append(output)
                states.append(state)
            self.kept[id(self._call)] = states
            return mx.concatenate(outputs, axis=1), state

        return stepped


def convolved(call: Call) -> mx.array:
    """What the module of `call` feeds to its convolution: its first projection, or the middle of it."""
    module, first = call.module, call.outputs[0]
    if first.shape[-1] == module.conv_dim:
        return first
    return first[..., module.intermediate_size : module.intermediate_size + module.conv_dim]


def kept_bytes(caches: Caches) -> int:
    """What the last pass, if it was recorded, holds on to for a rollback, besides the state from before it."""
    recorder, recording = caches._recorder, caches._fed[-1].recording
    if recorder is None or recording is None:
        return 0
    arrays = [v for call in recording.calls for v in (*call.args, *call.kwargs.values(), *call.outputs)]
    if isinstance(recorder, StepStates):
        arrays = [state for states in recorder.kept.values() for state in states] + [
            convolved(c) for c in recording.calls
        ]
    return sum(array.nbytes for array in arrays if isinstance(array, mx.array))


@contextmanager
def strategy(name: str, model: CachedModel, architecture: str) -> Iterator[None]:
    """`model` takes tokens back in the way `name` while inside; nothing may be left to take back at either end."""
    caches, recorder = model._caches, model._caches._recorder
    module, function, per_row = RECURRENCES[architecture]
    original = getattr(module, function)
    assert recorder is not None
    try:
        if name == "refeed":
            caches._recorder = None
        elif name == "states":
            recorder.__class__ = StepStates
            recorder.kept = {}
            setattr(module, function, recorder.stepping(original, per_row))
        yield
    finally:
        caches._recorder = recorder
        recorder.__class__ = Recorder
        vars(recorder).pop("kept", None)
        setattr(module, function, original)
