"""OpenAI's /v1/chat/completions (pure): a body read, an answer said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_cli.events import RoundDone, TokenLogprob
from specdec_cli.fates import Judged, TokenStream
from specdec_cli.serve.http import voice
from specdec_cli.serve.http.answer import Answer, Piece, Said, Thought
from specdec_cli.serve.http.ask import Ask
from specdec_cli.serve.http.chunks import ChunkVoice
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.fields import Fields
from specdec_cli.serve.http.functions import openai_offer
from specdec_cli.serve.http.messages import openai_messages
from specdec_cli.serve.http.sampling import effort_thinks, predicted, request_of, shape_of
from specdec_cli.serve.http.scores import chat_scores
from specdec_cli.serve.http.tools import Call
from specdec_cli.serve.model import Model

MOST_CHOICES, MOST_TOP = 16, 20
UNKNOWN_HERE = {
    "functions": "it was replaced by tools",
    "function_call": "it was replaced by tool_choice",
    "audio": "the model writes text only",
    "web_search_options": "nothing is searched for here",
}


def read(body: Fields, model: Model) -> Ask:
    """What the body asks for. Raises: HttpError."""
    body.refuse(**UNKNOWN_HERE)
    if set(body.texts("modalities")) - {"text"}:
        raise bad_field("modalities", "the model writes text only")
    offer = openai_offer(body, nested=True)
    shape, constraint = shape_of(body)
    request = replace(
        request_of(body, model.base, model.vocab_size),
        constraint=constraint,
        logprobs=_top(body),
        predict=predicted(body),
    )
    return Ask(
        request=request,
        messages=tuple(openai_messages(body)),
        tools=offer.functions,
        must_call=offer.must,
        one_call=not body.flag("parallel_tool_calls", True),
        thinks=thinks(body, body.text("reasoning_effort")),
        shape=shape,
        choices=body.whole("n", 1, MOST_CHOICES) or 1,
        stream=body.flag("stream"),
        rounds=body.flag("specdec"),
        key=body.text("prompt_cache_key"),
        noun="chat/completions",
        extra={"usage": wants_usage(body)},
    )


def thinks(body: Fields, effort: str | None) -> bool:
    """Whether the template may let the model think: by the effort, or by what others send for it."""
    arguments = body.inner("chat_template_kwargs")
    if arguments is not None and arguments.has("enable_thinking"):
        return arguments.flag("enable_thinking")
    return effort_thinks(effort)


def wants_usage(body: Fields) -> bool:
    """Whether a stream ends with a chunk of the usage."""
    options = body.inner("stream_options")
    return options is not None and options.flag("include_usage")


def _top(body: Fields) -> int | None:
    """How many alternatives each token's log-probability comes with; None: it is not asked for."""
    top = body.whole("top_logprobs", 0, MOST_TOP)
    if body.flag("logprobs"):
        return top or 0
    if top:
        raise bad_field("top_logprobs", "it needs logprobs: true")
    return None


def reason(answer: Answer) -> str:
    """OpenAI's word for how it ended."""
    if answer.calls:
        return "tool_calls"
    return "length" if answer.cut else "stop"


@dataclass(slots=True)
class ChatVoice(ChunkVoice):
    """An answer as a `chat.completion`, or as its chunks."""

    chunk, object, prefix = "chat.completion.chunk", "chat.completion", "chatcmpl-"
    _calls: dict[int, int] = field(default_factory=dict)
    _tokens: defaultdict[int, TokenStream] = field(default_factory=lambda: defaultdict(TokenStream))

    def begin(self) -> bytes:
        """Whose words follow."""
        role = {"role": "assistant", "content": ""}
        return voice.joined(self._delta(choice, role) for choice in range(self.ask.choices))

    def show(self, choice: int, round: RoundDone) -> bytes:
        """As any round; the deltas after it say which of its tokens their text is from."""
        self._tokens[choice].expect(round)
        return ChunkVoice.show(self, choice, round)

    def say(self, choice: int, piece: Piece, answer: Answer) -> bytes:
        """A delta, or those of a call."""
        match piece:
            case Thought(text):
                delta: dict[str, Any] = {"reasoning_content": text}
            case Said(text):
                delta = {"content": text}
            case Call():
                return self._call(choice, piece)
        if self.ask.rounds:
            delta["specdec"] = _told(self._tokens[choice].feed(text))
        return self._delta(choice, delta, self._scores(answer, answer.new_scores()))

    def _call(self, choice: int, call: Call) -> bytes:
        place = self._calls.get(choice, 0)
        self._calls[choice] = place + 1
        head = {"index": place, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        pieces = [{"index": place, "function": {"arguments": piece}} for piece in call.pieces]
        return voice.joined(self._delta(choice, {"tool_calls": [one]}) for one in (head, *pieces))

    def close(self, choice: int, answer: Answer) -> bytes:
        """Why it ended."""
        scores = self._scores(answer, answer.new_scores())
        unsaid = _told(self._tokens[choice].rest())
        delta = {"specdec": unsaid} if unsaid else {}
        return self.finished(choice, answer, {"delta": delta, "logprobs": scores, "finish_reason": reason(answer)})

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """A message each."""
        choices = [
            {
                "index": choice,
                "message": message_of(answer),
                "logprobs": self._scores(answer, answer.scores),
                "finish_reason": reason(answer),
            }
            for choice, answer in enumerate(answers)
        ]
        return self.complete(choices, answers)

    def _delta(self, choice: int, delta: dict[str, Any], scores: dict[str, Any] | None = None) -> bytes:
        return self.event([{"index": choice, "delta": delta, "logprobs": scores, "finish_reason": None}])

    def _scores(self, answer: Answer, scores: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self.ask.request.logprobs is None:
            return None
        return {"content": chat_scores(answer.model.tokenizer, scores), "refusal": None}


def _told(tokens: Sequence[Judged]) -> list[tuple[str, str]]:
    """[fate, text] of each; the texts of those that are neither rejected nor discarded are the delta's."""
    return [(token.fate.value, token.piece) for token in tokens]


def message_of(answer: Answer) -> dict[str, Any]:
    """The whole message; its content is null where there are only calls."""
    found: dict[str, Any] = {"role": "assistant", "content": answer.text or (None if answer.calls else "")}
    if answer.thinking:
        found["reasoning_content"] = answer.thinking
    if answer.calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    return found
