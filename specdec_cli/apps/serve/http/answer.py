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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_cli.apps.serve.model import Model
from specdec_cli.core.events import Event, Failure, Finish, Prefill, RoundDone, TokenLogprob
from specdec_cli.core.request import Request
from specdec_cli.core.template import NO_VALUES, TemplateValues
from specdec_cli.models.call_forms import END, CallReader
from specdec_cli.models.text import ThinkingCount, ThinkingStream
from specdec_cli.models.tool_calls import MarkedCalls, Piece, ToolCall

Tool = Mapping[str, Any]
Prompt = str | tuple[int, ...]
LETTERS = string.ascii_letters + string.digits
# Templates of Mistral's refuse ids of any other length; everybody else takes what comes.
ID_LENGTH = 9


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function that the model wants called, with the JSON of its arguments."""

    id: str
    name: str
    arguments: str

    @classmethod
    def of(cls, found: ToolCall) -> Call:
        """Of one that JSON can say, as all that are read."""
        arguments = json.dumps(found.arguments, ensure_ascii=False, allow_nan=False)
        return cls("".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH)), found.name, arguments)

    @property
    def pieces(self) -> list[str]:
        """The arguments as a stream carries them."""
        return [self.arguments[at : at + 64] for at in range(0, len(self.arguments), 64)]


Delta = ReasoningDelta | TextDelta | Call


def _delta(piece: Piece) -> Delta:
    if isinstance(piece, ToolCall):
        return Call.of(piece)
    return (ReasoningDelta if piece[0] == "thinking" else TextDelta)(piece[1])


@dataclass(frozen=True, slots=True)
class LineLimits:
    """llama.cpp's `n_indent` and `t_max_predict_ms`, for editors; 0 is no limit.

    A line with less than `indent` blanks before it ends the answer, and so does one that ends after `seconds`. The
    first line goes on with one that is there already, so its blanks say nothing.
    """

    indent: int = 0
    seconds: float = 0.0


class LineCutter:
    """Ends an answer by its lines: takes text as it comes and holds back the blanks that begin a line.

    `over` once it came to an end.
    """

    def __init__(self, limits: LineLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._short = re.compile(rf"(?<=\n)(?![ \t]{{{limits.indent}}})(?=[ \t]*\S)")
        self._began: float | None = None
        self._text, self._told = "", 0
        self.over = False

    def feed(self, text: str) -> Iterator[Piece]:
        """The text that may be shown; none once it is over."""
        if self.over or not text:
            return
        self._began = self._clock() if self._began is None else self._began
        self._text += text
        late = self._limits.seconds and self._clock() - self._began > self._limits.seconds
        end = len(self._text)
        if self._limits.indent:
            end = len(self._text.rstrip(" \t")) if re.search(r"\n[ \t]*$", self._text) else end
            if short := self._short.search(self._text):
                self.over, end = True, short.start()
        if late and not self.over and "\n" in self._text[self._told : end]:
            self.over, end = True, self._text.rindex("\n", self._told, end)
        yield from self._tell(end)

    def finish(self, cut: bool = False) -> Iterator[Piece]:
        """What was held back."""
        if not self.over:
            yield from self._tell(len(self._text))

    def _tell(self, end: int) -> list[Piece]:
        text, self._told = self._text[self._told : end], max(end, self._told)
        return [("text", text)] if text else []


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a body asks for, whatever its dialect: answers to a prompt, as templates and the scheduler need it.

    `messages` are in the shape of chat templates, or `text` is continued as it is (a text, or ids), and so are `others`
    besides; `source` names the field that they came in. `reusable_prefixes` are then the lengths of its beginnings that
    other prompts will probably share. `lines` end an answer by its lines.
    `tools` are the functions that may be called, in OpenAI's shape; of `must_call` one has to be. `one_call`: at most
    one call an answer. `template` is what the template is asked beside them. `rounds`: the client wants to see every
    round. `shape` names the field that asks for the answer's shape. `choices` counts answers to each prompt, `stream`
    asks for them as they come. Of the prompt only the last `truncated` tokens are read; -1: what fits. `unloads` and
    `open_ended`: as a job's.
    """

    request: Request
    messages: tuple[Mapping[str, Any], ...] = ()
    text: Prompt | None = None
    others: tuple[Prompt, ...] = ()
    source: str = "messages"
    reusable_prefixes: tuple[int, ...] = ()
    lines: LineLimits | None = None
    tools: tuple[Tool, ...] = ()
    must_call: tuple[str, ...] | None = None
    one_call: bool = False
    template: TemplateValues = NO_VALUES
    shape: str = "response_format"
    choices: int = 1
    stream: bool = False
    rounds: bool = False
    conversation_id: str | None = None
    truncated: int | None = None
    endpoint: str = ""
    model: str = ""
    unloads: bool = False
    open_ended: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """Whether the last message is a beginning of the answer."""
        turn = self.template.turn
        return turn == "last" or (turn is None and bool(self.messages) and self.messages[-1]["role"] == "assistant")

    @property
    def each(self) -> list[ChatRequest]:
        """The same of every prompt."""
        return [self, *(replace(self, text=text) for text in self.others)]


@dataclass(slots=True)
class ServedAnswer:
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
    _last: tuple[int, ...] = ()
    _thinking: ThinkingStream = field(init=False)
    _thought: ThinkingCount | None = None
    _reader: CallReader | LineCutter | None = None

    def __post_init__(self) -> None:
        tags = self.model.tokenizer.thinking(self.prompt) if self.ask.text is None else None
        form = self.model.tokenizer.call_form if self.ask.text is None else None
        call = form.begins if isinstance(form, MarkedCalls) and self.ask.tools else ""
        self._thinking = ThinkingStream(None if form is not None and form.thinks else tags, call)
        if tags is not None:  # a turn may end with a call, and an answer never begin
            self._thought = ThinkingCount(replace(tags, end=END) if form is not None and form.thinks else tags, call)
        if form is not None and (form.thinks or self.ask.tools):
            self._reader = form.reader(self.ask.tools)
        elif self.ask.lines is not None:
            self._reader = LineCutter(self.ask.lines)

    @property
    def over(self) -> bool:
        return self.finish is not None or self.failure is not None

    @property
    def full(self) -> bool:
        """Whether it holds all that may be said: further calls are not wanted, or its lines came to an end."""
        return self._called or (isinstance(self._reader, LineCutter) and self._reader.over)

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
                self._last = event.round.emitted[-1:]
                if self._thought is not None:
                    pieces = (*event.pieces[: event.round.accepted], event.next_piece)
                    self._thought.feed(pieces[: len(event.round.emitted)])
                if self.ask.rounds:
                    self.rounds.append(event)
                return [delta for delta in self._deltas(event.text) if self._keep(delta)]
            case Finish():
                self.finish = event
                if self._thought is not None:
                    self._thought.finish(not self._ended)
                return [delta for delta in self._deltas(event.text_tail, last=True) if self._keep(delta)]
            case Failure():
                self.failure = event
        return []

    def _deltas(self, text: str, last: bool = False) -> Iterator[Delta]:
        """Raises: nothing; a broken call is text."""
        parts = self._thinking.feed(text) if text else []
        parts += self._thinking.finish(not self._ended) if last else []
        for thinks, part in parts:
            if thinks:
                yield ReasoningDelta(part)
            elif self._reader is not None:
                yield from map(_delta, self._reader.feed(part))
            else:
                yield TextDelta(part)
        if last and self._reader is not None:
            yield from map(_delta, self._reader.finish(not self._ended))

    def _keep(self, delta: Delta) -> bool:
        """Take it into the whole answer, unless no more calls are wanted."""
        if self._called:
            return False
        match delta:
            case ReasoningDelta(text):
                self.thinking += text
            case TextDelta(text):
                self.text += text
            case Call():
                self.calls.append(delta)
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
    def from_disk(self) -> int:
        """Those of them that came from disk."""
        return self.prefill.disk_tokens if self.prefill else 0

    @property
    def cut(self) -> bool:
        """Whether it ended because it may be no longer."""
        return self.finish is not None and self.finish.reason == "length"

    @property
    def _ended(self) -> bool:
        """Whether the model ended it: neither a limit, nor a stop of the client's, nor the client cut it."""
        cuts = {*self.ask.request.stop_tokens} - self.model.tokenizer.stop_tokens
        stopped = self.finish is not None and self.finish.reason == "stop" and self.stop_string is None
        return stopped and cuts.isdisjoint(self._last)

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended it, if one did."""
        finish = self.finish
        if finish is None or finish.reason != "stop" or len(finish.tokens) < self.emitted:
            return None
        said = self.model.text(finish.tokens)
        hits = [(at + len(stop), -len(stop), stop) for stop in self.ask.request.stop if (at := said.find(stop)) >= 0]
        return min(hits)[2] if hits else None
