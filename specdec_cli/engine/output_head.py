"""From a network's last hidden state to its logits. Found by watching a pass, and proven before use.

No name of a module is known here. The head is the module whose input alone decides the logits: given another input, it
must give the logits that the whole network then gives. Between the two mlx-lm only scales and soft-caps, which is
measured. Letters: T tokens, D hidden size, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from specdec_cli.engine.hooks import hooked, unhooked
from specdec_cli.errors import Refused

# Inputs of the head that the proof tries: small, so that scales show, and large, so that a soft-cap does.
MAGNITUDES = (1.0, 30.0, 1000.0)
# Share of the largest logit by which two ways to the same logits may differ, by type.
TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 4e-2}


@dataclass(frozen=True, slots=True)
class Adjustment:
    """How a model turns the scores of its output head into logits: times `scale`, then soft-capped at ± `cap`."""

    scale: float = 1.0
    cap: float | None = None

    def __call__(self, scores: mx.array) -> mx.array:
        """Logits of the head's `scores`, of the same shape."""
        if self.cap is not None:
            return mx.tanh(scores * (self.scale / self.cap)) * self.cap
        return scores if self.scale == 1.0 else scores * self.scale


@dataclass(frozen=True, slots=True)
class OutputHead:
    """How one network turns its last hidden state into logits.

    `head` is the path of the module that scores the vocabulary, `method` what is called of it: `as_linear` where it is
    the embedding as well. `last_layer` and `norm` are paths with head(norm(last layer's output)) = logits, None where
    more lies between them. `embedding` is the path of the module that embeds the tokens, None if it was not found.
    `output`, where it is not None, scores in place of the network's own head.
    """

    network: nn.Module = field(repr=False)
    vocab_size: int
    hidden_size: int
    head: str
    method: str
    adjustment: Adjustment
    last_layer: str | None
    norm: str | None
    embedding: str | None
    output: nn.Module | None = field(default=None, repr=False)

    @property
    def head_module(self) -> nn.Module:
        return _module(self.network, self.head) if self.output is None else self.output

    @property
    def nbytes(self) -> int:
        """Bytes of its weights."""
        return sum(value.nbytes for _, value in tree_flatten(self.head_module.parameters()))

    def scored_by(self, output: nn.Module | None) -> OutputHead:
        """The same with `output` [D -> V or more] in place of the network's own head; None: as it is."""
        return self if output is None else replace(self, output=output, method="__call__", adjustment=Adjustment())

    def logits(self, hidden: mx.array) -> mx.array:
        """Logits [T, V] of what the head would read, `hidden` [T, D]. Not seen by those who watch the network."""
        return self.adjustment(unhooked(self.head_module, self.method)(hidden[None])[0, :, : self.vocab_size])

    def embed(self, tokens: mx.array) -> mx.array:
        """The target's embeddings [T, D] of `tokens` [T]."""
        assert self.embedding is not None
        embedded: mx.array = unhooked(_module(self.network, self.embedding))(tokens[None])[0]
        return embedded


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call in a pass, by the arrays it took and gave; they are compared by identity."""

    path: str
    method: str
    input: mx.array
    output: mx.array


def find_output_head(network: nn.Module, name: str) -> OutputHead:
    """The output_head of `network`, whose `name` is for messages. One pass over three tokens.

    Raises: Refused where no head is found whose input decides the logits.
    """
    calls, logits = _watched_pass(network)
    vocab_size = logits.shape[-1]
    scoring = [call for call in calls if _may_score(call, vocab_size)]
    for call in reversed(scoring):
        adjustment = _adjustment(network, call, vocab_size)
        if adjustment is None:
            continue
        found = OutputHead(
            network, vocab_size, call.input.shape[-1], call.path, call.method, adjustment, None, None, _embedding(calls)
        )
        if not same(found.logits(call.input[0]), logits):
            continue
        return _with_norm(found, calls, call, logits)
    seen = ", ".join(dict.fromkeys(call.path for call in scoring)) or "no module scores the vocabulary"
    raise Refused(
        f"{name}: its logits [{vocab_size}] do not follow from one head's input alone ({seen})",
        "heads need a model whose output head is a module; use a draft model or --drafter ngram",
    )


def _watched_pass(network: nn.Module) -> tuple[list[Call], mx.array]:
    """(calls, logits [T, V]) of a pass over three tokens."""
    calls: list[Call] = []

    def note(path: str, method: str) -> Any:
        def handler(module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            output = original(module, *args, **kwargs)
            first = output[0] if isinstance(output, tuple) and output else output
            if args and isinstance(args[0], mx.array) and isinstance(first, mx.array):
                calls.append(Call(path, method, args[0], first))
            return output

        return handler

    with ExitStack() as stack:
        for path, module in network.named_modules():
            for method in ("__call__", "as_linear"):
                if path and hasattr(type(module), method):
                    stack.enter_context(hooked(module, note(path, method), method))
        logits = _pass(network)
    return calls, logits


def _pass(network: nn.Module) -> mx.array:
    """Logits [T, V] of the same three tokens each time, with caches of its own; lazy."""
    tokens = mx.arange(1, 1 + len(MAGNITUDES))[None]
    logits: mx.array = network(tokens, cache=make_prompt_cache(network))[0]
    return logits


def _may_score(call: Call, vocab_size: int) -> bool:
    """Whether the call may be the head's: of hidden states [1, T, D], to at least a score for every token."""
    wide = call.output.ndim == 3 and call.output.shape[-1] >= vocab_size
    rows = call.input.ndim == 3 and call.input.shape[:2] == (1, len(MAGNITUDES))
    return wide and rows and mx.issubdtype(call.input.dtype, mx.floating)


def _adjustment(network: nn.Module, call: Call, vocab_size: int) -> Adjustment | None:
    """What the model does to the scores of `call`, by giving the head another input; None if that is not all it does.

    mlx is lazy: of the pass only what comes after the head is computed.
    """
    drawn = mx.random.normal((1, 1, call.input.shape[-1]), key=mx.random.key(0))
    hidden = mx.concatenate([drawn * size for size in MAGNITUDES], axis=1).astype(call.input.dtype)
    with _replace_input(_module(network, call.path), call.method, hidden) as raw:
        logits = _pass(network)
    if len(raw) != 1 or not mx.isfinite(logits).all():
        return None
    scores = raw[0][0, :, :vocab_size]
    scale = float((scores[0] * logits[0]).sum() / (scores[0] * scores[0]).sum())
    cap = float(mx.abs(logits).max())
    # The slope at 0 of a soft-cap follows from where a small score ends up.
    inner = mx.clip(logits[0] / cap, -0.999, 0.999).astype(mx.float32)
    slope = float((mx.arctanh(inner) * cap * scores[0]).sum() / (scores[0] * scores[0]).sum())
    for tried in (Adjustment(), Adjustment(scale), Adjustment(1.0, cap), Adjustment(slope, cap)):
        if all(same(tried(scores[row]), logits[row]) for row in range(len(MAGNITUDES))):
            return tried
    return None


@contextmanager
def _replace_input(module: nn.Module, method: str, hidden: mx.array) -> Iterator[list[mx.array]]:
    """Inside, `module` reads `hidden` whatever it is given; the list collects what it returns."""
    raw: list[mx.array] = []

    def handler(module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raw.append(original(module, hidden, *args[1:], **kwargs))
        return raw[-1]

    with hooked(module, handler, method):
        yield raw


def _with_norm(found: OutputHead, calls: list[Call], head: Call, logits: mx.array) -> OutputHead:
    """`found` with the last layer and the norm between it and the head, if that is all there is between them."""
    layers = getattr(found.network, "layers", None) or []
    paths = {id(module): path for path, module in found.network.named_modules()}
    last = next((call for call in reversed(calls) if layers and call.path == paths.get(id(layers[-1]))), None)
    if last is None:
        return found
    for call in reversed(calls):
        if call.input is last.output and call.output.shape == head.input.shape:
            normed = unhooked(_module(found.network, call.path), call.method)(last.output)
            if same(found.logits(normed[0]), logits):
                return replace(found, last_layer=last.path, norm=call.path)
    return found


def _embedding(calls: list[Call]) -> str | None:
    """The first module that turns the tokens themselves into vectors."""
    for call in calls:
        if mx.issubdtype(call.input.dtype, mx.integer) and call.output.ndim == 3 and call.method == "__call__":
            return call.path
    return None


def same(found: mx.array, expected: mx.array) -> bool:
    tolerance = TOLERANCE.get(str(expected.dtype).removeprefix("mlx.core."), TOLERANCE["bfloat16"])
    found, expected = found.astype(mx.float32), expected.astype(mx.float32)
    if found.shape != expected.shape or not mx.isfinite(expected).all():
        return False
    return bool(mx.abs(found - expected).max() <= tolerance * mx.abs(expected).max())


def _module(network: nn.Module, path: str) -> nn.Module:
    """The module at `path`, such as `model.layers.3`."""
    found: Any = network
    for step in path.split("."):
        found = found[int(step)] if step.isdigit() else getattr(found, step)
    assert isinstance(found, nn.Module)
    return found
