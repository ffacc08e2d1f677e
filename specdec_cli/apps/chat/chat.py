"""A chat without its editor: one pair, one conversation, one screen. Law: a failed message changes nothing.

A message joins the conversation together with its answer. A message that was refused, failed, or was stopped before
the first token goes back to the editor.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from traceback import clear_frames
from typing import Any

from specdec_cli.apps.chat.screen import ChatScreen
from specdec_cli.apps.chat.settings import HIDDEN, ChatSettings
from specdec_cli.core.errors import DoesNotFit, SpecdecError, UsageError
from specdec_cli.core.events import Event, Finish, Prefill, Start
from specdec_cli.core.format import count, percent, size
from specdec_cli.core.kinds import HEADS, NONE
from specdec_cli.core.request import Request
from specdec_cli.core.stats import ChatStats
from specdec_cli.engine.device import clear_cache
from specdec_cli.hub import cache_folder, locate
from specdec_cli.models.text import Thinking
from specdec_cli.pairs.catalog import findable
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.conversation import Answer, Conversation, Fitted, Turn
from specdec_cli.session.disk_cache import LEAST_TOKENS
from specdec_cli.session.disk_entries import remove_chats
from specdec_cli.session.kept_chats import Keeper, kept_chats
from specdec_cli.session.session import Session
from specdec_cli.session.signals import Interrupt, Presses
from specdec_cli.session.transcript import Transcript, save
from specdec_cli.version import __version__

# Less than that is on disk before anybody wonders.
SOON_WRITTEN_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pair in memory."""

    spec: PairSpec
    session: Session

    @property
    def pair(self) -> Pair:
        return self.spec.pair

    @property
    def drafter(self) -> str:
        """The drafter used while drafting is on."""
        return self.spec.drafter

    @property
    def summary(self) -> str:
        """The pair with its models, in one line."""
        (target, draft), kind = self.session.pair.names, self.session.pair.draft_kind
        who = f"its own head ({kind})" if draft == target and kind in HEADS else f"draft {draft}"
        return f"{self.pair.name}: target {target}, {who if draft else 'no draft'}"

    def to_dict(self) -> dict[str, Any]:
        """The pair in a transcript, as it is found from any folder; a revision is a commit where one is known."""
        pair = findable(self.pair)
        return {
            "pair": pair.name,
            "target": pair.target,
            "draft": pair.draft,
            "target_adapter": pair.target_adapter,
            "draft_adapter": pair.draft_adapter,
            "target_revision": _commit(pair.target, pair.target_revision),
            "draft_revision": _commit(pair.draft, pair.draft_revision) if pair.draft else None,
        }


Open = Callable[[PairSpec], Loaded]
"""Loads the pair. Raises: SpecdecError."""


def _commit(name: str, pinned: str | None) -> str | None:
    """The commit of a snapshot in our cache, from the name of its folder; else the pinned revision.

    In other places no model is looked for by its commit.
    """
    folder = locate(name, pinned)
    return folder.name if folder.parent.name == "snapshots" and folder.is_relative_to(cache_folder()) else pinned


class Chat:
    """The state of a chat; every command acts on it."""

    def __init__(
        self,
        loaded: Loaded,
        open_pair: Open,
        screen: ChatScreen,
        settings: ChatSettings,
        transcript: Transcript | None = None,
        saved_to: Path | None = None,
        keeper: Keeper | None = None,
        stuck: Callable[[int], None] | None = None,
    ) -> None:
        """`keeper` keeps what is not `saved_to` a file; `stuck` is that of `Interrupt`."""
        self._stuck = stuck
        self.loaded, self._open, self.screen, self.settings = loaded, open_pair, screen, settings
        self.transcript = transcript or Transcript(Conversation())
        self.saved_to, self.keeper, self.presses = saved_to, keeper, Presses()
        # That of the first save that failed; the chat goes on.
        self.unsaved_code = 0
        self.stats = ChatStats()
        self.context_tokens = 0
        # Names of the chats whose reading may be on disk.
        self._on_disk: set[str] = set()
        self._measure()

    @property
    def conversation(self) -> Conversation:
        return self.transcript.conversation

    def request(self, attempt: int = 0) -> Request:
        """The request of the next reply."""
        asked, drafter = self.settings.request, self.loaded.drafter if self.settings.drafts else NONE.name
        request = replace(asked, drafter=drafter, attempt=attempt)
        fit = self.loaded.session.pair.fit
        limit, memory = fit.context.tokens(request), fit.memory_tokens
        return request if memory is None else replace(request, max_context=min(memory, limit or memory))

    @property
    def context_limit(self) -> int | None:
        """Tokens that the conversation may have: by the models, by --max-context, and by the memory."""
        return self.loaded.session.pair.context.tokens(self.request())

    @property
    def memory_warning(self) -> str:
        """What to say of the memory that the conversation takes; empty while there is room."""
        return self.loaded.session.pair.fit.at(self.context_tokens).scarce

    @property
    def toolbar(self) -> list[str]:
        """A word on scarce memory, pair, K, temperature, context used and its limit, and acceptance so far."""
        pair, request = self.loaded.session.pair, self.request()
        limit, rate = self.context_limit, self.stats.rounds.draft_acceptance_rate
        parts = [
            self.memory_warning,
            self.loaded.pair.name,
            request.constraint.kind if request.constraint else "",
            f"K {request.k}" if pair.drafting(request).kind.drafts else "plain decoding",
            f"temp {pair.effective(request)['temperature']:g}",
            f"context {self.context_tokens}" + ("" if limit is None else f" / {limit}"),
            "" if rate is None else f"accepted {percent(rate)}",
        ]
        return [part for part in parts if part]

    def ask(self, text: str) -> str:
        """One turn; returns the text for the editor if nothing was generated. Raises: SpecdecError."""
        return self._ask(self.conversation, text, 0)

    def retry(self) -> str:
        """Another answer to the last message; the old one stays until there is a new one. Raises: SpecdecError."""
        last = self.last_turn("/retry")
        if not self.loaded.session.pair.effective(self.request())["temperature"]:
            self.screen.notice("at temperature 0 the answer stays the same: /set temp 0.8 samples")
        self._ask(self.conversation.without_last(), last.user, last.attempt + 1)
        return ""

    def undo(self) -> str:
        """Removes the last turn and returns its message. Raises: UsageError without one."""
        last = self.last_turn("/undo")
        self.change(self.conversation.without_last())
        return last.user

    def last_turn(self, command: str) -> Turn:
        """Raises: UsageError before the first one."""
        if not self.conversation.turns:
            raise UsageError(f"{command} needs an answer, and there is none yet", "write a message first")
        return self.conversation.turns[-1]

    def change(self, conversation: Conversation) -> None:
        """Replaces the conversation. Raises: SpecdecError, changing nothing, if the template refuses it."""
        self.adopt(replace(self.transcript, conversation=conversation), self.saved_to)
        self._keep()

    def adopt(self, transcript: Transcript, path: Path | None) -> None:
        """Replaces the transcript; if turns are saved, they go to `path` from now on.

        Raises: SpecdecError, changing nothing, if the template refuses it.
        """
        self._keep_read(ends=True)
        before, self.transcript = self.transcript, transcript
        try:
            self._measure()
        except SpecdecError:
            self.transcript = before
            raise
        self.saved_to = path if self.saved_to is not None else None

    def switch(self, spec: PairSpec) -> None:
        """Loads another pair, on a failure and on Ctrl-C the old one again. Raises: SpecdecError, `lost` or not."""
        before = self.loaded.spec
        self._keep_read(ends=True)
        try:
            self._load(spec)
        except (Exception, KeyboardInterrupt) as error:
            clear_frames(error.__traceback__)  # else what was loaded until then stays beside the old pair
            self._load(before)
            raise
        if (pair := self.loaded.pair) != before.pair:
            self.settings = self.settings.asking_pair(pair)
        self._measure()

    def _load(self, spec: PairSpec) -> None:
        """Two pairs are never in memory."""
        vars(self).pop("loaded", None)
        gc.collect()
        clear_cache()  # else the old weights stay in mlx's cache of freed buffers
        self.loaded = self._open(spec)

    @property
    def lost(self) -> bool:
        """Whether another pair could not be loaded, nor the old one again: the chat cannot go on."""
        return "loaded" not in vars(self)

    def save(self, path: Path) -> None:
        """Writes the transcript. Raises: SpecdecError."""
        save(path, replace(self.transcript, header={"specdec": __version__, **self.loaded.to_dict()}))

    def _ask(self, conversation: Conversation, text: str, attempt: int) -> str:
        request, warned = self.request(attempt), self.memory_warning
        fitted = self._fit(conversation, text, request)
        if dropped := fitted.left_out - conversation.left_out:
            holds = f"the context holds {self.context_limit} tokens"
            self.screen.notice(f"left out the {count(dropped, 'oldest turn')}: {holds}")
        tags = self.loaded.session.pair.tokenizer.thinking(fitted.ids)
        start, prefill, finish = self._reply(fitted, request, tags)
        if finish.reason == "interrupted" and not finish.text:
            left = "the answer before it stays" if attempt else "the message was taken back"
            self.screen.notice(f"stopped before the first word: {left}")
            return text
        # A character that was cut in two is not part of the answer.
        said = finish.text if finish.reason == "stop" else finish.text.rstrip("\N{REPLACEMENT CHARACTER}")
        thought, answer = tags.split(said) if tags else ("", said)
        turn = Turn(text, Answer(answer, thought, finish.reason, self._facts(start, prefill, finish)), attempt)
        self.transcript = replace(self.transcript, conversation=conversation.with_turn(turn, fitted.left_out))
        self.context_tokens = len(fitted.ids) + len(finish.tokens)
        if not warned and self.memory_warning:
            self.screen.notice(self.memory_warning)
        self._keep()
        self._keep_read()
        return ""

    def close(self) -> None:
        """The chat is over: what was read is on disk once this returns."""
        if not self.lost:
            session = self.loaded.session
            if session.unkept_tokens >= LEAST_TOKENS and session.slot.nbytes > SOON_WRITTEN_BYTES:
                self.screen.notice(f"keeping {size(session.slot.nbytes)} of what was read…")
            self._keep_read(ends=True)
            if disk := session.pair.disk:
                disk.finish()
                remove_chats(self._on_disk - {path.stem for path in kept_chats()})

    def _keep_read(self, ends: bool = False) -> None:
        """Have what was read kept on disk, as the chat itself is: not what was deleted meanwhile."""
        if self.keeper and (name := self.keeper.kept_as(self.transcript)):
            self._on_disk.add(name)
            self.loaded.session.keep(name, ends)

    def _fit(self, conversation: Conversation, text: str, request: Request) -> Fitted:
        limit, fit = self.context_limit, self.loaded.session.pair.fit
        try:
            return conversation.fit(text, self._render, limit, request.max_tokens, self.settings.overflow)
        except DoesNotFit as error:
            if limit is None or limit != fit.memory_tokens:
                raise
            message = f"{error.message}: the memory of {size(fit.limit_bytes)} ends there"
            raise DoesNotFit(message, f"{error.hint}; {fit.relief}") from error

    def _reply(self, fitted: Fitted, request: Request, tags: Thinking | None) -> tuple[Start, Prefill, Finish]:
        name, hidden = self.loaded.pair.name, self.settings.thoughts == HIDDEN
        seen: dict[type[Event], Any] = {}
        with (
            Interrupt(self.presses.again, self._stuck) as interrupt,
            self.screen.reply(name, tags, hidden, self.settings.panel) as show,
        ):
            session, watched = self.loaded.session, self.screen.watched
            for event in session.reply(fitted.ids, request, interrupt.requested, measures_last=watched):
                self.stats.fold(event)
                seen[type(event)] = event
                show(event)
        return seen[Start], seen[Prefill], seen[Finish]

    def _render(self, messages: Any) -> list[int]:
        return self.loaded.session.pair.message_tokens(messages, self.settings.template)

    def _facts(self, start: Start, prefill: Prefill, finish: Finish) -> dict[str, Any]:
        """The facts of one answer in a transcript."""
        names = ("drafter", "rule", "k", "temperature", "seed", "sampling", "prompt_tokens", "context_limit")
        facts = {name: getattr(start, name) for name in names}
        return {**self.loaded.to_dict(), **facts, "cached_tokens": prefill.cached_tokens, "stats": dict(finish.stats)}

    def _measure(self) -> None:
        """Counts the conversation's tokens; an empty conversation uses none."""
        sent = self.conversation.turns or self.conversation.system
        self.context_tokens = len(self._render(self.conversation.messages(""))) if sent else 0

    def _keep(self) -> None:
        """Saves or keeps the conversation. What was said stays said: a failure is shown, never raised."""
        if self.saved_to is None:
            if self.keeper and (said := self.keeper.keep(self.transcript, self.save)):
                self.screen.notice(said)
            return
        try:
            self.save(self.saved_to)
        except SpecdecError as error:
            self.screen.error(error)
            self.unsaved_code = self.unsaved_code or error.exit_code
