"""Transcripts as files: written whole, read whole, or refused with their line."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from fakes.command import Command
from specdec_cli.core.errors import DoesNotFit, SpecdecError, UsageError
from specdec_cli.session.conversation import Answer, Conversation, Turn
from specdec_cli.session.transcript import Transcript, load, save


@pytest.fixture
def specdec(tmp_path, monkeypatch, capsys):
    return Command(tmp_path, monkeypatch, capsys)


TURNS = (
    Turn("hello", Answer("hi", "greet back", "stop", {"k": 4})),
    Turn("again\n", Answer("é日\u2028", "", "length", {}), attempt=2),
)
SAVED = Transcript(Conversation("be kind", TURNS), "abc", {"pair": "tiny"})


def test_what_was_saved_loads_as_the_same_conversation(tmp_path):
    save(tmp_path / "chat.jsonl", SAVED)
    assert load(tmp_path / "chat.jsonl") == SAVED
    assert stat.S_IMODE((tmp_path / "chat.jsonl").stat().st_mode) == 0o600


def test_a_later_save_replaces_the_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "chat.jsonl"
    save(path, SAVED)
    save(path, Transcript(Conversation(None, TURNS[:1]), "abc"))
    assert len(path.read_text().splitlines()) == 3 and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_save_that_fails_leaves_the_file_as_it_was_and_no_other(tmp_path, monkeypatch, number):
    path = tmp_path / "chat.jsonl"
    save(path, SAVED)
    before = path.read_bytes()

    def fail(self, target):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(SpecdecError, match=f"cannot be written: {os.strerror(number)}") as refused:
        save(path, Transcript(Conversation(None, TURNS[:1]), "abc"))
    assert isinstance(refused.value, DoesNotFit) == (number == errno.ENOSPC)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "message"), [("notes\n", "holds something other"), ('{"id": "xyz"}\n', "holds something other")]
)
def test_another_content_is_never_overwritten(tmp_path, text, message):
    path = tmp_path / "chat.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        save(path, SAVED)
    assert path.read_text() == text


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_pipe_a_socket_and_a_device_are_refused_at_once(specdec, tmp_path, monkeypatch, kind):
    """A pipe hung before the first word, and in /save and /load."""
    monkeypatch.setattr("specdec_cli.session.load.load_spec", None)
    path = Path("/dev/null") if kind == "device" else tmp_path / "place"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        try:
            os.mknod(path, stat.S_IFSOCK | 0o600)
        except OSError:
            pytest.skip("this system makes a socket's file for root alone")
    link = tmp_path / "link"
    link.symlink_to(path)
    for place in (path, link):
        message = f"{place} is a {kind}, but a conversation is saved to a file"
        for option in ("--save", "--resume"):
            assert specdec.refused("chat", option, place)[:2] == (2, message)
        for use in (load, lambda path: save(path, SAVED)):
            with pytest.raises(UsageError, match=message):
                use(place)


HEADER = '{"transcript": 1, "id": "a"}\n'


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{"transcript": 2}', 1, "a transcript of version 1 begins with its header"),
        ('{"transcript": 1, "target": 5}', 1, "target is not a name"),
        (HEADER + "{", 2, "Expecting property name"),
        (HEADER + '{"role": "user"}', 2, "a message has no content"),
        (HEADER + '{"role": "assistant", "content": "a"}', 2, "a message of 'assistant' does not belong here"),
        (HEADER + '{"role": "user", "content": "a"}\n{"role": "system", "content": "b"}', 3, "of 'system' does not"),
        (HEADER + '{"role": "user", "content": "a"}', 2, "the last message has no answer"),
    ],
)
def test_a_damaged_file_is_refused_with_line_and_reason(tmp_path, text, line, reason):
    path = tmp_path / "chat.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert caught.value.message.startswith(f"{path}:{line} is damaged: ") and reason in caught.value.message


TURN = '{"role": "user", "content": "a"}\n{"role": "assistant", "content": "b"}\n'
BAD = {
    '{"role": "user", "content": "lo': (4, "Unterminated string"),
    '{"role": "user", "content": "c"}\n{"role": "assi': (5, "Unterminated string"),
    '{"role": "user", "content": "c"}\n': (4, "the last message has no answer"),
    '{"role": "assistant", "content": "c"}\n' + TURN: (4, "does not belong here"),
    "\0\0\0\0": (4, "Expecting value"),
    "\udcff": (4, "is not UTF-8"),
    "[1]\n" + TURN: (4, "an object is expected"),
}


@pytest.mark.parametrize(("rest", "line", "reason"), [(rest, *said) for rest, said in BAD.items()])
def test_a_chat_opens_up_to_a_line_that_is_damaged_and_says_what_was_left(specdec, tmp_path, rest, line, reason):
    """anthropics/claude-code#53821: a last line that was cut made the whole chat unreadable."""
    path = tmp_path / "chat.jsonl"
    path.write_bytes((HEADER + TURN + rest).encode(errors="surrogateescape"))
    found = load(path)
    assert [(turn.user, turn.answer.text) for turn in found.conversation.turns] == [("a", "b")] and found.id == "a"
    assert found.left_out.startswith(f"{path}:{line} is damaged: ") and reason in found.left_out
    assert found.left_out.endswith("; 1 turn before it can be continued, and a save drops the rest")
    save(path, found)
    assert load(path).left_out == "" and load(path).conversation == found.conversation


@pytest.mark.parametrize("end", ["\r\n", "\n\r\n", "\n\n\n", "  \n\t", "\r\n" + TURN.replace("\n", "\r\n") + "\r\n"])
def test_empty_lines_are_no_damage(tmp_path, end):
    path = tmp_path / "chat.jsonl"
    path.write_text(HEADER + TURN + end, newline="")
    found = load(path)
    assert found.left_out == "" and {turn.user for turn in found.conversation.turns} == {"a"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_chat_with_a_byte_order_mark_is_continued_in_its_file(tmp_path, encoding):
    path = tmp_path / "chat.jsonl"
    path.write_text(HEADER + TURN, encoding=encoding)
    save(path, load(path))
    assert load(path).conversation.turns[0].user == "a" and path.read_bytes()[:1] == b"{"


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load(tmp_path / "none.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="byte 0xff at 0 is not UTF-8"):
        load(tmp_path / "bytes.jsonl")
