"""Kept chats: when a file is written, and that nothing that fails there ends a chat or brings back what was deleted."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from fakes.chat import chat_with, ran, recorded
from specdec_cli.session import transcript
from specdec_cli.session.kept_chats import DELETED, FORKED, TOLD, Keeper, delete, kept_chats, kept_folder
from specdec_cli.session.transcript import load


@pytest.fixture
def keeping(pair):
    """A function that opens a chat which is kept; `path` is the file of one that goes on."""

    def begin(path=None, **more):
        chat, out, err = chat_with(recorded(*pair), max_tokens=4)
        if path is not None:
            chat.transcript = load(path)
        chat.keeper = Keeper(path, chat.transcript.id, **more)
        return chat, out, err

    return begin


def said(path):
    return [turn.user for turn in load(path).conversation.turns]


def all_said():
    """What each kept chat holds, in any order."""
    return sorted(said(path) for path in kept_chats())


def test_a_chat_is_in_a_private_file_after_each_turn_and_the_first_one_says_so(keeping):
    before = os.umask(0)
    try:
        opened = keeping()
        for lines in (["hello"], ["hello", "again"]):
            ran(opened, lines[-1])
            assert all_said() == [lines]
        second = keeping()
        ran(second, "other")
    finally:
        os.umask(before)
    assert opened[2].getvalue().count(TOLD) == 1 and TOLD not in second[2].getvalue()
    assert stat.S_IMODE(kept_folder().stat().st_mode) == 0o700 and len(kept_chats()) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept_chats()} == {0o600}


def test_where_nobody_can_be_told_no_first_chat_is_kept(keeping):
    ran(keeping(tells=False), "hello")
    assert not kept_folder().exists()
    ran(keeping(), "told")
    ran(keeping(tells=False), "hello")
    assert all_said() == [["hello"], ["told"]]


def test_an_empty_chat_leaves_no_file_and_undo_and_clear_keep_their_sense(keeping):
    chat, _, _ = opened = keeping()
    ran(opened, "/system be kind", "/show")
    assert not kept_chats()
    ran(opened, "hello", "/undo")
    assert not kept_chats()
    ran(opened, "hello", "again", "/undo", "/clear", "/undo", "anew")
    assert all_said() == [["anew"], ["hello"]]
    saved = kept_folder().parent / "talk.jsonl"
    ran(opened, f"/save {saved}", f"/load {saved}", "more")
    assert said(saved) == ["anew"] and ["anew", "more"] in all_said()
    assert chat.saved_to is None


def test_two_chats_at_once_have_a_file_each_even_if_both_continue_one(keeping):
    one, other = keeping(), keeping()
    ran(one, "a")
    ran(other, "b")
    ran(one, "c")
    assert all_said() == [["a", "c"], ["b"]]
    path = next(path for path in kept_chats() if said(path) == ["b"])
    first, second = keeping(path), keeping(path)
    ran(first, "first")
    ran(second, "second", "third")
    ran(first, "more")
    assert all_said() == [["a", "c"], ["b", "first", "more"], ["b", "second", "third"]]
    assert second[2].getvalue().count(FORKED) == 1 and FORKED not in first[2].getvalue()


def test_what_was_deleted_is_not_written_again(keeping):
    opened = keeping()
    ran(opened, "hello")
    delete(kept_chats())
    ran(opened, "again", "and again")
    assert not kept_chats() and opened[2].getvalue().count(DELETED) == 1
    ran(opened, "/clear", "another chat")
    assert all_said() == [["another chat"]]


def test_delete_takes_what_a_kill_left_and_nothing_of_other_chats(keeping):
    ran(keeping(), "hello")
    ran(keeping(), "other")
    here, other = kept_chats()
    drafts = [path.with_name(f".{path.name}x_1") for path in (here, other, here.with_name("never.jsonl"))]
    for draft in drafts:
        draft.write_text("half")
    delete([here])
    assert sorted(kept_folder().iterdir()) == sorted([other, drafts[1]])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_is_one_line_and_the_file_stays_whole_until_there_is_room(keeping, monkeypatch, number):
    opened = keeping()
    ran(opened, "hello")

    def fail(path, target):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(transcript.Path, "replace", fail)
        assert ran(opened, "again", "and again")[0] == 0
    assert opened[2].getvalue().count(f"not kept: {kept_chats()[0]} cannot be written: {os.strerror(number)}") == 1
    assert all_said() == [["hello"]]
    ran(opened, "there is room")
    assert all_said() == [["hello", "again", "and again", "there is room"]]
    assert [path.suffix for path in kept_folder().iterdir()] == [".jsonl"]


def test_without_a_place_for_the_folder_a_chat_goes_on_unkept(keeping):
    kept_folder().parent.parent.mkdir(parents=True)
    kept_folder().parent.write_text("a file where a folder should be")
    opened = keeping()
    code, _, err = ran(opened, "hello", "again")
    assert (code, len(opened[0].conversation.turns)) == (0, 2)
    assert err.count("this turn is not kept: ") == 1 and TOLD not in err
