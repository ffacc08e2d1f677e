"""How much a pair can take on: tokens of context, bytes of memory (pure). All sizes in bytes, all lengths in tokens.

Law: an estimate is within 10 % of the memory that mlx then uses; a test keeps it so. What depends on an architecture
(cache bytes, layer sizes) is measured by the engine and passed in.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.format import percent, size
from specdec_cli.core.kinds import drafting
from specdec_cli.core.request import Request
from specdec_cli.system.servers import RunningServer

# No context is longer.
LONGEST = 1 << 20
# Share of memory for models; the rest is for the graph, the tokenizer and the operating system.
HEADROOM = 0.92
# Share of the usable memory from which on a word is said of it.
TIGHT_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """The longest contexts, in tokens, that target and draft model were made for; None: no limit.

    `positions`: the target has learned so many positions, and none beyond them.
    """

    target: int | None = None
    draft: int | None = None
    positions: int | None = None

    def tokens(self, request: Request) -> int | None:
        """Tokens that prompt and answer may have together: --max-context, else the tightest of both models."""
        limits = (request.max_context or self._made_for(request), self.positions)
        return min((limit for limit in limits if limit is not None), default=None)

    def _made_for(self, request: Request) -> int | None:
        draft = self.draft if drafting(request.drafter, request.k).kind.uses_draft else None
        return min((limit for limit in (self.target, draft) if limit is not None), default=None)

    def warning(self, request: Request) -> str:
        """What to say of a --max-context beyond what the models were made for; empty where it is not."""
        made, asked = self._made_for(request), request.max_context
        if made is None or asked is None or asked <= made:
            return ""
        if self.positions is not None and asked > self.positions:
            return f"--max-context {asked} is cut to {self.positions}: the model has learned only that many positions"
        return f"--max-context {asked} exceeds the {made} tokens that the pair was made for; beyond them it may err"


def too_long(tokens: int | str, limit: int) -> str:
    """The message for a prompt that leaves no room for an answer; coding agents look for these words."""
    return f"prompt is too long: {tokens} tokens > {limit - 1} maximum"


def too_large(names: str, need_bytes: int, tokens: int, limit: int) -> str:
    """The message for models that do not fit with caches of `tokens` tokens; `limit` bytes are usable."""
    verb = "need" if " and " in names else "needs"
    return f"{names} {verb} {size(need_bytes)} at {tokens} tokens of context; {size(limit)} are usable"


def limit_bytes(available_bytes: int) -> int:
    """The share of the available memory that models may use."""
    return int(available_bytes * HEADROOM)


@dataclass(frozen=True, slots=True)
class Footprint:
    """One model at one context length: weights, caches, and the largest prefill chunk's activations."""

    name: str
    weight_bytes: int
    cache_bytes: int
    prefill_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Target and draft together at `context_tokens`. Prefills run one after the other, so only the larger one counts.

    `fits_with_kv_bits` is a `--kv-bits` value with which it would fit, where one is known; `largest_context` in tokens
    is what would fit as it is, 0 if not even the weights do. What `servers` hold is not available.
    """

    footprints: tuple[Footprint, ...]
    context_tokens: int
    available_bytes: int
    fits_with_kv_bits: int | None = None
    largest_context: int = 0
    servers: tuple[RunningServer, ...] = ()

    @property
    def prefill_bytes(self) -> int:
        return max(part.prefill_bytes for part in self.footprints)

    @property
    def peak_bytes(self) -> int:
        return sum(part.weight_bytes + part.cache_bytes for part in self.footprints) + self.prefill_bytes

    @property
    def limit_bytes(self) -> int:
        """The share of the available memory that models may use."""
        return limit_bytes(self.available_bytes)

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.limit_bytes

    @property
    def _beside(self) -> tuple[str, str]:
        """The servers of other processes with what they hold, and the command that ends them."""
        first, *more = self.servers
        who = f"{1 + len(more)} servers, which hold" if more else f"the server of {first.pair}, which holds"
        held = size(sum(server.held_bytes for server in self.servers))
        return f"beside {who} {held}", f"specdec stop {'--all' if more else first.pid}"

    @property
    def warning(self) -> str:
        """What to say where servers leave just enough; empty where they do not."""
        if not self.servers or self.peak_bytes < TIGHT_SHARE * self.limit_bytes:
            return ""
        beside, stop = self._beside
        share = percent(self.peak_bytes / self.limit_bytes)
        return f"memory {share} of {size(self.limit_bytes)} {beside}; {stop} frees that"

    def obstacle(self) -> DoesNotFit:
        """The refusal, with both numbers and what would fit."""
        context, taken = self.largest_context, sum(server.held_bytes for server in self.servers)
        names = " and ".join(part.name for part in self.footprints)
        message = too_large(names, self.peak_bytes, self.context_tokens, self.limit_bytes)
        if taken and self.peak_bytes <= limit_bytes(self.available_bytes + taken):
            beside, stop = self._beside
            message += f" {beside}"
            asks = f"""curl {self.servers[0].url}/api/generate --json '{{"prompt": "…", "stream": false}}'"""
            hint = f"{stop} frees that; or ask the server: {asks}"
        elif self.fits_with_kv_bits:
            hint = f"it fits with quantized caches: --kv-bits {self.fits_with_kv_bits}; --force loads it anyway"
        elif context >= 512:
            hint = f"a smaller context fits: --max-context {context}; --force loads it anyway"
        elif len(self.footprints) > 1:
            hint = "try without the draft (--drafter none) or a smaller pair (specdec pairs); --force loads it anyway"
        else:
            hint = "try a smaller model or a lower quantization; --force loads it anyway"
        return DoesNotFit(message, hint)


def prefill_bytes(
    rows: int,
    context_tokens: int,
    layers: int,
    hidden: int,
    inner: int,
    heads: int,
    value_bytes: int,
    fused_attention: bool,
) -> int:
    """Activations of the largest prefill chunk: `rows` tokens after a context, in one layer at a time.

    Three MLP arrays and about ten of the hidden width live at once; without a fused kernel so do the attention
    scores [heads, rows, context]. Of the last layer a chunk computes what the caches keep, not its attention or
    its MLP: a model of one layer holds seven hidden arrays. The factors were fitted to mlx's peak on the CPU; a
    test checks them.
    """
    rows = min(rows, context_tokens)
    if layers == 1:
        return rows * 7 * hidden * value_bytes
    scores = 0 if fused_attention else heads * rows * context_tokens
    return (rows * (3 * inner + 10 * hidden) + scores) * value_bytes
