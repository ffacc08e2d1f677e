"""The loop around a chat without a terminal: what is a message, what a command, and what ends it."""

from __future__ import annotations

import io

import pytest

from fakes.chat import ran
from specdec_cli.apps.chat.loop import LineReader, is_open, run_chat, unfenced
from specdec_cli.command.process import as_user_error
from specdec_cli.core.errors import UsageError
from specdec_cli.session.signals import Presses


def test_answers_alone_are_on_stdout(opened):
    code, out, err = ran(opened, "hello", "and then?")
    answers = [turn.answer.text for turn in opened[0].conversation.turns]
    assert (code, out) == (0, "".join(f"{answer}\n" for answer in answers))
    assert err.count("8 tokens in") == 2


def test_a_failure_leaves_the_chat_going_and_gives_the_message_back(opened):
    chat, _, err = opened
    chat.settings = chat.settings.with_value("max-context", "60")
    code, out, _ = ran(opened, "x" * 90, "hi")
    assert code == 5 and "prompt is too long: 108 tokens > 59 maximum" in err.getvalue()
    assert chat.given == ["", "x" * 90, ""]
    assert len(chat.conversation.turns) == 1 and out
    assert ran(opened, "/nothing", lenient=True)[0] == 0  # a person saw it


def test_ctrl_c_twice_within_a_second_leaves_with_130(opened):
    slow = Presses(iter([0.0, 1.5, 3.0]).__next__)
    assert ran(opened, KeyboardInterrupt, KeyboardInterrupt, KeyboardInterrupt, presses=slow)[0] == 0
    fast = Presses(iter([0.0, 1.5, 2.4]).__next__)
    assert ran(opened, *[KeyboardInterrupt] * 3, "hello", presses=fast)[:2] == (130, "")


def test_leaving_reads_no_further(opened):
    assert ran(opened, "/exit", "hello")[:2] == (0, "")


def test_a_message_that_begins_with_a_slash_needs_a_space_or_fences(opened):
    ran(opened, " /etc is a folder", '"""/etc"""')
    assert [turn.user for turn in opened[0].conversation.turns] == [" /etc is a folder", "/etc"]


def test_blank_lines_are_no_messages(opened):
    assert ran(opened, "", "   ", '""""""')[:2] == (0, "")


def lines_of(text, prompt=None):
    reader, found = LineReader(io.BytesIO(text), prompt), []
    while True:
        try:
            found.append(reader.read(""))
        except EOFError:
            return found


def test_a_line_is_a_message_and_fences_hold_several_lines():
    assert lines_of(b'a\r\n"""b\nc\n"""\nd') == ["a", '"""b\nc\n"""', "d"]
    assert lines_of(b'"""never\nclosed') == ['"""never\nclosed']


def test_a_line_that_is_not_utf8_is_a_usage_error():
    with pytest.raises(UsageError, match="byte 0xe9 at 1 of 3"):
        lines_of(b"h\xe9\n")


def test_a_dumb_terminal_gets_a_prompt():
    prompt = io.StringIO()
    assert lines_of('"""\nü\n"""\n'.encode(), prompt) == ['"""\nü\n"""']
    assert prompt.getvalue() == "> … … > "


@pytest.mark.parametrize(
    ("text", "open_", "inner"),
    [('"""a', True, "a"), ('"""', True, ""), ('"""a"""', False, "a"), ('a"""', False, 'a"""'), ('""""', True, '"')],
)
def test_fences_open_close_and_go(text, open_, inner):
    assert (is_open(text), unfenced(text)) == (open_, inner)


def test_a_first_message_is_sent_before_anything_is_read(opened):
    chat, _, err = opened
    assert run_chat(chat, LineReader(io.BytesIO(b"and then?\n"), None), False, as_user_error, "hello") == 0
    assert [turn.user for turn in chat.conversation.turns] == ["hello", "and then?"]
    assert err.getvalue().startswith("> hello\n")


def test_why_a_message_came_back_is_said_until_another_one_is_read(opened):
    chat, _, _ = opened
    chat.settings = chat.settings.with_value("max-context", "60")
    ran(opened, "x" * 90, "hi", "/nothing")
    assert [refusal[:16] for refusal in chat.refusals] == ["", "prompt is too lo", "", ""]
