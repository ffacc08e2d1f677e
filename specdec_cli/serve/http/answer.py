"""What a body asks for, and its answer so far: events of a job -> thinking, text and calls (pure).

All pieces of one answer joined are the answer of `Session.reply`, but for the tags of thinking and calls: nothing is
lost, and nothing said twice.
"""

from __future__ import annotations

import json
import re
import secrets
import string
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_cli.errors import SpecdecError
from specdec_cli.events import Event, Failure, Finish, Prefill, RoundDone, TokenLogprob
from specdec_cli.models.text import ThinkingCount, ThinkingStream, overlap
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.tool_calls import ToolCall
from specdec_cli.request import Request
from specdec_cli.serve.model import Model

Tool = Mapping[str, Any]
Prompt = str | tuple[int, ...]
BLANK = " \t"
LETTERS = string.ascii_letters + string.digits
# Templates of Mistral's refuse ids of any other length; everybody else takes what comes.
ID_LENGTH = 9


@dataclass(frozen=True, slots=True)
class Call:
    """A function that the model wants called, with the JSON of its arguments."""

    id: str
    name: str
    arguments: str

    @property
    def pieces(self) -> list[str]:
        """The arguments as a stream carries them."""
        return [self.arguments[at : at + 64] for at in range(0, len(self.arguments), 64)]


def call_id() -> str:
    """An id that every template takes."""
    return "".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH))


class CallStream:
    """Splits streamed text into text and calls: a call is whole or it is text, and no text is held back without need.

    Text goes on as it comes, but for what may become the mark of a call. Behind the mark the call is kept until it
    ends; then it is read by the model's own parser. What that cannot read goes on as the text that it was.
    """

    def __init__(self, tokenizer: Tokenizer, tools: Sequence[Mapping[str, Any]]) -> None:
        self._tokenizer, self._tools = tokenizer, tools
        self._start, self._end = tokenizer.call_marks or ("", "")
        self._held, self._inside, self._fresh = "", False, False

    def feed(self, text: str) -> list[str | Call]:
        """The pieces that `text` made certain; no text is empty."""
        self._held += text
        found: list[str | Call] = []
        while True:
            if self._inside:
                end = self._held.find(self._end) if self._end else -1
                if end < 0:
                    return found
                found += self._close(end + len(self._end))
                continue
            at = self._held.find(self._start) if self._start else -1
            if at < 0:
                return [*found, *self._tell(len(self._held) - self._uncertain())]
            blank = self._held[:at].rstrip()
            found += self._tell(len(blank))
            self._inside = True

    def finish(self) -> list[str | Call]:
        """The rest: an unfinished call is read as far as it came."""
        return self._close(len(self._held)) + self._tell(len(self._held)) if self._held else []

    def _uncertain(self) -> int:
        """Characters at the end that may belong to a call, or to the blank before one."""
        mark = overlap(self._held, self._start) if self._start else 0
        before = self._held[: len(self._held) - mark]
        return mark + len(before) - len(before.rstrip())

    def _tell(self, length: int) -> list[str | Call]:
        text, self._held = self._held[:length], self._held[length:]
        if self._fresh:
            text = text.lstrip()
        self._fresh = self._fresh and not text
        return [text] if text else []

    def _close(self, length: int) -> list[str | Call]:
        """The call in the first `length` characters, or their text."""
        if not self._inside:
            return []
        written, self._inside = self._held[:length], False
        calls = self._read(written.lstrip())
        if not calls:
            return self._tell(length)
        self._held, self._fresh = self._held[length:], True
        return list(calls)

    def _read(self, written: str) -> list[Call]:
        """Raises: nothing; none where it cannot be read."""
        try:
            rest, found = self._tokenizer.tool_calls(written, self._tools)
            calls = [_call(one) for one in found]
        except (SpecdecError, TypeError, ValueError, RecursionError):
            return []
        return [] if rest.strip() else calls


def _call(found: ToolCall) -> Call:
    """Raises: TypeError, ValueError for what JSON cannot say."""
    if not isinstance(found.name, str) or not isinstance(found.arguments, Mapping):
        raise TypeError("a call has a name and an object of arguments")
    return Call(call_id(), found.name, json.dumps(dict(found.arguments), ensure_ascii=False, allow_nan=False))


@dataclass(frozen=True, slots=True)
class LineLimits:
    """llama.cpp's `n_indent` and `t_max_predict_ms`, for editors; 0 is no limit.

    A line with less than `indent` blanks before it ends the answer, and so does one that ends after `seconds`. The
    first line goes on with one that is there already, so its blanks say nothing.
    """

    indent: int = 0
    seconds: float = 0.0


class LineCutter:
    """Ends an answer by its lines: takes text as it comes and holds back what may have to be cut.

    `over` once it came to an end.
    """

    def __init__(self, limits: LineLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._began: float | None = None
        self._held = ""
        self._fresh = False
        self.over = False

    def feed(self, text: str) -> str:
        """The text that may be shown; empty once it is over."""
        if self.over or not text:
            return ""
        self._began = self._clock() if self._began is None else self._began
        shown, self._held = self._held + text, ""
        if self._limits.indent:
            shown = self._indented(shown)
        late = self._limits.seconds and self._clock() - self._began > self._limits.seconds
        if late and not self.over and "\n" in shown:
            self.over, shown = True, shown[: shown.rindex("\n")]
        return shown

    def finish(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return "" if self.over else held

    def _indented(self, text: str) -> str:
        """As much of `text` as is indented enough; `_fresh`: it begins a line."""
        lines = re.split(r"(?<=\n)", text)
        kept = ""
        for place, line in enumerate(lines):
            words = line.lstrip(BLANK)
            begins = self._fresh or place > 0
            if begins and not words:
                self._held, self._fresh = line, True
                return kept
            if begins and words.strip() and len(line) - len(words) < self._limits.indent:
                self.over = True
                return kept
            kept += line
        self._fresh = False
        return kept


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a body asks for, whatever its dialect: answers to a prompt, as templates and the scheduler need it.

    `messages` are in the shape of chat templates, or `text` is continued as it is (a text, or ids), and so are `others`
    besides; `reusable_prefixes` are then the lengths of its beginnings that other prompts will probably share. `lines`
    end an answer by its lines.
    `tools` are the functions that may be called, in OpenAI's shape. `one_call`: at most one call an answer.
    `thinks` false asks the template to leave thinking out. `rounds`: the client wants to see every round.
    `shape` names the field that asks for the answer's shape. `choices` counts answers to each prompt, `stream` asks for
    them as they come.
    """

    request: Request
    messages: tuple[Mapping[str, Any], ...] = ()
    text: Prompt | None = None
    others: tuple[Prompt, ...] = ()
    reusable_prefixes: tuple[int, ...] = ()
    lines: LineLimits | None = None
    tools: tuple[Tool, ...] = ()
    must_call: tuple[str, ...] | None = None
    one_call: bool = False
    thinks: bool = True
    shape: str = "response_format"
    choices: int = 1
    stream: bool = False
    rounds: bool = False
    conversation_id: str | None = None
    endpoint: str = ""
    model: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """Whether the last message is a beginning of the answer."""
        return bool(self.messages) and self.messages[-1]["role"] == "assistant"

    @property
    def each(self) -> list[ChatRequest]:
        """The same of every prompt."""
        return [self, *(replace(self, text=text) for text in self.others)]


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


Delta = ReasoningDelta | TextDelta | Call


@dataclass(slots=True)
class Answer:
    """One answer so far; `feed` it the events of its job."""

    model: Model
    ask: ChatRequest
    prompt: tuple[int, ...]
    thinking: str = ""
    text: str = ""
    calls: list[Call] = field(default_factory=list)
    scores: list[TokenLogprob] = field(default_factory=list)
    rounds: list[RoundDone] = field(default_factory=list)
    prefill: Prefill | None = None
    finish: Finish | None = None
    failure: Failure | None = None
    _told_scores: int = 0
    _thinking: ThinkingStream | None = None
    _thought: ThinkingCount | None = None
    _calls: CallStream | None = None
    _lines: LineCutter | None = None

    def __post_init__(self) -> None:
        tags = self.model.thinking(self.prompt) if self.ask.text is None else None
        self._thinking = ThinkingStream(tags)
        self._thought = ThinkingCount(tags) if tags else None
        if self.ask.tools:
            self._calls = CallStream(self.model.tokenizer, self.ask.tools)
        if self.ask.lines is not None:
            self._lines = LineCutter(self.ask.lines)

    @property
    def over(self) -> bool:
        return self.finish is not None or self.failure is not None

    @property
    def full(self) -> bool:
        """Whether it holds all that may be said: further calls are not wanted, or its lines came to an end."""
        return self._called or (self._lines is not None and self._lines.over)

    @property
    def _called(self) -> bool:
        return self.ask.one_call and bool(self.calls)

    def feed(self, event: Event) -> list[Delta]:
        """The pieces that `event` made certain."""
        match event:
            case Prefill():
                self.prefill = event
            case RoundDone():
                self.scores += event.round.logprobs
                if self._thought is not None:
                    pieces = (*event.pieces[: event.round.accepted], event.next_piece)
                    self._thought.feed(pieces[: len(event.round.emitted)])
                if self.ask.rounds:
                    self.rounds.append(event)
                return self._said(event.text)
            case Finish():
                self.finish = event
                return self._said(event.text_tail, last=True)
            case Failure():
                self.failure = event
        return []

    def _said(self, text: str, last: bool = False) -> list[Delta]:
        """Raises: nothing; a broken call is text."""
        assert self._thinking is not None
        parts = self._thinking.feed(text) if text else []
        parts += self._thinking.finish() if last else []
        found: list[Delta] = []
        for thinks, part in parts:
            found += [ReasoningDelta(part)] if thinks else self._sorted(part)
        if last and self._calls is not None:
            found += [_piece(piece) for piece in self._calls.finish()]
        if last and self._lines is not None and (rest := self._lines.finish()):
            found.append(TextDelta(rest))
        return [piece for piece in found if self._keep(piece)]

    def _sorted(self, text: str) -> list[Delta]:
        if self._lines is not None:
            text = self._lines.feed(text)
            return [TextDelta(text)] if text else []
        return [TextDelta(text)] if self._calls is None else [_piece(piece) for piece in self._calls.feed(text)]

    def _keep(self, piece: Delta) -> bool:
        """Take it into the whole answer, unless no more calls are wanted."""
        if self._called:
            return False
        match piece:
            case ReasoningDelta(text):
                self.thinking += text
            case TextDelta(text):
                self.text += text
            case Call():
                self.calls.append(piece)
        return True

    def new_scores(self) -> list[TokenLogprob]:
        """The log-probabilities that came since the last call."""
        found, self._told_scores = self.scores[self._told_scores :], len(self.scores)
        return found

    @property
    def stats(self) -> Mapping[str, Any]:
        """The stats of its finish."""
        return self.finish.stats if self.finish else {}

    @property
    def emitted(self) -> int:
        """Tokens that were generated, the stop token included."""
        return int(self.stats.get("emitted_tokens", 0))

    @property
    def thought(self) -> int | None:
        """Tokens until the thinking was closed; None where nothing marks any."""
        return None if self._thought is None else self._thought.tokens

    @property
    def cached(self) -> int:
        """Tokens of the prompt that were in a cache."""
        return self.prefill.cached_tokens if self.prefill else 0

    @property
    def cut(self) -> bool:
        """Whether it ended because it may be no longer."""
        return self.finish is not None and self.finish.reason == "length"

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended it, if one did."""
        finish = self.finish
        if finish is None or finish.reason != "stop" or len(finish.tokens) < self.emitted:
            return None
        said = self.model.text(finish.tokens)
        hits = [(at + len(stop), -len(stop), stop) for stop in self.ask.request.stop if (at := said.find(stop)) >= 0]
        return min(hits)[2] if hits else None


def _piece(piece: str | Call) -> Delta:
    return TextDelta(piece) if isinstance(piece, str) else piece
