"""Golden (h): what a body over HTTP may not ask for, in one table: its path, fields, and the words of the 400.

`data/bodies.txt` has a heading for each path, and below it fields beside those that a body there must have, with what
is told: the field, which OpenAI's clients read apart, and the message. To add one, write the fields and record.
"""

from __future__ import annotations

import json

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local
from fakes.tool_model import tool_folder, tool_model
from golden.record import Table

USER = {"role": "user", "content": "Hi"}
# What a body of each path is with nothing else.
ASKED = {
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": [USER], "max_tokens": 4},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/api/chat": {"messages": [USER]},
    "/api/generate": {"prompt": "Hi"},
}


TABLE = Table("bodies")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    desk = ScriptedDesk(["ok"])
    with local(tool_model(tool_folder(tmp_path_factory.mktemp("tools") / "plain")), desk) as client:
        yield client
    assert not desk.jobs
    desk.close()


@pytest.mark.parametrize(("path", "fields"), TABLE.rows, ids=[f"{path} {fields}"[:70] for path, fields in TABLE.rows])
def test_what_cannot_be_done_is_refused_by_the_field_that_asks_for_it(path, fields, client):
    reply = client.post(path, json={**ASKED[path], **json.loads(fields)})
    error = reply.json()["error"]
    assert reply.status_code == 400
    message = error if isinstance(error, str) else error["message"]
    name = error["param"] if isinstance(error, dict) and "param" in error else message.partition(": ")[0]
    TABLE.check(path, fields, message if message.startswith(f"{name}: ") else f"{name}: | {message}")
