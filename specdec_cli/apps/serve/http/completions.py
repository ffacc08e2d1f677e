"""OpenAI's /v1/chat/completions and /v1/completions (pure): a body read, an answer written, whole or in chunks."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal

from pydantic import FailFast, Field, Tag

from specdec_cli.apps.serve.http import reading
from specdec_cli.apps.serve.http.answer import Call, ChatRequest, Delta, Prompt, ReasoningDelta, ServedAnswer, TextDelta
from specdec_cli.apps.serve.http.contents import Content, Thought, joined_text, require_readable, text_of
from specdec_cli.apps.serve.http.dialect import Dialect, event, new_id, round_values, timings, usage
from specdec_cli.apps.serve.http.errors import HttpError, bad_field
from specdec_cli.apps.serve.http.schema import (
    FEW,
    MOST_CHOICES,
    Arguments,
    Asked,
    Body,
    Choices,
    Format,
    Reasoning,
    Schema,
    Texts,
    Top,
    Whole,
    by,
    parse,
    refused,
)
from specdec_cli.apps.serve.http.tools import openai_offer
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.events import RoundDone, TokenLogprob, to_dict
from specdec_cli.core.judged import Judged, TokenStream
from specdec_cli.core.request import Constraint
from specdec_cli.core.template import TemplateValues, Turn
from specdec_cli.models.fill import FAMILIES, Fill, Filling, Gap
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.turns import Message

# Shapes in GBNF or EBNF, by the names that others have for them.
GRAMMARS = dict.fromkeys(
    ("grammar", "guided_grammar", "ebnf", "structural_tag"),
    "grammars are not kept; ask for a schema, a guided_regex or a choice",
)


class CalledFunction(Body):
    name: str
    arguments: Arguments = ""


class EarlierCall(Body):
    id: str = ""
    function: CalledFunction


class ToldMessage(Body):
    """What the system or the user says; a role of any other name is refused here."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = []

    def read(self) -> Message:
        """As templates take it."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text_of(self.content)}


class AssistantMessage(Body):
    content: Content = []
    reasoning_content: str = ""
    reasoning: str = ""
    tool_calls: Annotated[list[EarlierCall], FailFast(), FEW] = []
    audio: Annotated[None, refused("it refers to stored data; send its text as content")] = None
    function_call: CalledFunction | None = None

    def read(self) -> Message:
        """As templates take it."""
        calls = [(one.id or one.function.name, one.function) for one in self.tool_calls]
        calls += [(self.function_call.name, self.function_call)] if self.function_call else []
        thoughts = joined_text(*(part.thought for part in self.content if isinstance(part, Thought)))
        return reading.assistant(
            text_of(self.content),
            self.reasoning_content or self.reasoning or thoughts,
            [reading.call(identity, function.name, function.arguments) for identity, function in calls],
        )


class ToolMessage(Body):
    content: Content = []
    tool_call_id: str = ""
    name: str = ""

    def read(self) -> Message:
        """As templates take it."""
        return reading.result(self.tool_call_id, text_of(self.content), self.name)


ChatMessage = Annotated[
    Annotated[ToldMessage, Tag("<told>")]
    | Annotated[AssistantMessage, Tag("<assistant>")]
    | Annotated[ToolMessage, Tag("<tool>")],
    by("role", {"assistant": "<assistant>", "tool": "<tool>", "function": "<tool>"}, "<told>"),
]


class StreamOptions(Body):
    include_usage: bool = False


class StructuredOutputs(Body):
    """vLLM's name for shapes."""

    REFUSED, PATH = GRAMMARS, "structured_outputs."
    schema_: Schema | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: Texts | None = None


class Shaped(Asked):
    """Of OpenAI's two older endpoints: several answers, and one's shape by the names of llama.cpp, vLLM and SGLang."""

    REFUSED = {**Asked.REFUSED, **GRAMMARS}
    n: Choices = 1
    response_format: Format | None = None
    json_schema: Schema | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    regex: str | None = None
    guided_choice: Texts | None = None
    structured_outputs: StructuredOutputs = StructuredOutputs()
    stream_options: StreamOptions = StreamOptions()


def shape_of(body: Shaped) -> tuple[str, Constraint | None]:
    """(the field, its shape): `response_format`, or what llama.cpp, vLLM and SGLang call it. Raises: HttpError."""
    nested = body.structured_outputs
    given: dict[str, Constraint | None] = {
        "response_format": reading.constraint_of(body.response_format, "response_format"),
        "json_schema": reading.shape("schema", body.json_schema),
        "guided_json": reading.shape("schema", body.guided_json),
        "guided_regex": reading.shape("regex", body.guided_regex),
        "regex": reading.shape("regex", body.regex),
        "guided_choice": reading.shape("choice", body.guided_choice),
        "structured_outputs.json": reading.shape("schema", nested.schema_),
        "structured_outputs.regex": reading.shape("regex", nested.regex),
        "structured_outputs.choice": reading.shape("choice", nested.choice),
    }
    shapes = {name: shape for name, shape in given.items() if shape is not None}
    if len(shapes) > 1:
        first, second, *_ = shapes
        raise bad_field(second, f"an answer can have one constraint, and {first} already sets it")
    return next(iter(shapes.items()), ("response_format", None))


class ChatBody(Shaped):
    """Of /v1/chat/completions, and of /apply-template."""

    REFUSED = {
        **Shaped.REFUSED,
        "functions": "it was replaced by tools",
        "function_call": "it was replaced by tool_choice",
        "audio": "the model writes text only",
        "web_search_options": "nothing is searched for here",
    }
    messages: Annotated[list[ChatMessage], FailFast(), FEW] = []
    logprobs: bool = False
    top_logprobs: Top = None
    reasoning_effort: str | None = None
    reasoning: Reasoning = Reasoning()
    enable_thinking: bool | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None

    @property
    def template(self) -> TemplateValues:
        """What the template is asked beside messages and tools. Raises: HttpError."""
        goes_on, opens = self.continue_final_message, self.add_generation_prompt
        if goes_on and opens:
            raise bad_field("continue_final_message", "add_generation_prompt opens another message")
        turn: Turn | None = None
        if goes_on is not None or opens is not None:
            turn = "last" if goes_on else "none" if opens is False else "answer"
        effort, thinks = self.reasoning_effort or self.reasoning.effort, self.enable_thinking
        values = TemplateValues.of_effort(effort, self.chat_template_kwargs, turn)
        thinks = self.reasoning.enabled if thinks is None else thinks
        return values if thinks is None else replace(values, thinks=thinks)


class TextBody(Shaped):
    """Of /v1/completions; `prompt` is a text, ids, or a list of either."""

    REFUSED = {
        **Shaped.REFUSED,
        "echo": "the prompt is not repeated, nor are its tokens scored; put it before the answer yourself",
    }
    prompt: Any = None
    suffix: str = ""
    best_of: Annotated[Whole | None, Field(ge=1, le=MOST_CHOICES)] = None
    logprobs: Top = None


def read_chat(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(ChatBody, values)
    shape, constraint = shape_of(body)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return reading.chat_request(
        body,
        model,
        "chat/completions",
        {"constraint": constraint, "logprobs": logprobs},
        openai_offer(body, nested=True),
        messages=messages_of(body),
        template=body.template,
        shape=shape,
        choices=body.n,
        extra={"usage": body.stream_options.include_usage},
    )


def messages_of(body: ChatBody) -> tuple[Message, ...]:
    """The `messages` as templates take them. Raises: HttpError."""
    if not body.messages:
        raise bad_field("messages", "it is empty, but at least one message is expected")
    told = [place for place, message in enumerate(body.messages) if isinstance(message, ToldMessage)]
    for place in told[-1:]:
        require_readable(body.messages[place].content, f"messages[{place}].content")
    return reading.conversation([message.read() for message in body.messages])


def read_text(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(TextBody, values)
    if body.best_of not in (None, body.n):
        raise bad_field("best_of", f"{body.best_of} answers to choose {body.n} from are not supported; use n")
    shape, constraint = shape_of(body)
    (text, *others), prefixes, stops = _prompts(body, model)
    return reading.chat_request(
        body,
        model,
        "completions",
        {"constraint": constraint, "logprobs": body.logprobs, "stop_tokens": stops},
        text=text,
        others=tuple(others),
        source="prompt",
        reusable_prefixes=prefixes,
        shape=shape,
        choices=body.n,
        extra={"usage": body.stream_options.include_usage},
    )


def _prompts(body: TextBody, model: Model) -> tuple[list[Prompt], tuple[int, ...], tuple[int, ...]]:
    """(texts or ids, lengths of what others share of them, tokens that end the answer)."""
    value = body.prompt
    several = isinstance(value, list) and value and isinstance(value[0], str | list)
    if several and body.n * len(value) > MOST_CHOICES:
        raise bad_field("prompt", f"{body.n * len(value)} answers, but at most {MOST_CHOICES} are generated at once")
    prompts = [
        one if isinstance(one, str) else token_ids("prompt", one, model) for one in (value if several else [value])
    ]
    if not body.suffix:
        return prompts, (), ()
    if len(prompts) > 1 or not isinstance(prompts[0], str):
        raise bad_field("suffix", "it goes with a prompt that is one text")
    filling, stops = fill_in("suffix", Gap(prompts[0], body.suffix), model)
    return [filling.tokens], filling.ends, stops


def token_ids(name: str, value: Any, model: Model) -> tuple[int, ...]:
    """Ids of the model's vocabulary. Raises: HttpError."""
    if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise bad_field(name, "a text, a list of token ids, or a list of either is expected")
    if foreign := [one for one in value if not 0 <= one < model.vocab_size]:
        raise bad_field(name, f"there is no token {str(foreign[0])[:20]}: the model has {model.vocab_size}")
    return tuple(value)


def fill_in(name: str, gap: Gap, model: Model) -> tuple[Filling, tuple[int, ...]]:
    """(the prompt, the tokens that end its answer). Raises: HttpError, with the field `name`, where none can be."""
    fill = Fill.of(model.tokenizer)
    if fill is None:
        known = ", ".join(dict.fromkeys(family.prefix for family in FAMILIES))
        raise bad_field(name, f"{model.name} has no fill-in-the-middle tokens: it needs one of {known}")
    return fill.prompt(gap), fill.stop_tokens


@dataclass(slots=True)
class ChunkDialect(Dialect):
    """What OpenAI's two older endpoints have in common: chunks with choices, and a last one with the sums."""

    chunk: ClassVar[str]
    object: ClassVar[str]
    prefix: ClassVar[str]
    created: int = field(default_factory=lambda: int(time.time()))
    id: str = ""

    def __post_init__(self) -> None:
        self.id = new_id(self.prefix)

    @abstractmethod
    def last(self, choice: int) -> dict[str, Any]:
        """What the last chunk of a choice still says."""

    @abstractmethod
    def content(self, answer: ServedAnswer) -> dict[str, Any]:
        """The whole answer."""

    @abstractmethod
    def table(self, choice: int, tokenizer: Tokenizer, scores: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Log-probabilities of the next tokens of a choice, the stop token included where it was generated."""

    def read(self, answer: ServedAnswer) -> bytes:
        """How much was read, for clients that asked to see what happens; nobody else waits for it."""
        shown = self.ask.rounds and answer.prefill
        return self.event([], specdec=to_dict(shown)) if shown else b""

    def show(self, choice: int, round: RoundDone) -> bytes:
        return self.event([], specdec={**round_values(round), "choice": choice})

    def close(self, choice: int, answer: ServedAnswer) -> bytes:
        """Why it ended; a single choice has the timings."""
        timed = {"timings": timings([answer])} if self.ask.choices == 1 else {}
        last = self.choice(choice, self.last(choice), answer, answer.new_scores(), reason(answer))
        return self.event([last], **timed)

    def end(self, answers: Sequence[ServedAnswer]) -> bytes:
        """The sums, where they were asked for."""
        sums = {"usage": usage(answers), "timings": timings(answers)} if self.ask.extra.get("usage") else None
        return (self.event([], **sums) if sums else b"") + b"data: [DONE]\n\n"

    def failed(self, error: HttpError) -> bytes:
        return Dialect.failed(self, error) + b"data: [DONE]\n\n"

    def whole(self, answers: Sequence[ServedAnswer]) -> dict[str, Any]:
        choices = [
            self.choice(choice, self.content(answer), answer, answer.scores, reason(answer))
            for choice, answer in enumerate(answers)
        ]
        found = {**self._head(self.object), "choices": choices, "usage": usage(answers), "timings": timings(answers)}
        rounds = [round_values(round) for answer in answers for round in answer.rounds]
        return found | ({"specdec": rounds} if self.ask.rounds else {})

    def choice(
        self,
        choice: int,
        said: dict[str, Any],
        answer: ServedAnswer,
        scores: Sequence[TokenLogprob],
        reason: str | None,
    ) -> dict[str, Any]:
        """One entry of `choices`."""
        table = None if self.ask.request.logprobs is None else self.table(choice, answer.model.tokenizer, scores)
        return {"index": choice, **said, "logprobs": table, "finish_reason": reason}

    def event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        """One chunk; where the sums come in the last one, the others say that they have none."""
        none = {"usage": None} if self.ask.extra.get("usage") else {}
        return event({**self._head(self.chunk), "choices": choices, **none, **more})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.ask.model}


def reason(answer: ServedAnswer) -> str:
    """OpenAI's word for how an answer ended."""
    return "tool_calls" if answer.calls else "length" if answer.cut else "stop"


def finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI says -9999 for it."""
    return max(logprob, -9999.0)


@dataclass(slots=True)
class ChatDialect(ChunkDialect):
    """An answer as a `chat.completion`, or as its chunks."""

    chunk, object, prefix = "chat.completion.chunk", "chat.completion", "chatcmpl-"
    _calls: dict[int, int] = field(default_factory=dict)
    _tokens: defaultdict[int, TokenStream] = field(default_factory=lambda: defaultdict(TokenStream))

    def begin(self) -> bytes:
        """Whose words follow."""
        role = {"role": "assistant", "content": ""}
        return b"".join(self._delta(choice, role) for choice in range(self.ask.choices))

    def show(self, choice: int, round: RoundDone) -> bytes:
        """As any round; the deltas after it say which of its tokens their text is from."""
        self._tokens[choice].expect(round)
        return ChunkDialect.show(self, choice, round)

    def say(self, choice: int, delta: Delta, answer: ServedAnswer) -> bytes:
        """A chunk, or those of a call."""
        match delta:
            case ReasoningDelta(text):
                said: dict[str, Any] = {"reasoning_content": text}
            case TextDelta(text):
                said = {"content": text}
            case Call():
                return self._call(choice, delta)
        if self.ask.rounds:
            said["specdec"] = _fates(self._tokens[choice].feed(text))
        return self.event([self.choice(choice, {"delta": said}, answer, answer.new_scores(), None)])

    def _call(self, choice: int, call: Call) -> bytes:
        place = self._calls.get(choice, 0)
        self._calls[choice] = place + 1
        head = {"index": place, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        pieces = [{"index": place, "function": {"arguments": piece}} for piece in call.pieces]
        return b"".join(self._delta(choice, {"tool_calls": [one]}) for one in (head, *pieces))

    def _delta(self, choice: int, delta: dict[str, Any]) -> bytes:
        return self.event([{"index": choice, "delta": delta, "logprobs": None, "finish_reason": None}])

    def last(self, choice: int) -> dict[str, Any]:
        unsaid = _fates(self._tokens[choice].rest())
        return {"delta": {"specdec": unsaid} if unsaid else {}}

    def content(self, answer: ServedAnswer) -> dict[str, Any]:
        """The whole message; its content is null where there are only calls."""
        found: dict[str, Any] = {"role": "assistant", "content": answer.text or (None if answer.calls else "")}
        if answer.thinking:
            found["reasoning_content"] = answer.thinking
        if answer.calls:
            found["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in answer.calls
            ]
        return {"message": found}

    def table(self, choice: int, tokenizer: Tokenizer, scores: Sequence[TokenLogprob]) -> dict[str, Any]:
        """One entry a token, each with its best alternatives."""

        def entry(token: int, logprob: float) -> dict[str, Any]:
            spelled = tokenizer.table().tokens.get(token, b"")
            return {"token": tokenizer.piece(token), "logprob": finite(logprob), "bytes": list(spelled)}

        content = [
            {**entry(score.token, score.logprob), "top_logprobs": [entry(*top) for top in score.top]}
            for score in scores
        ]
        return {"content": content, "refusal": None}


def _fates(tokens: Sequence[Judged]) -> list[tuple[str, str]]:
    """[kind, text] of each; the texts of those that are neither rejected nor discarded are the delta's."""
    return [(token.kind.value, token.piece) for token in tokens]


@dataclass(slots=True)
class TextDialect(ChunkDialect):
    """An answer as a `text_completion`, or as its chunks."""

    chunk, object, prefix = "text_completion", "text_completion", "cmpl-"
    _told: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))

    def say(self, choice: int, delta: Delta, answer: ServedAnswer) -> bytes:
        assert isinstance(delta, TextDelta)
        return self.event([self.choice(choice, {"text": delta.text}, answer, answer.new_scores(), None)])

    def last(self, choice: int) -> dict[str, Any]:
        return {"text": ""}

    def content(self, answer: ServedAnswer) -> dict[str, Any]:
        return {"text": answer.text}

    def table(self, choice: int, tokenizer: Tokenizer, scores: Sequence[TokenLogprob]) -> dict[str, Any]:
        texts = [tokenizer.piece(score.token) for score in scores]
        *offsets, self._told[choice] = accumulate(map(len, texts), initial=self._told[choice])
        tops = [{tokenizer.piece(token): finite(logprob) for token, logprob in score.top} for score in scores]
        return {
            "tokens": texts,
            "token_logprobs": [finite(score.logprob) for score in scores],
            "top_logprobs": tops,
            "text_offset": offsets,
        }
