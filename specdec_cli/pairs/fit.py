"""Does a pair fit this machine, with how long contexts, and how many? The one answer, before it is loaded and after.

By its files alone: no weight is read. All sizes in bytes, all lengths in tokens. Cache sizes come from the
architecture's own caches, built lazily and never evaluated, so that every kind is counted as it is. From then on they
are numbers, which any thread may ask, and which stay true while the models are away.
Law: an estimate is within 10 % of the memory that mlx then uses; a test keeps it so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache

from specdec_cli.core.errors import DoesNotFit, Refused, SpecdecError
from specdec_cli.core.format import percent, size
from specdec_cli.core.kinds import DRAFTERS
from specdec_cli.engine import device
from specdec_cli.engine.cache.cache_kinds import KEPT_SNAPSHOTS
from specdec_cli.engine.load import empty_model, unverifiable
from specdec_cli.engine.model import CachedModel
from specdec_cli.models.checkpoint import Checkpoint
from specdec_cli.pairs.files import Notify, PairFiles
from specdec_cli.pairs.limits import ContextLimit, limit_bytes
from specdec_cli.system import servers
from specdec_cli.system.servers import RunningServer

HINTED_BITS = 8
# Options by which a pair that does not fit may be loaded all the same.
REMEDIES = frozenset({"--kv-bits", "--max-context", "--drafter", "--force"})
# Contexts are tried in steps of so many tokens, from short ones to the longest. Sizes at so many are remembered.
STEP, SHORTEST, LONGEST, REMEMBERED = 256, 1024, 1 << 20, 512
# Share of the usable memory from which on a word is said of it.
TIGHT_SHARE = 0.9
# Snapshots that a server's conversation keeps where caches cannot be trimmed: a few ends of turns, and a few on the way
# there. They may take a small share of the memory beside the weights: those of wide windows are large.
MOST_SNAPSHOTS, SNAPSHOT_SHARE = 8, 1 / 16
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Footprint:
    """One model at one context length: weights, caches, and the largest prefill chunk's activations.

    Of the caches each snapshot takes `snapshot_bytes`, and `KEPT_SNAPSHOTS` are counted.
    """

    name: str
    weight_bytes: int
    cache_bytes: int
    prefill_bytes: int
    snapshot_bytes: int = 0

    @property
    def row_bytes(self) -> int:
        """Of the same context in passes that conversations share: without snapshots."""
        return self.cache_bytes - KEPT_SNAPSHOTS * self.snapshot_bytes


@dataclass(frozen=True)
class Fit:
    """What the models of `files` take together with caches of `tokens`, and whether the device has so much.

    `sizes` are theirs at any length, `context` is what they were made for. `beside` are the lengths of further
    conversations; each keeps so many `snapshots`. What `servers` hold is not among the `usable_bytes`.
    With `kv_bits` the caches are quantized. Where machines share the target, it is one's. A refusal names no option
    but of `remedies`, those that the command has. `more` of other models is in memory as well.
    """

    files: PairFiles
    sizes: Callable[[int], tuple[Footprint, ...]]
    usable_bytes: int
    servers: tuple[RunningServer, ...] = ()
    tokens: int = 0
    context: ContextLimit = field(default_factory=ContextLimit)
    kv_bits: int | None = None
    beside: tuple[int, ...] = ()
    snapshots: int = KEPT_SNAPSHOTS
    remedies: frozenset[str] = REMEDIES
    more: tuple[Footprint, ...] = ()

    @classmethod
    def of(cls, files: PairFiles, kv_bits: int | None = None, remedies: frozenset[str] = REMEDIES) -> Fit:
        """Of the pair on this machine.

        Raises: NotAvailable for an architecture that is unknown, Refused for caches that cannot be quantized to
        `kv_bits`, and for a target that cannot be shared.
        """
        checkpoints, head = files.checkpoints, files.head
        models = [empty_model(one, kv_bits) for one in checkpoints]

        @cache  # what is refused is refused before the weights' headers are read
        def weights() -> list[int]:
            found = [one.weight_bytes for one in files.models]
            if checkpoints[0].group:  # embeddings and norms are on each of its machines
                whole = empty_model(replace(checkpoints[0], group=None))
                found[0] = found[0] * models[0].weight_bytes // whole.weight_bytes
            return found

        @lru_cache(REMEMBERED)
        def sizes(tokens: int) -> tuple[Footprint, ...]:
            parts = zip(checkpoints, weights(), models, strict=True)
            found = [footprint(checkpoint, tokens, size, model) for checkpoint, size, model in parts]
            if head is not None:  # it reads the prompt with the target, whose layers take more for it
                found.append(Footprint(f"{head.name} (head)", head.loaded_bytes, head.cache_bytes(tokens), 0))
            return tuple(found)

        context = replace(files.context, positions=models[0].network.positions)
        return cls(files, sizes, device.usable_bytes(), servers.others(), 0, context, kv_bits, remedies=remedies)

    def at(self, tokens: int = 0, *beside: int) -> Fit:
        """The same with caches of so many tokens, which may be more than the models were made for.

        `beside` them those of further conversations.
        """
        return replace(self, tokens=min(tokens, max(self.longest, LONGEST)), beside=beside)

    def holding(self, parts: tuple[Footprint, ...]) -> Fit:
        """The same with these in memory as well."""
        return replace(self, sizes=lambda tokens: (*self.sizes(tokens), *parts), more=parts) if parts else self

    @property
    def longest(self) -> int:
        """The context that all models were made for."""
        return min((limit for limit in (self.context.target, self.context.draft) if limit), default=LONGEST)

    @property
    def with_more_snapshots(self) -> Fit:
        """The same, where each conversation keeps as many snapshots as the memory beside the weights allows."""
        each = sum(part.snapshot_bytes for part in self.sizes(LONGEST))
        affordable = int((self.limit_bytes - self.weight_bytes) * SNAPSHOT_SHARE) // max(each, 1)
        return replace(self, snapshots=max(min(affordable, MOST_SNAPSHOTS), KEPT_SNAPSHOTS))

    def require(self, tokens: int | None, tell: Notify) -> Fit:
        """This, or where nobody asked for the head and it cannot draft here, the same without it, which `tell` hears.

        With caches of `tokens`; None: whatever the memory. `tell` hears as well of a pair that just fits beside
        servers. Raises: NotAvailable, Refused, DoesNotFit for what keeps the pair from running.
        """
        if (error := self._obstacle(tokens, tell)) is None:
            return self
        if (alone := self.without_unasked_head) is None or alone._obstacle(tokens, tell):
            raise error
        tell(f"no head drafts: {error.message}")
        return alone

    @property
    def without_unasked_head(self) -> Fit | None:
        """That of the pair without a head that nobody asked for; None where there is no such head."""
        alone = self.files.without_unasked_head
        return Fit.of(alone, self.kv_bits, self.remedies).holding(self.more) if alone else None

    def refusals(self) -> Iterator[SpecdecError]:
        """What keeps the pair from drafting, but for the memory. Raises: NotAvailable for an unreadable tokenizer."""
        files = self.files
        if DRAFTERS[files.spec.drafter].drafts:
            yield from filter(None, map(unverifiable, files.checkpoints))
        if files.head and (refusal := files.head.of_other_target(files.target.checkpoint)):
            yield refusal
        if files.vocab is not None and files.vocab.status == "incompatible":
            yield files.vocab.refusal(*(checkpoint.name for checkpoint in files.checkpoints))

    def _obstacle(self, tokens: int | None, tell: Notify) -> SpecdecError | None:
        if (refusal := next(self.refusals(), None)) or tokens is None:
            return refusal
        found = self.at(min(tokens, self.longest))
        if found.fits and (warning := found.warning):
            tell(warning)
        return None if found.fits else found.obstacle()

    @cached_property
    def footprints(self) -> tuple[Footprint, ...]:
        """Of each model, a head's last."""
        return self.sizes(self.tokens)

    @property
    def weight_bytes(self) -> int:
        return sum(part.weight_bytes for part in self.footprints)

    @property
    def prefill_bytes(self) -> int:
        """Prefills run one after the other, so only the largest counts."""
        return max(part.prefill_bytes for part in self.sizes(max(self.tokens, *self.beside, 0)))

    @property
    def peak_bytes(self) -> int:
        parts = [*self.footprints, *(part for tokens in self.beside for part in self.sizes(tokens))]
        caches = sum(part.row_bytes + self.snapshots * part.snapshot_bytes for part in parts)
        return self.weight_bytes + caches + self.prefill_bytes

    @property
    def room_bytes(self) -> int:
        """What is left; below 0 where it does not fit."""
        return self.limit_bytes - self.peak_bytes

    @property
    def limit_bytes(self) -> int:
        """The share of the usable memory that models may take."""
        return limit_bytes(self.usable_bytes)

    @property
    def fits(self) -> bool:
        return self.room_bytes >= 0

    @cached_property
    def largest_context(self) -> int:
        """Tokens with which it would fit as it is, 0 if not even the weights do."""
        longest = max(self.longest, self.tokens)
        steps = range(STEP, longest + 1, STEP)
        fitting = bisect_left(steps, True, key=lambda tokens: not self.at(tokens).fits)
        return longest if fitting == len(steps) else fitting * STEP

    @cached_property
    def memory_tokens(self) -> int | None:
        """The longest conversation that the memory holds; None where it bounds none.

        Nor does it where not even a short one fits: whoever loaded such a pair was told, and wants it all the same.
        """
        found = self.at(LONGEST).largest_context
        return found if SHORTEST <= found < LONGEST else None

    @property
    def quantized(self) -> Fit | None:
        """The same with quantized caches; None where they are, or cannot be."""
        with suppress(Refused):
            if self.kv_bits is None and self.files.target.checkpoint.group is None:
                return Fit.of(self.files, HINTED_BITS).holding(self.more).at(self.tokens)
        return None

    @property
    def _beside(self) -> tuple[str, str]:
        """The servers of other processes with what they hold, and the command that ends them."""
        first, *more = self.servers
        who = f"{1 + len(more)} servers, which hold" if more else f"the server of {first.pair}, which holds"
        held = size(sum(server.held_bytes for server in self.servers))
        return f"beside {who} {held}", f"specdec stop {'--all' if more else first.pid}"

    @property
    def scarce(self) -> str:
        """What to say where the conversations take most of the memory; empty where they do not."""
        return self._tight(f": {self.relief}")

    @property
    def warning(self) -> str:
        """The same where servers leave just enough; empty where they do not."""
        if not self.servers:
            return ""
        beside, stop = self._beside
        return self._tight(f" {beside}; {stop} frees that")

    def _tight(self, advice: str) -> str:
        share = self.peak_bytes / self.limit_bytes
        return f"memory {percent(share)} of {size(self.limit_bytes)}{advice}" if share >= TIGHT_SHARE else ""

    @property
    def relief(self) -> str:
        """What makes room, without loading another pair."""
        found = [] if self.kv_bits else [f"--kv-bits {HINTED_BITS} shrinks the caches"]
        if freed := sum(part.weight_bytes for part in self.footprints[1:]):
            found.append(f"--drafter none frees {size(freed)} and the draft's caches")
        return ", ".join([*found, "--max-context N bounds them"])

    def shortage(self, names: str) -> str:
        """What does not fit, called by these `names`, with both numbers."""
        verb = "need" if " and " in names else "needs"
        needed, usable = size(self.peak_bytes), size(self.limit_bytes)
        return f"{names} {verb} {needed} at {self.tokens} tokens of context; {usable} are usable"

    def obstacle(self) -> DoesNotFit:
        """The refusal, with both numbers and what would fit."""
        taken = sum(server.held_bytes for server in self.servers)
        message = self.shortage(" and ".join(part.name for part in self.footprints))
        if taken and self.peak_bytes <= limit_bytes(self.usable_bytes + taken):
            beside, stop = self._beside
            message += f" {beside}"
            asks = f"""curl {self.servers[0].url}/api/generate --json '{{"prompt": "…", "stream": false}}'"""
            return DoesNotFit(message, f"{stop} frees that; or ask the server: {asks}")
        forced = "; --force loads it anyway" if "--force" in self.remedies else ""
        return DoesNotFit(message, f"{self._remedy}{forced}")

    @property
    def _remedy(self) -> str:
        if "--kv-bits" in self.remedies and (quantized := self.quantized) and quantized.fits:
            return f"it fits with quantized caches: --kv-bits {HINTED_BITS}"
        if "--max-context" in self.remedies and (context := self.largest_context) >= 512:
            return f"a smaller context fits: --max-context {context}"
        if "--drafter" in self.remedies and len(self.footprints) > 1:
            return "try without the draft (--drafter none) or a smaller pair (specdec pairs)"
        return "try a smaller model or a lower quantization"


def footprint(checkpoint: Checkpoint, context_tokens: int, weight_bytes: int, model: CachedModel) -> Footprint:
    """Bytes of `checkpoint` at `context_tokens`; `weight_bytes` are its weights in memory, `model` has its shapes.

    In a chunk of the prompt three MLP arrays and about ten of the hidden width live at once, of one layer at a time;
    without a fused kernel so do the attention scores [heads, rows, context]. Of the last layer a chunk computes what
    the caches keep, not its attention or its MLP: a model of one layer holds seven hidden arrays. The factors were
    fitted to mlx's peak on the CPU; a test checks them. Raises: NotAvailable for a size that is none.
    """
    value_bytes = VALUE_BYTES.get(checkpoint.declared_dtype or "", 2)
    cache_bytes = model.cache_bytes(context_tokens, value_bytes)
    snapshot_bytes = model.cache_bytes(context_tokens, value_bytes, KEPT_SNAPSHOTS + 1) - cache_bytes
    hidden, heads = checkpoint.whole("hidden_size", 0), checkpoint.whole("num_attention_heads", 1)
    inner = checkpoint.whole("intermediate_size", 4 * hidden)
    rows = min(device.prefill_tokens(), context_tokens)
    # Quantized keys and values have no fused kernel (mlx-lm, models/base.py).
    sizes = model.head_sizes
    fused = not model.network.kv and bool(sizes) and all(device.fuses_attention(*size) for size in sizes)
    scores = 0 if fused else heads * rows * context_tokens
    values = rows * 7 * hidden if model.layers == 1 else rows * (3 * inner + 10 * hidden) + scores
    # Without its Metal kernel a recurrence keeps the state of every token of the chunk.
    states = 0 if device.backend() == "metal" else rows * model.state_bytes
    # From the second chunk on a layer's cache is copied where it grows.
    copied = cache_bytes // model.layers if rows < context_tokens else 0
    prefill_bytes = values * value_bytes + states + copied
    return Footprint(checkpoint.name, weight_bytes, cache_bytes, prefill_bytes, snapshot_bytes)
