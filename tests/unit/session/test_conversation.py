"""The message list, what of it is sent, and transcripts: written whole, read whole, or refused with their line."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from specdec_cli.core.errors import DoesNotFit, SpecdecError, UsageError
from specdec_cli.session.conversation import Answer, Conversation, Turn
from specdec_cli.session.transcript import Transcript, load, save


def letters(messages):
    """One id a character, and one for each message."""
    return [0] * sum(len(message["content"]) + 1 for message in messages)


def talked(*sizes, system=None):
    """A conversation whose turns have that many ids each."""
    turns = tuple(
        Turn(chr(97 + place) * (size // 2 - 1), Answer("." * (size - size // 2 - 1)))
        for place, size in enumerate(sizes)
    )
    return Conversation(system, turns)


def test_messages_are_system_turns_and_the_new_one_in_order():
    conversation = Conversation("be kind", (Turn("a", Answer("b", thinking="hm")),))
    assert conversation.messages("c") == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "hm", "thinking": "hm"},
        {"role": "user", "content": "c"},
    ]


def test_refuse_names_both_numbers_and_changes_nothing():
    conversation = talked(60, 60)
    with pytest.raises(DoesNotFit, match="prompt is too long: 124 tokens > 123 maximum") as caught:
        conversation.fit("abc", letters, 124, 40, "refuse")
    assert "/set overflow drop-oldest" in caught.value.hint
    assert len(conversation.fit("abc", letters, 125, 40, "refuse").ids) == 124


def test_drop_oldest_makes_room_for_an_answer_and_keeps_the_system_message():
    conversation = talked(40, 40, 40, system="s" * 9)
    fitted = conversation.fit("abc", letters, 160, 40, "drop-oldest")
    assert (fitted.left_out, len(fitted.ids)) == (2, 10 + 40 + 4)
    sent = conversation.messages("abc", fitted.left_out)
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[0]["content"] == "s" * 9
    # Room for the next turns too: one more turn of this size drops nothing.
    grown = conversation.with_turn(Turn("abc", Answer("." * 39)), fitted.left_out)
    assert grown.fit("abc", letters, 160, 40, "drop-oldest").left_out == fitted.left_out


@pytest.mark.parametrize(("limit", "max_tokens", "left_out"), [(92, 8, 0), (91, 8, 1), (111, 99, 0), (110, 99, 1)])
def test_drop_oldest_drops_only_where_the_answer_or_a_quarter_of_the_context_does_not_fit(limit, max_tokens, left_out):
    assert talked(40, 40).fit("abc", letters, limit, max_tokens, "drop-oldest").left_out == left_out


# Transcripts

TURNS = (
    Turn("hello", Answer("hi", "greet back", "stop", {"k": 4})),
    Turn("again\n", Answer("é日\u2028", "", "length", {}), attempt=2),
)
SAVED = Transcript(Conversation("be kind", TURNS), "abc", {"pair": "tiny"})


@pytest.mark.parametrize("empty", [False, True])
def test_what_was_saved_loads_as_the_same_conversation_and_a_later_save_replaces_it(tmp_path, empty):
    """An empty file gave its mode to the conversation, which all could read."""
    path = tmp_path / "chat.jsonl"
    if empty:
        path.touch(0o644)
    save(path, SAVED)
    assert load(path) == SAVED and stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)  # by its owner
    save(path, Transcript(Conversation(None, TURNS[:1]), "abc"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
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


@pytest.mark.parametrize("text", ["notes\n", '{"id": "xyz"}\n'])
def test_another_content_is_never_overwritten(tmp_path, text):
    path = tmp_path / "chat.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match="holds something other"):
        save(path, SAVED)
    assert path.read_text() == text


HEADER = '{"transcript": 1, "id": "a"}\n'
TURN = '{"role": "user", "content": "a"}\n{"role": "assistant", "content": "b"}\n'
# Before any answer nothing can be continued: what the file holds, the line that is damaged, and why.
DAMAGED = [
    ('{"transcript": 2}', 1, "a transcript of version 1 begins with its header"),
    ('{"transcript": 1, "target": 5}', 1, "target is not a name"),
    (HEADER + "{", 2, "Expecting property name"),
    (HEADER + '{"role": "user"}', 2, "a message has no content"),
    (HEADER + '{"role": "assistant", "content": "a"}', 2, "a message of 'assistant' does not belong here"),
    (HEADER + '{"role": "user", "content": "a"}\n{"role": "system", "content": "b"}', 3, "of 'system' does not"),
    (HEADER + '{"role": "user", "content": "a"}', 2, "the last message has no answer"),
]
# Behind a turn the rest is left out.
CUT = [
    ('{"role": "user", "content": "lo', 4, "Unterminated string"),
    ('{"role": "user", "content": "c"}\n{"role": "assi', 5, "Unterminated string"),
    ('{"role": "user", "content": "c"}\n', 4, "the last message has no answer"),
    ('{"role": "assistant", "content": "c"}\n' + TURN, 4, "does not belong here"),
    ("\0\0\0\0", 4, "Expecting value"),
    ("\udcff", 4, "is not UTF-8"),
    ("[1]\n" + TURN, 4, "an object is expected"),
]


@pytest.mark.parametrize(("text", "line", "reason"), DAMAGED + [(HEADER + TURN + rest, *told) for rest, *told in CUT])
def test_a_chat_opens_up_to_a_line_that_is_damaged_and_says_line_and_reason(tmp_path, text, line, reason):
    """anthropics/claude-code#53821: a last line that was cut made the whole chat unreadable."""
    path = tmp_path / "chat.jsonl"
    path.write_bytes(text.encode(errors="surrogateescape"))
    if not text.startswith(HEADER + TURN):
        with pytest.raises(UsageError) as caught:
            load(path)
        told = caught.value.message
    else:
        found = load(path)
        assert [(turn.user, turn.answer.text) for turn in found.conversation.turns] == [("a", "b")] and found.id == "a"
        told = found.left_out
        assert told.endswith("; 1 turn before it can be continued, and a save drops the rest")
        save(path, found)
        assert load(path).left_out == "" and load(path).conversation == found.conversation
    assert told.startswith(f"{path}:{line} is damaged: ") and reason in told


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
