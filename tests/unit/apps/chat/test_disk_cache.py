"""What was read of a chat comes back with it: kept as the chat is, gone with it, and never what it says."""

from dataclasses import replace

import pytest

from fakes.chat import chat_with, only_ascii, ran, recorded
from specdec_cli.session.disk_cache import DiskCache
from specdec_cli.session.disk_entries import Entry, disk_cache_folder, facts_files
from specdec_cli.session.kept_chats import Keeper, delete, kept_chats
from specdec_cli.session.transcript import load

LONG = "say it again, and then once more, slowly: " * 8


@pytest.fixture
def opened(pair):
    """A function that opens a chat in "another process"; `path` is the file of one that goes on."""

    def begin(path=None, on_disk=True):
        session = recorded(*pair)
        disk = DiskCache(disk_cache_folder(), 10**9, pytest.fail) if on_disk else None
        loaded = replace(session.pair, disk=disk, fingerprint=lambda: "f")
        session = type(session)(loaded, session.slot)
        chat, out, err = chat_with(session, max_tokens=16, logit_bias=only_ascii(pair[1]))
        if path is not None:
            chat.transcript = load(path)
        chat.keeper = Keeper(path, chat.transcript.id)
        return chat, out, err

    return begin


def talked(opened, *lines):
    ran(opened, *lines)
    opened[0].close()
    return opened[0].loaded.session.replies


def test_a_chat_that_goes_on_reads_only_what_is_new_and_says_the_same(opened):
    talked(opened(), LONG)
    (path,) = kept_chats()
    assert [Entry.read(one).owner for one in facts_files(disk_cache_folder())] == [path.stem]
    read = opened(path, on_disk=False)
    read[0].keeper = None  # the file stays as it is
    ((*_, anew, same),) = talked(read, "and now?")
    ((*_, prefill, finish),) = talked(opened(path), "and now?")
    assert prefill.disk_tokens > len(LONG) and anew.disk_tokens == 0
    assert finish.text == same.text


def test_a_chat_that_is_not_kept_or_was_deleted_leaves_nothing_on_disk(opened):
    begun = opened()
    begun[0].keeper = None  # --private
    talked(begun, LONG)
    assert not disk_cache_folder().exists()
    talked(opened(), LONG)
    assert facts_files(disk_cache_folder())
    delete(kept_chats())
    assert not list(disk_cache_folder().iterdir())
    going = opened()
    ran(going, LONG)
    delete(kept_chats())
    going[0].close()
    assert not facts_files(disk_cache_folder())


def test_a_long_write_at_the_end_is_said_and_only_where_there_is_one(opened, monkeypatch):
    monkeypatch.setattr("specdec_cli.apps.chat.chat.SOON_WRITTEN_BYTES", 1)
    begun = opened()
    ran(begun, LONG)
    begun[0].close()  # the first turn was on disk already
    assert "of what was read…" not in begun[2].getvalue()
    ran(begun, "hello", LONG[::-1][:240])
    begun[0].close()
    assert begun[2].getvalue().count("of what was read…") == 1


def test_another_chat_keeps_what_the_one_before_has_read(opened):
    begun = opened()
    ran(begun, LONG[:300], "/clear", LONG[::-1])
    begun[0].close()
    assert len(facts_files(disk_cache_folder())) == len(kept_chats()) == 2
