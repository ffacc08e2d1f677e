"""What the two SDKs can ask for beyond an answer: each is taken, or refused in words that `specdec help serve` has."""

from contextlib import contextmanager
from pathlib import Path

import anthropic
import openai
import pytest

import specdec_cli
from fakes.desk import ScriptedDesk
from fakes.server import serving

DOCUMENT = " ".join((Path(specdec_cli.__file__).parent / "docs/serve.md").read_text("utf-8").lower().split())
HI = [{"role": "user", "content": "Hi"}]
PICTURE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
URL = {"url": "data:image/png;base64,iVBORw0KGgo="}
SHAPE = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALLED = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}


def user(*blocks):
    return [{"role": "user", "content": list(blocks)}]


def result(*blocks):
    return [*HI, CALLED, *user({"type": "tool_result", "tool_use_id": "1", "content": list(blocks)})]


def text_document(source):
    return {"type": "document", "source": source}


# Where, what is asked; then what of it is refused, and where the document says so.
CHAT, COMPLETE, RESPOND, MESSAGE = (
    "chat.completions.create",
    "completions.create",
    "responses.create",
    "messages.create",
)
TAKEN = [
    (CHAT, {"messages": HI}),
    (CHAT, {"messages": HI, "stream": True}),
    (CHAT, {"messages": HI, "n": 2}),
    (CHAT, {"messages": HI, "max_tokens": 0}),
    (CHAT, {"messages": HI, "logit_bias": {"65": 2}}),
    (CHAT, {"messages": HI, "reasoning_effort": "none"}),
    (CHAT, {"messages": HI, "prediction": {"type": "content", "content": "ok"}}),
    (CHAT, {"messages": [*HI, {"role": "assistant", "content": "o"}]}),
    (CHAT, {"messages": HI, "tools": [FUNCTION], "tool_choice": "auto"}),
    (CHAT, {"messages": [{"role": "developer", "content": "Be brief."}, *HI]}),
    (COMPLETE, {"prompt": "Hi"}),
    (COMPLETE, {"prompt": ["Hi", "Ho"]}),
    (COMPLETE, {"prompt": "Hi", "max_tokens": 0}),
    (RESPOND, {"input": "Hi"}),
    (RESPOND, {"input": "Hi", "stream": True}),
    (RESPOND, {"input": "Hi", "instructions": "Be brief.", "store": False}),
    (MESSAGE, {"messages": HI, "max_tokens": 9}),
    (MESSAGE, {"messages": HI, "max_tokens": 9, "stream": True}),
    (MESSAGE, {"messages": HI, "max_tokens": 9, "tools": [TOOL]}),
    (MESSAGE, {"messages": [*HI, {"role": "assistant", "content": "o"}], "max_tokens": 9}),
    (MESSAGE, {"messages": result({"type": "image", "source": PICTURE}), "max_tokens": 9}),
    (MESSAGE, {"messages": result(text_document({"type": "text", "media_type": "text/plain", "data": "a"})),
               "max_tokens": 9}),
    ("messages.count_tokens", {"messages": HI}),
    ("models.list", {}),
]  # fmt: skip
REFUSED = [
    (CHAT, {"messages": user({"type": "image_url", "image_url": URL})}, 400, "images, sound and files from the user"),
    (CHAT, {"messages": user({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}})}, 400,
     "images, sound and files from the user"),
    (CHAT, {"messages": HI, "tools": [{"type": "custom", "custom": {"name": "f"}}]}, 400,
     "tools that are no functions"),
    (CHAT, {"messages": HI, "extra_body": {"grammar": "root ::= x"}}, 400, "`grammar`, `guided_grammar`"),
    (CHAT, {"messages": [*HI, {"role": "assistant", "content": "{"}], "response_format": SHAPE}, 400,
     "or one beside a beginning of an answer"),
    (COMPLETE, {"prompt": "Hi", "echo": True}, 400, "`echo`"),
    (COMPLETE, {"prompt": "Hi", "best_of": 3}, 400, "`best_of` above `n`"),
    (RESPOND, {"input": "Hi", "previous_response_id": "resp_1"}, 400, "`previous_response_id`"),
    (RESPOND, {"input": "Hi", "tools": [{"type": "web_search"}]}, 400, "`web_search`"),
    ("responses.compact", {"input": "Hi"}, 404, "`responses/compact`"),
    ("responses.input_tokens.count", {"input": "Hi"}, 404, "`responses/input_tokens`"),
    ("embeddings.create", {"input": "Hi"}, 404, "embeddings"),
    (MESSAGE, {"messages": user({"type": "image", "source": PICTURE}), "max_tokens": 9}, 400,
     "images, sound and files from the user"),
    (MESSAGE, {"messages": user(text_document({"type": "url", "url": "https://x.y/z.pdf"})), "max_tokens": 9}, 400,
     "images, sound and files from the user"),
]  # fmt: skip


@contextmanager
def clients(tooled):
    desk = ScriptedDesk(["ok"] * 100)
    with (
        serving(tooled, desk) as (url, _),
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as gpt,
        anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as claude,
    ):
        yield gpt, claude
    desk.close()


def ask(both, method, given):
    found = both[method.startswith("messages")]
    for name in method.split("."):
        found = getattr(found, name)
    answer = found(**({} if method.startswith("models") else {"model": "default"}), **given)
    return list(answer) if given.get("stream") else answer


def test_each_thing_asked_for_is_taken_or_refused_as_the_document_says(tooled):
    with clients(tooled) as both:
        for method, given in TAKEN:
            assert ask(both, method, given), (method, given)
        for method, given, status, words in REFUSED:
            assert words in DOCUMENT, words
            with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as error:
                ask(both, method, given)
            assert error.value.status_code == status, (method, given, error.value)
