"""/schema, /regex and /grammar: set, shown, taken off, kept from message to message."""

from __future__ import annotations

import json
import re

import pytest

from specdec_cli.apps.chat.commands import run_command
from specdec_cli.core.errors import UsageError

SCHEMA = {"enum": ["yes", "no", "perhaps"]}
TEXT = json.dumps(SCHEMA)


@pytest.fixture
def chat(opened):
    chat = opened[0]
    chat.settings = chat.settings.with_value("max-tokens", "40")
    return chat


def last(chat):
    return chat.conversation.turns[-1].answer.text


def test_every_answer_keeps_the_shape_until_it_is_taken_off(opened, chat):
    run_command(chat, "/regex (ab){2,4}")
    run_command(chat, "/regex")
    assert opened[2].getvalue().endswith("every answer matches this regular expression: (ab){2,4}\n")
    for message in ("hello", "again"):
        chat.ask(message)
        assert re.fullmatch("(ab){2,4}", last(chat))
    run_command(chat, "/regex off")
    chat.ask("free")
    assert chat.settings.request.constraint is None and not re.fullmatch("(ab){2,4}", last(chat))


def test_a_schema_is_text_or_a_file_and_a_grammar_takes_its_place(chat, tmp_path):
    path = tmp_path / "s.json"
    path.write_text(TEXT)
    for given in (TEXT, path):
        run_command(chat, f"/schema {given}")
        chat.ask("well?")
        assert json.loads(last(chat)) in SCHEMA["enum"] and "schema" in chat.toolbar
    (tmp_path / "g.lark").write_text('start: "on" | "off"\n')
    run_command(chat, f"/grammar {tmp_path / 'g.lark'}")
    chat.ask("well?")
    assert last(chat) in ("on", "off")


def test_a_stop_string_that_could_cut_a_shape_is_refused_on_either_side(chat):
    run_command(chat, "/set stop }")
    with pytest.raises(UsageError, match="could cut an answer"):
        run_command(chat, f"/schema {TEXT}")
    run_command(chat, "/set stop off")
    run_command(chat, f"/schema {TEXT}")
    with pytest.raises(UsageError, match="could cut an answer"):
        run_command(chat, "/set stop no")
    assert chat.settings.request.stop == ()
    run_command(chat, "/set stop \\n")
