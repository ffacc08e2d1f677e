"""OpenAI's /v1/chat/completions (pure): a body read, an answer written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec_cli.events import RoundDone, TokenLogprob
from specdec_cli.fates import Judged, TokenStream
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.serve.http.answer import Answer, Call, ChatRequest, Delta, ReasoningDelta, TextDelta
from specdec_cli.serve.http.dialect import ChunkDialect, finite
from specdec_cli.serve.http.errors import bad_field
from specdec_cli.serve.http.messages import Message, assistant, call, conversation, result, role_of, text_of
from specdec_cli.serve.http.sampling import chat_request, request_of, shape_of, thinks
from specdec_cli.serve.http.schema import ChatBody, Part, parse, required
from specdec_cli.serve.http.tools import openai_offer
from specdec_cli.serve.model import Model

ROLES = ("system", "developer", "user", "assistant", "tool")


def read(values: Mapping[str, Any], model: Model) -> ChatRequest:
    """What the body asks for. Raises: HttpError."""
    body = parse(ChatBody, values)
    if set(body.modalities) - {"text"}:
        raise bad_field("modalities", "the model writes text only")
    if body.top_logprobs and not body.logprobs:
        raise bad_field("top_logprobs", "it needs logprobs: true")
    shape, constraint = shape_of(body)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return chat_request(
        body,
        model,
        "chat/completions",
        request_of(body, model.base, model.vocab_size, constraint=constraint, logprobs=logprobs),
        openai_offer(body, nested=True),
        messages=messages_of(body),
        thinks=thinks(body.chat_template_kwargs, body.reasoning_effort),
        shape=shape,
        choices=body.n,
        extra={"usage": body.stream_options.include_usage},
    )


def messages_of(body: ChatBody) -> tuple[Message, ...]:
    """The `messages` as templates take them. Raises: HttpError."""
    found = [_message(one, f"messages[{place}]") for place, one in enumerate(body.messages)]
    if not found:
        raise bad_field("messages", "it is empty, and at least one message is expected")
    return conversation(found)


def _message(one: Part, path: str) -> Message:
    role = role_of(one, ROLES, path)
    text = text_of(one.content, f"{path}.content", notes=role == "tool")
    if role == "tool":
        return result(one.tool_call_id, text)
    if role != "assistant":
        return {"role": role, "content": text}
    calls = []
    for place, each in enumerate(one.tool_calls):
        function = each.function or Part()
        name = required(function.name, f"{path}.tool_calls[{place}].function.name")
        calls.append(call(each.id or "", name, function.arguments))
    return assistant(text, one.reasoning_content, calls)


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

    def say(self, choice: int, delta: Delta, answer: Answer) -> bytes:
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

    def content(self, answer: Answer) -> dict[str, Any]:
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

    def table(self, tokenizer: Tokenizer, scores: Sequence[TokenLogprob]) -> dict[str, Any]:
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
    """[fate, text] of each; the texts of those that are neither rejected nor discarded are the delta's."""
    return [(token.fate.value, token.piece) for token in tokens]
