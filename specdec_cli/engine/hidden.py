"""The hidden states that a network's output head reads, and that head, proven by a pass before it is used.

Only the class of a watched module changes. Python looks `__call__` up in the class, so a watched module gets a subclass
of its own class; mlx sees the same parameters and the same tree of modules. Watching a module twice nests.
Letters: T tokens of a pass, D hidden size, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from specdec_cli.core.errors import Refused

Handler = Callable[[nn.Module, Any, tuple[Any, ...], dict[str, Any]], Any]
"""(module, its original method, arguments, keyword arguments) -> what the call returns."""
# Share of the largest logit by which two ways to the same logits may differ, by type.
TOLERANCE = {mx.float32: 1e-4, mx.float16: 1e-2, mx.bfloat16: 4e-2}
TRIED_TOKENS = 3


def hook(module: nn.Module, handler: Handler, method: str = "__call__") -> None:
    """Calls of `module`, or of its `method`, go through `handler` from now on."""
    slot = _slot(module)
    object.__setattr__(module, slot, handler)
    object.__setattr__(module, "__class__", _intercepting(module.__class__, slot, method))


@contextmanager
def hooked(module: nn.Module, handler: Handler, method: str = "__call__") -> Iterator[None]:
    """As `hook`, inside the context only. Nothing else may begin to watch `module` meanwhile."""
    before, slot = module.__class__, _slot(module)
    hook(module, handler, method)
    try:
        yield
    finally:
        object.__setattr__(module, "__class__", before)
        object.__delattr__(module, slot)


def unhooked(module: nn.Module, method: str = "__call__") -> Any:
    """The module's own `method`, bound to it: calls of it pass no handler."""
    own = next(kind for kind in type(module).__mro__ if "_specdec_intercepts" not in vars(kind))
    return getattr(own, method).__get__(module)


def _slot(module: nn.Module) -> str:
    depth = sum("_specdec_intercepts" in vars(kind) for kind in type(module).__mro__)
    return f"_specdec_handler_{depth}"


@cache
def _intercepting(kind: Any, slot: str, method: str) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, slot)(self, getattr(kind, method), args, kwargs)

    return type(kind.__name__, (kind,), {method: call, "_specdec_intercepts": True})


@dataclass(frozen=True, slots=True)
class OutputHead:
    """How one network turns its last hidden state into logits.

    `module` scores the vocabulary by its `method`: `as_linear` where it is the embedding as well. `embedding` turns
    tokens into vectors, None if it was not found. `cap`: logits are cap · tanh(score / cap), as Gemma's; None: scores.
    """

    module: nn.Module = field(repr=False)
    method: str
    vocab_size: int
    hidden_size: int
    embedding: nn.Module | None = field(repr=False)
    cap: float | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its weights."""
        return sum(value.nbytes for _, value in tree_flatten(self.module.parameters()))

    def scored_by(self, output: nn.Module | None) -> OutputHead:
        """The same with `output` [D -> V or more] in place of the network's own head, uncapped; None: as it is."""
        return self if output is None else replace(self, module=output, method="__call__", cap=None)

    def logits(self, hidden: mx.array) -> mx.array:
        """Logits [T, V] of what the head would read, `hidden` [T, D]. Not seen by those who watch the network."""
        scores: mx.array = unhooked(self.module, self.method)(hidden[None])[0, :, : self.vocab_size]
        return scores if self.cap is None else mx.tanh(scores / self.cap) * self.cap

    def embed(self, tokens: mx.array) -> mx.array:
        """The target's embeddings [T, D] of `tokens` [T]."""
        embedded: mx.array = unhooked(self.embedding)(tokens[None])[0]
        return embedded


def find_output_head(network: nn.Module, name: str) -> OutputHead:
    """The output head of `network`, whose `name` is for messages: `lm_head`, or the embedding where they are one.

    Raises: Refused where its output, capped where the network says so, are not the logits, as where one scales them.
    """
    modules = {path.rpartition(".")[2]: module for path, module in network.named_modules()}
    caps = [vars(module).get("final_logit_softcapping") for module in network.modules()]
    tables = [one for one in network.modules() if isinstance(one, (nn.Embedding, nn.QuantizedEmbedding))]
    embedding = modules.get("embed_tokens") or max(tables, key=lambda one: len(one.weight), default=None)
    tokens = mx.arange(1, 1 + TRIED_TOKENS)[None]
    for module, method in ((modules.get("lm_head"), "__call__"), (embedding, "as_linear")):
        read: list[mx.array] = []

        def note(
            module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], read: list[mx.array] = read
        ) -> Any:
            read.append(args[0])
            return original(module, *args, **kwargs)

        if module is None:
            continue
        with hooked(module, note, method):
            logits = network(tokens, cache=make_prompt_cache(network))[0]
        if read:
            head = OutputHead(module, method, logits.shape[-1], read[-1].shape[-1], embedding)
            for cap in (None, *filter(None, caps)):
                if same(replace(head, cap=cap).logits(read[-1][0]), logits):
                    return replace(head, cap=cap)
    raise Refused(
        f"{name}: its logits are not the output of one head",
        "heads need a model whose output head is a module; use a draft model or --drafter ngram",
    )


def same(found: mx.array, expected: mx.array) -> bool:
    """Whether two arrays differ by rounding alone."""
    tolerance = TOLERANCE.get(expected.dtype, TOLERANCE[mx.bfloat16])
    found, expected = found.astype(mx.float32), expected.astype(mx.float32)
    if found.shape != expected.shape or not mx.isfinite(expected).all():
        return False
    return bool(mx.abs(found - expected).max() <= tolerance * mx.abs(expected).max())


class HiddenStates:
    """Keeps what the output head of one network read in its last pass, by any conversation, once it is `exposed`."""

    def __init__(self, network: nn.Module, name: str) -> None:
        """`name` is the model's, for messages."""
        self._network, self._name = network, name
        self._exposed = False
        self._states: mx.array | None = None
        self._output_head: OutputHead | None = None

    @property
    def is_exposed(self) -> bool:
        """Whether somebody reads them."""
        return self._exposed

    @property
    def output_head(self) -> OutputHead:
        """From hidden states to logits; found and proven at the first call. Raises: Refused."""
        if self._output_head is None:
            self._output_head = find_output_head(self._network, self._name)
            self.take()  # the search made a pass of its own
        return self._output_head

    def expose(self) -> None:
        """From now on keep what the head reads. Raises: Refused where no head is found."""
        if not self._exposed:
            hook(self.output_head.module, self._keep, self.output_head.method)
            self._exposed = True

    @contextmanager
    def exposed(self) -> Iterator[None]:
        """As `expose`, inside the context only. Nothing else may begin to watch the network meanwhile."""
        if self._exposed:
            yield
            return
        with hooked(self.output_head.module, self._keep, self.output_head.method):
            self._exposed = True
            try:
                yield
            finally:
                self._exposed = False
                self.take()

    def take(self) -> mx.array | None:
        """The states [B, T, D] of the last pass, lazy; None where they are not exposed. They are kept no longer."""
        taken, self._states = self._states, None
        return taken

    def _keep(self, module: nn.Module, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._states = args[0]
        return original(module, *args, **kwargs)
