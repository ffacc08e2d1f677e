"""Every item of /v1/responses that OpenAI's SDK knows is read, or refused by its name."""

import json
import typing

import pytest
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from fakes.desk import ScriptedDesk
from fakes.server import local

HINTS = [typing.get_type_hints(member)["type"] for member in typing.get_args(ResponseInputItemParam)]
NAMES = {name for hint in HINTS for one in (hint, *typing.get_args(hint)) for name in typing.get_args(one) or (one,)}
SDK = sorted(name for name in NAMES if isinstance(name, str))
WORDS = "grass is green"
CALL = {"call_id": "1", "name": "read", "arguments": "{}", "input": WORDS}
# The members whose words a template takes; what it makes of thinking is its own affair.
READ = {
    "message": {"role": "assistant", "content": WORDS},
    "function_call": CALL,
    "custom_tool_call": CALL,
    "local_shell_call": {"call_id": "1", "action": {"type": "exec", "command": [WORDS]}},
    "function_call_output": {"call_id": "1", "output": WORDS},
    "custom_tool_call_output": {"call_id": "1", "output": WORDS},
    "local_shell_call_output": {"id": "1", "output": WORDS},
    "reasoning": {"id": "1", "summary": [], "content": [{"type": "reasoning_text", "text": WORDS}]},
}
USER = {"role": "user", "content": "Hi"}


@pytest.fixture
def sent(thinking):
    """Sends an item between two messages; the reply."""
    desk = ScriptedDesk(["ok"] * 4)
    with local(thinking, desk) as client:
        yield lambda *items: client.post("/v1/responses", json={"input": [USER, *items, USER]})
    desk.close()


def test_the_sdk_knows_the_members_that_are_read():
    assert READ.keys() < set(SDK) and len(SDK) > 25


@pytest.mark.parametrize("kind", READ)
def test_the_prompt_grows_with_an_item_that_is_read(sent, kind):
    reply, bare = (sent(*items).json()["usage"]["input_tokens"] for items in ([{"type": kind, **READ[kind]}], []))
    assert reply > bare


@pytest.mark.parametrize("kind", [*sorted({*SDK} - {*READ}), "of_next_year", 5, True, ["message"]])
def test_an_item_that_is_not_read_is_refused_by_its_kind(sent, kind):
    """`additional_tools`, `tool_search_output`, `shell_call_output`, `mcp_call` and more were a 200 without their
    functions and results."""
    reply = sent({"type": kind, "id": "1", "call_id": "1", "output": WORDS, "tools": []})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "input[1].type") and json.dumps(kind) in error["message"]
