"""From a pair's names to its weights in memory. Law: every refusal comes before any weight is read.

A LoadedPair is shared by all conversations.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from specdec_cli import blas
from specdec_cli.engine import device
from specdec_cli.engine.footprint import resident_bytes
from specdec_cli.engine.load import load as load_weights
from specdec_cli.engine.memory import Residency, bound_memory
from specdec_cli.engine.pipeline import Clock
from specdec_cli.errors import DoesNotFit, NotAvailable, Refused, UsageError
from specdec_cli.hub import locate
from specdec_cli.kinds import DEFAULT_DRAFTER, DRAFTERS, NONE
from specdec_cli.machine import low_power_mode, power_source
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.grammar import Vocabulary
from specdec_cli.models.heads import HeadFiles, is_for_a_head
from specdec_cli.models.pieces import Between, unwatched
from specdec_cli.models.tokenizer import Message, Tokenizer
from specdec_cli.models.tool_call import ToolCall
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.resolve import resolve_pair
from specdec_cli.session.cost_file import CostStore, MemoryCostStore
from specdec_cli.session.fingerprint import fingerprint_of
from specdec_cli.session.heads import PROMPTS, Tell, agreement_key, checked_head, drafting_head
from specdec_cli.session.parts import PairFiles, fitting, pair_files, require_draft
from specdec_cli.session.slot import Slot

if TYPE_CHECKING:
    from specdec_cli.session.session import Session

# A prediction may be so many contexts long: an answer resembles a part of it. A context without end counts as this.
MOST_PREDICTED, ENDLESS_TOKENS = 4, 1 << 18


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """Weights, tokenizer and learned costs of a pair, shared by all its conversations.

    `names` are the target's and the draft's; `costs` keeps what rounds cost, by `identity` and length of context,
    `checks` how well heads guess.
    `residency` keeps them in memory while they decode. Caches of another `fingerprint` are another pair's; empty is
    unknown.
    """

    pair: Pair
    names: tuple[str, str | None]
    tokenizer: Tokenizer
    first: Slot
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    costs: CostStore = field(default_factory=MemoryCostStore)
    checks: CostStore = field(default_factory=MemoryCostStore)
    identity: str = ""
    reload_seconds: float = 0.0
    residency: Residency = field(default_factory=Residency)
    fingerprint: str = ""
    _vocabularies: list[Vocabulary] = field(default_factory=list, repr=False)

    @property
    def has_draft(self) -> bool:
        return self.first.draft is not None

    @property
    def head_kind(self) -> str | None:
        """The kind of drafter that the pair's draft is where that is a head."""
        return self.first.head.head.kind if self.first.head else None

    def slot(self) -> Slot:
        """Empty caches of another conversation, over the same weights."""
        draft, head = self.first.draft, self.first.head
        return Slot(self.first.target.fresh(), draft.fresh() if draft else None, head.fresh() if head else None)

    def session(self, slot: Slot | None = None, clock: Clock = time.perf_counter) -> Session:
        """A conversation, in a slot of its own unless one is given."""
        from specdec_cli.session.session import Session

        return Session(self, slot or self.slot(), clock)

    def vocabulary(self) -> Vocabulary:
        """The tokenizer as grammars need it, made at its first use.

        Raises: UsageError for a tokenizer of another kind.
        """
        if not self._vocabularies:
            tokenizer = self.tokenizer
            self._vocabularies.append(
                Vocabulary.of_model(tokenizer.to_json(), self.first.target.vocab_size, tokenizer.stop_tokens)
            )
        return self._vocabularies[0]

    def text_tokens(self, text: str) -> list[int]:
        """Ids of the text itself, to be continued."""
        return self.tokenizer.encode(text)

    def message_tokens(
        self, messages: Sequence[Message], thinks: bool = True, tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Ids of a conversation, ready for the assistant's turn; plain text for a model without a chat template.

        `thinks` false asks the template to leave thinking out, where it knows how. `tools` are JSON schemas of
        functions, as the template expects them.

        Raises: UsageError if the template refuses these messages, or if there are tools and no template.
        """
        return conversation_tokens(self.tokenizer, self.names[0], messages, thinks, tools)

    def tool_calls(self, text: str, tools: Sequence[Mapping[str, Any]] = ()) -> tuple[str, list[ToolCall]]:
        """(the answer without its calls, the calls) by the model's own parser. Raises: UsageError if it has none."""
        return self.tokenizer.tool_calls(text, tools)

    def with_head(self, files: HeadFiles, key: str, checks: CostStore, tell: Tell) -> LoadedPair:
        """The same target with the head in `files` as draft, once `checks` knows by `key` how well it guesses.

        Raises: NotAvailable for files that are wrong, Refused for a head that does not guess.
        """
        prompts = [self.message_tokens([{"role": "user", "content": text}]) for text in PROMPTS]
        target = self.first.target
        head = checked_head(files, target, prompts, self.tokenizer.stop_tokens, checks, key, tell)
        slot = Slot(target, None, head)
        return replace(self, names=(self.names[0], files.name), first=slot, fingerprint="")

    def beside(self, draft: str, revision: str | None = None) -> LoadedPair:
        """The same target with another draft, whose weights are read from `draft`.

        Raises: NotAvailable, Refused.
        """
        folder = locate(draft, revision)
        if is_for_a_head(folder, draft):
            target = read_checkpoint(locate(self.pair.target, self.pair.target_revision), self.pair.target)
            files = drafting_head(folder, draft, target)
            return self.with_head(files, agreement_key(files, target), self.checks, lambda sentence: None)
        checkpoint = read_checkpoint(folder, draft)
        require_draft(checkpoint, self.tokenizer, self.names[0], None)
        slot = Slot(self.first.target, load_weights(checkpoint))
        names = self.names[0], checkpoint.name
        return LoadedPair(self.pair, names, self.tokenizer, slot, self.generation_config)


def conversation_tokens(
    tokenizer: Tokenizer,
    name: str,
    messages: Sequence[Message],
    thinks: bool = True,
    tools: Sequence[Mapping[str, Any]] = (),
    between: Between = unwatched,
) -> list[int]:
    """As `LoadedPair.message_tokens`, of the target `name`; `between` is that of `Tokenizer.encode`."""
    if tokenizer.has_template:
        return tokenizer.render(messages, thinks, tools, between)
    if tools:
        raise UsageError(f"{name} has no chat template, and {len(tools)} tools need one", "take an instruct model")
    return tokenizer.join(messages, between)


def predicted_tokens(
    tokenizer: Tokenizer, text: str, context_limit: int | None, between: Between = unwatched
) -> tuple[int, ...]:
    """Ids of a text that an answer may resemble; `between` is that of `Tokenizer.encode`.

    Raises: DoesNotFit for a text of which no answer could use the most part.
    """
    most = MOST_PREDICTED * (context_limit or ENDLESS_TOKENS)

    def look(tokens: int) -> None:
        between(tokens)
        if tokens > most:
            raise DoesNotFit(
                f"the prediction is too long: at least {tokens} tokens > {most} maximum",
                "predict the part that the answer will resemble",
            )

    ids = tokenizer.continuation(text, look)
    look(len(ids))
    return tuple(ids)


def load(
    pair: str | Pair | None = None,
    *,
    target: str | None = None,
    draft: str | None = None,
    drafter: str | None = None,
    reserve_tokens: int | None = None,
    kv_bits: int | None = None,
    costs: CostStore | None = None,
    checks: CostStore | None = None,
    tell: Tell = lambda sentence: None,
    clock: Clock = time.perf_counter,
) -> LoadedPair:
    """Load a pair: by name, as a Pair, or `target` and `draft` by Hub id or folder; without any, the default pair.

    Nothing is downloaded. The draft is loaded only where `drafter` uses one. `kv_bits` quantizes the KV caches of
    both. `costs` remembers costs from run to run, `checks` how well heads guess; a head that is checked takes some
    seconds, of which `tell` hears. With `reserve_tokens` the pair is refused if it does not fit with caches that long.

    Raises: NotAvailable, Refused, DoesNotFit; UsageError for an unknown drafter.
    """
    if drafter is not None and drafter not in DRAFTERS:
        raise UsageError(f"--drafter {drafter} is unknown", f"known drafters: {', '.join(DRAFTERS)}")
    if not isinstance(pair, Pair):
        resolved = resolve_pair(pair, target, draft, here=drafter != NONE.name)
        pair, drafter = resolved.pair, drafter or resolved.drafter
    parts = pair_files(pair, DRAFTERS[drafter or DEFAULT_DRAFTER], kv_bits, tell)
    if reserve_tokens is not None:
        parts = fitting(parts, reserve_tokens, kv_bits, tell)
    loaded = _with_head(
        _load(pair, parts, reserve_tokens, kv_bits, costs, checks or MemoryCostStore(), clock), parts, tell
    )
    return replace(loaded, fingerprint=fingerprint_of(loaded.first, parts.target, parts.draft, parts.head))


def _with_head(loaded: LoadedPair, parts: PairFiles, tell: Tell) -> LoadedPair:
    """The same with the head in `parts`, if there is one that may draft. Raises: as `load`."""
    if parts.head is None:
        return loaded
    try:
        return loaded.with_head(parts.head, agreement_key(parts.head, parts.target), loaded.checks, tell)
    except (NotAvailable, Refused) as error:
        if parts.head_asked:
            raise
        tell(f"no head drafts: {error.message}")
        return loaded


def _load(
    pair: Pair,
    parts: PairFiles,
    reserve_tokens: int | None,
    kv_bits: int | None,
    costs: CostStore | None,
    checks: CostStore,
    clock: Clock,
) -> LoadedPair:
    """All but the head."""
    target, draft, checkpoints, head = parts.target, parts.draft, parts.checkpoints, parts.head
    bound_memory()
    residency = Residency(lambda context_tokens: resident_bytes(checkpoints, context_tokens, kv_bits, head))
    residency.hold(reserve_tokens or 0)
    loaded = load_weights(target, kv_bits)
    began = clock()
    slot = Slot(loaded, load_weights(draft, kv_bits) if draft else None)
    return LoadedPair(
        pair=pair,
        names=(target.name, draft.name if draft else None),
        tokenizer=parts.tokenizer,
        first=slot,
        generation_config=target.generation_config,
        costs=costs or MemoryCostStore(),
        checks=checks,
        identity=_identity(pair, kv_bits),
        # A head is never released, so nothing reads it again.
        reload_seconds=clock() - began if draft else 0.0,
        residency=residency,
    )


def _identity(pair: Pair, kv_bits: int | None) -> str:
    """The cost of a round depends on these and on the length of the context."""
    models = " + ".join(f"{name}@{revision or 'latest'}" for name, revision in pair.models)
    power = power_source() + (", low power" if low_power_mode() else "")
    computes = blas.load() or device.backend()
    where = f"{device.device_name()} {computes}, mlx {device.versions()['mlx']}, {power}"
    return f"{models} · kv {kv_bits or 'full'} · {where}"
