"""Does this device say the same in passes of several rows, rolled back, as in passes of one row?

Eight families of networks, random and small but with the shapes of released models, in the precisions that models run
in. Agreement is up to rounding: what rounding does is measured on the same text, one row against several, and is capped
by what it does against float32; a lost rollback has to show far above it. Text is given, never generated: a near-tie
that rounding flips cannot make two texts of one. The reference is mlx-lm's own caches, one row at a time.
Letters: T tokens of the text, V vocabulary size.
"""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import _get_classes

from specdec_cli.core.errors import SpecdecError
from specdec_cli.engine import device
from specdec_cli.engine.model import CachedModel

Status = Literal["pass", "wrong", "unclear", "skipped"]
Draw = Callable[[str, mx.array, Sequence[mx.array]], mx.array]
"""(path of a parameter, its initial value, two keys) -> its value."""
PRECISIONS = ("bfloat16", "4 bits")
GROUP_SIZE, BITS = 64, 4
NO_EXPERTS = "mlx's CPU multiplies experts in float32 or quantized only (mlx/backend/cpu/masked_mm.cpp, GatherMM)"
# What a network, its caches or the device may raise.
RAISED = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, SpecdecError)
# Of the text, read before the first round.
PROMPT_TOKENS = 9
# (K, accepted) of every round: 2 to 16 rows, which take different kernels; all, some and none accepted.
ROUNDS = ((3, 1), (15, 9), (4, 2), (1, 0), (7, 7), (7, 0), (3, 3), (3, 0), (4, 4))
TOKENS = PROMPT_TOKENS + sum(accepted + 1 for _, accepted in ROUNDS)
# Twice the measured change: another alignment of the same passes rounds differently, by as much again.
MARGIN = 2.0
# The cap, in changes of one row against float32: several rows may be off as far in the other direction, and half more.
CAP = 3.0
# A lost rollback that shows less than so many times the allowance proves nothing.
CONTRAST = 3.0
# Of a rejected draft, left in the caches to see what that would change.
LOST_TOKENS = 4
BFLOAT16_EPSILON = 2.0**-8


@dataclass(frozen=True, slots=True)
class Outcome:
    """`pass`: up to rounding, rows are equal. `wrong`: they are not, or something was raised. `unclear`: a lost
    rollback would hardly show. `skipped`: mlx cannot compute it on this device. `detail` gives figures or the reason.
    """

    name: str
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class SelftestFamily:
    """A small network of the kind `about`, whose `width` is that of released models; `gain` scales its weights.

    `experts`: it mixes experts. `query_scale` is what the norm of its queries is multiplied by.
    """

    about: str
    width: str
    config: Mapping[str, Any]
    gain: float = 1.0
    experts: bool = False
    query_scale: float = 1.0

    def name(self, precision: str) -> str:
        return f"{self.config['model_type']}, {precision}"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Largest changes of the lead that a row's best token has over any other, in logits, over all rows of the text.

    `change`: rolled-back passes against one row. `measured`: several rows against one, nothing rolled back. `float32`:
    one row against float32. `one_rounding`: of the largest logit. `lost`: what a lost rollback changes.
    """

    change: float
    measured: float
    float32: float
    one_rounding: float
    lost: float

    @property
    def allowed(self) -> float:
        """Twice the measured change and at least one rounding, but never more than float32 allows."""
        return min(max(MARGIN * self.measured, self.one_rounding), max(CAP * self.float32, self.one_rounding))

    @property
    def status(self) -> Status:
        if not self.change <= self.allowed:  # nor is what is no number
            return "wrong"
        return "pass" if self.lost > CONTRAST * self.allowed else "unclear"

    @property
    def detail(self) -> str:
        change, allowed, lost = (f"{logits:.2g}" for logits in (self.change, self.allowed, self.lost))
        return f"leads change by {change} logits, rounding may by {allowed}, a lost rollback would by {lost}"


@cache
def families() -> dict[str, SelftestFamily]:
    """All families by the kind of network."""
    entries = tomllib.loads(files(__package__).joinpath("families.toml").read_text("utf-8"))
    return {kind: SelftestFamily(**entry) for kind, entry in entries.items()}


def run_families(listed: Sequence[SelftestFamily]) -> Iterator[Outcome]:
    """`check_family` for each family and precision. One that raises counts as wrong, and the run goes on."""
    for family in listed:
        for precision in PRECISIONS:
            try:
                yield check_family(family, precision)
            except RAISED as error:
                yield Outcome(family.name(precision), "wrong", f"{type(error).__name__}: {error}")
            mx.clear_cache()


def check_family(family: SelftestFamily, precision: str) -> Outcome:
    """Feed one text in rounds that are rolled back, and compare every row with mlx-lm's one-row decoding."""
    name = family.name(precision)
    if family.experts and precision == "bfloat16" and device.backend() == "cpu":
        return Outcome(name, "skipped", NO_EXPERTS)
    network = network_in(family, precision)
    target = CachedModel(network, name)
    rows = agreement(network, target, text(target.vocab_size))
    return Outcome(name, rows.status, f"{family.about} ({family.width}): {rows.detail}")


def network_in(family: SelftestFamily, precision: str) -> nn.Module:
    """The family's network in bfloat16, its matrices in 4 bits where `precision` says so."""
    network = random_network(family.config, 1, lambda path, value, keys: draw_weight(path, value, keys[0], family.gain))
    queries = [(path, value) for path, value in tree_flatten(network.parameters()) if path.endswith("q_norm.weight")]
    network.load_weights([(path, family.query_scale * value) for path, value in queries], strict=False)
    network.set_dtype(mx.bfloat16)

    def fits(_: str, module: nn.Module) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % GROUP_SIZE == 0

    if precision == "4 bits":
        nn.quantize(network, GROUP_SIZE, BITS, class_predicate=fits)
    mx.eval(network.parameters())
    return network


def random_network(config: Mapping[str, Any], seed: int, draw: Draw) -> nn.Module:
    """The network of `config` in float32 with weights as `draw` gives them, evaluated."""
    model_class, args_class = _get_classes(dict(config))
    mx.random.seed(seed)  # biases and some decays start random
    network = model_class(args_class.from_dict(dict(config)))
    redraw(network, seed, draw)
    return network


def redraw(module: nn.Module, seed: int, draw: Draw) -> None:
    """Every parameter of `module` as `draw` gives it, evaluated."""
    key, weights = mx.random.key(seed), []
    for path, value in sorted(tree_flatten(module.parameters())):
        key, *keys = mx.random.split(key, 3)
        weights.append((path, draw(path, value, keys)))
    module.update(tree_unflatten(weights))
    mx.eval(module.parameters())


def draw_weight(path: str, value: mx.array, key: mx.array, gain: float) -> mx.array:
    """Matrices are drawn anew, scaled by their fan-in; vectors (norms, biases) keep near their start.

    As decays start, most states would forget everything in a position or two, and a lost rollback too.
    """
    if path.endswith("A_log"):
        return mx.random.uniform(-3.0, 0.0, value.shape, key=key)
    moved = mx.random.normal(value.shape, key=key)
    if value.ndim < 2:
        return mx.add(value.astype(mx.float32), 0.1 * moved)
    return mx.multiply(gain / value.shape[-1] ** 0.5, moved)


def text(vocab_size: int) -> list[int]:
    """T + 1 token ids without a short period."""
    return [(7 * at * at + 5 * at) % (vocab_size - 3) + 3 for at in range(TOKENS + 1)]


def agreement(network: nn.Module, target: CachedModel, ids: Sequence[int]) -> Agreement:
    """`target`, over `network`, against mlx-lm's own caches over the same `network`, which ends in float32."""
    one = passes(network, [[token] for token in ids[:TOKENS]])
    several = passes(network, blocks(ids))
    ours, at = rolled_back(target, ids)
    lost, after = _without_rollback(network, ids)
    largest = float(mx.max(mx.abs(one)))
    network.set_dtype(mx.float32)  # matrices of 4 bits keep their numbers, and their scales become float32
    exact = passes(network, [[token] for token in ids[:TOKENS]])
    return Agreement(
        change=largest_change(ours, one[at:]),
        measured=largest_change(several, one),
        float32=largest_change(one, exact),
        one_rounding=2 * BFLOAT16_EPSILON * largest,
        lost=largest_change(lost, one[after:]),
    )


def passes(network: nn.Module, chunks: Sequence[Sequence[int]]) -> mx.array:
    """Logits [T, V] in float32 of `chunks` fed one after another into mlx-lm's own caches."""
    caches, rows = make_prompt_cache(network), list[mx.array]()
    for chunk in chunks:
        rows.append(network(mx.array([list(chunk)]), cache=caches)[0].astype(mx.float32))
        mx.eval(rows[-1])
    return mx.concatenate(rows)


def blocks(ids: Sequence[int]) -> list[list[int]]:
    """The text in passes of the rounds' own row counts."""
    sizes, chunks, at = deque([PROMPT_TOKENS, *(k + 1 for k, _ in ROUNDS)]), [], 0
    while at < TOKENS:
        chunks.append(list(ids[at : min(at + sizes[0], TOKENS)]))
        at += sizes[0]
        sizes.rotate(-1)
    return chunks


def rolled_back(target: CachedModel, ids: Sequence[int]) -> tuple[mx.array, int]:
    """(logits of every row after tokens of the text alone, the first one's position): what rounds decide on."""
    context, rows = list(ids[:PROMPT_TOKENS]), []
    deque(target.prefill(context), maxlen=0)
    for k, accepted in ROUNDS:
        text = [*ids, *ids][len(context) : len(context) + k]  # its first tokens are right, the others wrong
        wrong = [(token + 1 + i) % target.vocab_size for i, token in enumerate(text)]
        logits = target.logits(context, target.ids(text[:accepted] + wrong[accepted:]))
        rows.append(logits[: accepted + 1].astype(mx.float32))
        mx.eval(rows[-1])
        context += ids[len(context) : len(context) + accepted + 1]
        target.commit(context, len(context) - 1)
    return mx.concatenate(rows), PROMPT_TOKENS - 1


def _without_rollback(network: nn.Module, ids: Sequence[int]) -> tuple[mx.array, int]:
    """(logits [.., V] of the text after a rejected draft that stayed in the caches, the first one's position)."""
    at = PROMPT_TOKENS + 2
    wrong = [(token + 1) % len(ids) for token in ids[at : at + LOST_TOKENS]]
    rows = passes(network, [list(ids[:at]), wrong, list(ids[at:TOKENS])])
    return rows[at + len(wrong) :], at


def largest_change(logits: mx.array, reference: mx.array) -> float:
    """The largest change, over all rows [.., V], of the lead of the reference's best token over any other."""
    change = logits - reference[: len(logits)]
    best = mx.argmax(reference[: len(logits)], axis=-1, keepdims=True)
    return float(mx.max(mx.abs(change - mx.take_along_axis(change, best, axis=-1))))
