"""A chat survives: whatever fails ends one line, in words, and the conversation stays as it was."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fakes.chat import chat_with, ran, recorded, tokenizer_in
from specdec_cli.apps.chat.chat import Chat
from specdec_cli.apps.chat.loop import run_chat
from specdec_cli.apps.chat.screen import ChatScreen
from specdec_cli.command.process import as_user_error
from specdec_cli.session import transcript
from specdec_cli.terminal.display import TraceDisplay

FULL = Path("/dev/full")
needs_full_disk = pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
SECOND_TURN_FAILS = "{% if messages|length > 1 %}{{ 1 / 0 }}{% endif %}{{ messages[0].content }}"


@pytest.fixture
def disk_full(monkeypatch):
    """Renaming to the transcript's place fails as on a full disk."""

    def replace(path, target):
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(transcript.Path, "replace", replace)


def test_a_save_that_fails_shows_one_line_and_the_message_is_not_given_back(opened, tmp_path, disk_full):
    """It was: the message stood in the editor again and in the conversation, so it was sent twice."""
    chat, _, err = opened
    chat.saved_to = tmp_path / "chat.jsonl"
    code, _, _ = ran(opened, "hello", "again")
    assert (code, chat.given) == (5, ["", "", ""])
    assert [turn.user for turn in chat.conversation.turns] == ["hello", "again"]
    assert err.getvalue().count("chat.jsonl cannot be written: No space left on device") == 2
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_template_that_fails_on_the_second_turn_leaves_the_first(pair, tmp_path):
    """A division by zero in a template ended the chat with exit 1 and its Python name."""
    tokenizer = tokenizer_in(tmp_path / "t", chat_template=SECOND_TURN_FAILS)
    opened = chat_with(recorded(pair[0], tokenizer))
    code, _, err = ran(opened, "hello", "again", "/show settings")
    assert code == 2 and "chat template refuses the messages user, assistant, user: division by zero" in err
    assert [turn.user for turn in opened[0].conversation.turns] == ["hello"]
    assert opened[0].given == ["", "", "again", ""]


def test_a_transcript_that_the_template_refuses_is_not_loaded(pair, tmp_path):
    tokenizer = tokenizer_in(tmp_path / "t", chat_template=SECOND_TURN_FAILS)
    chat, _, err = opened = chat_with(recorded(pair[0], tokenizer))
    path = tmp_path / "two.jsonl"
    turn = '{"role": "user", "content": "a"}\n{"role": "assistant", "content": "b"}\n'
    path.write_text('{"transcript": 1, "id": "x"}\n' + turn * 2)
    before = chat.transcript
    ran(opened, f"/load {path}")
    assert chat.transcript is before and "division by zero" in err.getvalue()


@pytest.mark.slow
@needs_full_disk
def test_a_trace_on_a_full_disk_ends_with_one_line_and_the_replies_go_on(pair):
    """It ended the chat with `OSError` and exit 1."""
    chat, out, err = chat_with(recorded(*pair))
    trace = TraceDisplay(FULL)
    chat.screen = screen = ChatScreen(out, err, trace=trace)
    ran((chat, out, err), "hello", "again")
    trace.close()
    assert len(chat.conversation.turns) == 2 and screen.trace_code == 5
    assert err.getvalue().count("--trace /dev/full ends here, it cannot be written: No space left on device") == 1


class Broken:
    """A reader of one line, whose answer fails in a way that nobody foresaw."""

    def __init__(self, *lines):
        self.lines, self.given = list(lines), []

    def read(self, text, refusal=""):
        self.given.append(text)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


@pytest.mark.parametrize("error", [RecursionError("too deep"), OSError(28, "No space left")])
def test_a_failure_that_nobody_foresaw_ends_one_line(opened, monkeypatch, error):
    chat, _, err = opened

    def ask(self, text, attempt=0):
        raise error

    monkeypatch.setattr(Chat, "ask", ask)
    reader = Broken("hello", "again")
    assert run_chat(chat, reader, True, as_user_error) == 0
    assert reader.given == ["", "hello", "again"]
    assert err.getvalue().count("hint: ") == 2 and type(error).__name__ not in err.getvalue()
