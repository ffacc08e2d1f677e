"""`--schema`, `--regex` and `--grammar`: one of them, refused before any model, and held by the answer."""

import json

import pytest
from jsonschema import validate

from specdec_cli.command.options import ShapeOptions
from specdec_cli.core.request import Constraint

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "sizes": {"type": "array", "items": {"type": "integer"}, "maxItems": 4},
    },
    "required": ["name", "sizes"],
    "additionalProperties": False,
}
TEXT = json.dumps(SCHEMA)
RUN = ("run", "--raw", "-p", "demo", "import json\n")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "s.json").write_text("\ufeff" + TEXT, "utf-8")
    (tmp_path / "g.lark").write_text('start: "yes" | "no"\n')
    (tmp_path / "latin1").write_bytes(b'{"title": "\xe9"}')
    return tmp_path


def test_the_three_are_read_from_where_they_are(files):
    assert ShapeOptions(schema=str(files / "s.json")).constraint() == Constraint("schema", TEXT)
    assert ShapeOptions(regex="a+").constraint() == Constraint("regex", "a+")
    assert ShapeOptions(grammar=files / "g.lark").constraint() == Constraint("grammar", 'start: "yes" | "no"\n')
    assert ShapeOptions().constraint() is None


@pytest.mark.parametrize("shape", [("--schema", "s.json"), ("--schema", TEXT)], ids=["file", "text"])
def test_the_answer_is_json_of_the_schema(specdec, files, monkeypatch, shape):
    monkeypatch.chdir(files)
    code, out, err = specdec(*RUN, *shape, "-k", "4", "--temp", "0.8", "--seed", "3")
    assert code == 0 and "incomplete" not in err
    validate(json.loads(out), SCHEMA)


@pytest.mark.slow
def test_an_answer_that_was_cut_says_so(specdec):
    code, out, err = specdec(*RUN, "--schema", TEXT, "-n", "5", "-k", "4")
    assert code == 0 and out.startswith('{"name"')
    assert "stopped at --max-tokens 5 · the JSON is incomplete" in err
    events = [json.loads(line) for line in specdec(*RUN, "--regex", "[a-z]{40}", "-n", "5", "--json")[1].splitlines()]
    assert (events[0]["constraint"], events[-1]["reason"], events[-1]["complete"]) == ("regex", "length", False)


def test_every_answer_of_a_chat_has_the_shape(specdec):
    code, out, _ = specdec("chat", "-p", "demo", "--regex", "(yes|no)", "-q", stdin=b"Is it?\nReally?\n")
    assert code == 0 and set(out.split()) <= {"yes", "no"} and len(out.split()) == 2
