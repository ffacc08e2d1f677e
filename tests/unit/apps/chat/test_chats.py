"""specdec chats, and what a chat keeps: when, where, on disk what was read of it; listed, shown, continued, deleted."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import stat
import time
from dataclasses import replace

import pytest

from fakes.chat import chat_with, only_ascii, ran, recorded
from fakes.terminal import Terminal
from specdec_cli.session.conversation import Answer, Conversation, Turn
from specdec_cli.session.disk_cache import DiskCache
from specdec_cli.session.disk_entries import Entry, disk_cache_folder, entry_files
from specdec_cli.session.kept_chats import DELETED, FORKED, TOLD, Keeper, delete, kept_chats, kept_folder
from specdec_cli.session.transcript import Transcript, load, save


def keep(name, *turns, day=1, pair="tiny", system=None):
    """A kept chat that was written on a day of a January long ago."""
    kept_folder().mkdir(parents=True, exist_ok=True)
    path = kept_folder() / f"{name}.jsonl"
    conversation = Conversation(system, tuple(Turn(user, Answer(answer)) for user, answer in turns))
    save(path, Transcript(conversation, header={"pair": pair}))
    os.utime(path, (time.mktime((2021, 1, day, 12, 0, 0, 0, 0, -1)),) * 2)
    return path


def keep_broken(day=5):
    path = keep("broken", ("x", "y"), day=day)
    times = path.stat()
    path.write_text(path.read_text().partition("\n")[0] + '\n{"role": "user"}\n')
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return path


@pytest.fixture
def three(specdec):
    keep("a", ("How do I read\nlines?", "With a loop."), ("And a FILE?", "open()"), day=1)
    keep("b", ("def f(x):", "    return x"), day=3, pair=None)
    keep("c", ("third", "of " * 90 + "needle in a haystack"), day=2, system="Be brief.")
    return specdec


def test_the_list_has_the_last_chat_first_and_a_pipe_gets_a_line_each(three):
    assert three("chats") == (
        0,
        "1\t03 Jan 2021\t–\t1\tdef f(x):\n"
        "2\t02 Jan 2021\ttiny\t1\tthird\n"
        "3\t01 Jan 2021\ttiny\t2\tHow do I read lines?\n",
        "",
    )


def test_show_gives_a_document(three):
    document = (
        "# Chat with tiny\n\n02 Jan 2021, 1 turn\n\n## System\n\nBe brief.\n\n## You\n\nthird\n\n## tiny\n\nof of"
    )
    code, out, err = three("chats", "show", "2")
    assert (code, err) == (0, "") and out.startswith(document) and out.endswith("needle in a haystack\n")


@pytest.mark.parametrize("command", [("show", "4"), ("show", "0"), ("delete", "4", "--yes")])
def test_a_number_of_no_chat_is_refused_with_how_many_there_are(three, command):
    said = f"there is no chat {command[1]}: 3 are kept"
    assert three.refused("chats", *command) == (2, said, "specdec chats lists their numbers")
    assert three.refused("chat", "-p", "demo", "--resume", "4")[1] == "there is no chat 4: 3 are kept"


def test_delete_asks_and_takes_one_chat_or_all(three):
    code, said, _ = three.refused("chats", "delete", "3")
    assert code == 2 and said.endswith("Delete chat 3 of 01 Jan 2021: How do I read lines??")
    assert three.refused("chats", "delete", "--all")[1].endswith("Delete all 3 kept chats?")
    for both in ([], ["1", "--all"]):
        assert three.refused("chats", "delete", *both)[1] == "delete takes the number of a chat, or --all"
    assert len(kept_chats()) == 3
    assert three("chats", "delete", "2", "--yes") == (0, "", "deleted 1 chat\n")
    assert [path.stem for path in kept_chats()] == ["b", "a"]
    assert three("chats", "delete", "--all", "--yes") == (0, "", "deleted 2 chats\n")
    assert three("chats") == (0, "", "no chat is kept\n") and three("chats", "delete", "--all")[0] == 0


def test_what_was_left_of_a_chat_is_said_where_it_is_shown_and_continued(specdec, talk):
    path = keep("cut", ("hello", "hi"))
    path.write_text(path.read_text() + '{"role": "us')
    code, out, err = specdec("chats", "show", "1")
    assert code == 0 and "hello" in out and f"{path}:4 is damaged" in " ".join(err.split())
    code, err = talk("-c")
    assert code == 0 and "1 turn before it can be continued" in " ".join(err.split())
    assert "is damaged" not in specdec("chats", "show", "1")[2] and path.read_text().count("hello") == 1


def test_a_damaged_file_is_listed_says_why_and_can_be_deleted(specdec):
    keep("whole", ("hello", "hi"))
    path = keep_broken()
    listed = specdec("chats")[1].splitlines()
    assert listed[0].startswith(f"1\t05 Jan 2021\t–\t–\t{path}:2 is damaged: ") and listed[1].endswith("\thello")
    assert f"{path}:2 is damaged" in specdec.refused("chats", "show", "1")[1]
    assert specdec("chats", "delete", "1", "-y")[0] == 0 and len(kept_chats()) == 1


# With the demo pair.


@pytest.fixture
def talk(specdec):
    """A piped chat: (exit code, stderr)."""

    def chat(*arguments, stdin="def f(a):\n"):
        code, _, err = specdec("chat", "-p", "demo", "-n", "4", *arguments, stdin=stdin.encode())
        return code, err

    return chat


def said(path):
    return [turn.user for turn in load(path).conversation.turns]


@pytest.mark.slow
def test_chats_are_continued_by_c_and_by_number(talk):
    assert TOLD in talk()[1]
    code, err = talk(stdin="class A:\n")
    assert code == 0 and TOLD not in err and sorted(map(said, kept_chats())) == [["class A:"], ["def f(a):"]]
    code, err = talk("-c", stdin="more\n")
    assert code == 0 and "1 turn continued" in err and said(kept_chats()[0]) == ["class A:", "more"]
    talk("--resume", "2", stdin="other\n")
    assert [said(path) for path in kept_chats()] == [["def f(a):", "other"], ["class A:", "more"]]
    assert talk("-c", "--resume", "2")[0] == 2
    path = kept_chats()[1]
    talk("--resume", path, stdin="by file\n")
    assert said(path) == ["class A:", "more", "by file"] and len(kept_chats()) == 2


@pytest.mark.slow
def test_c_passes_over_a_damaged_chat_with_a_line_and_begins_anew_without_another(talk):
    path = keep_broken()
    code, err = talk("-c")
    assert code == 0 and err.count(f"{path}:2 is damaged") == 1 and "this is a new one" in err
    os.utime(path)
    code, err = talk("-c", stdin="more\n")
    assert code == 0 and f"{path}:2 is damaged" in err and "1 turn continued" in err
    assert '{"role": "user"}\n' in path.read_text() and said(kept_chats()[0]) == ["def f(a):", "more"]


@pytest.mark.slow
def test_what_is_saved_elsewhere_or_not_to_be_kept_is_not_kept(talk, specdec, monkeypatch, tmp_path):
    talk("--save", tmp_path / "talk.jsonl")
    talk("--resume", tmp_path / "talk.jsonl")
    talk("--private")
    talk("-q")
    monkeypatch.setenv("SPECDEC_PRIVATE", "1")
    assert TOLD not in talk()[1] and not kept_folder().exists()
    assert len(said(tmp_path / "talk.jsonl")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_run_without_a_prompt_is_a_chat_that_is_kept_unless_the_variable_says_not_to(monkeypatch, tmp_path, kept):
    monkeypatch.setenv("HOME", str(tmp_path))
    environment = {} if kept else {"SPECDEC_PRIVATE": "1"}
    screen = Terminal(tmp_path, "run", "-p", "demo", "-n", "3", "-s", "be short", **environment).ready()
    screen.say("def f(a):").say("/show").wait("be short").type("\x04")
    code, text = screen.end()
    assert code == 0 and ["max-tokens", "3"] in [line.split() for line in text.splitlines()]
    assert [said(path) for path in kept_chats()] == [["def f(a):"]] * kept
    assert any(tmp_path.rglob("history")) == kept


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [8, pytest.param(30, marks=pytest.mark.full)])
def test_kills_lose_at_most_the_turn_under_way(monkeypatch, tmp_path, kills):
    """Each chat continues the last one, ends a turn, and is killed at some moment of the next one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPECDEC_ON_OVERFLOW", "drop-oldest")
    dice, known, late = random.Random(30), [], 0
    arguments = ("chat", "-c", "-p", "demo", "-n", "12", "--plain")
    for number in range(kills):
        chat = Terminal(tmp_path, *arguments, f"x{number} = 1").wait("stopped at --max-tokens 12").wait(b"\n> ")
        chat.type(f"y{number} = 2\r")
        time.sleep(dice.uniform(0.0, 0.5))
        chat.send(signal.SIGKILL)
        assert chat.end()[0] == -signal.SIGKILL
        (path,) = kept_chats()
        turns = said(path)
        assert turns in ([*known, f"x{number} = 1"], [*known, f"x{number} = 1", f"y{number} = 2"])
        known, late = turns, late + (turns[-1][0] == "y")
    assert len(known) == kills + late and json.loads(path.read_text().splitlines()[0])["pair"] == "demo"


def test_delete_all_goes_on_and_names_what_stayed(three):
    """A folder of that name kept all chats behind it."""
    stays = [kept_folder() / name for name in ("x.jsonl", "y.jsonl")]
    for day, folder in enumerate(stays, 2):
        (folder / "inside").mkdir(parents=True)
        os.utime(folder, (time.mktime((2021, 1, day, 12, 0, 0, 0, 0, -1)),) * 2)
    (left := kept_folder() / "gone.jsonl9_abcdef").mkdir()  # and one of what kills left
    code, _, err = three("chats", "delete", "--all", "--yes")
    assert code == 1 and "deleted 3 chats" in err and "error: not deleted: " in err
    assert all(f"{path} (" in err for path in (*stays, left)) and err.splitlines()[-1].startswith("hint: ")
    assert sorted(kept_folder().iterdir()) == sorted([*stays, left])


@pytest.fixture
def keeping(pair):
    """A function that opens a chat which is kept, in "another process"; `path` is the file of one that goes on."""

    def begin(path=None, on_disk=False, **more):
        session = recorded(*pair)
        if on_disk:
            disk = DiskCache(disk_cache_folder(), 10**9, pytest.fail)
            session = type(session)(replace(session.pair, disk=disk, fingerprint=lambda: "f"), session.slot)
        chat, out, err = chat_with(session, max_tokens=16 if on_disk else 4, logit_bias=only_ascii(pair[1]))
        if path is not None:
            chat.transcript = load(path)
        chat.keeper = Keeper(path, chat.transcript.id, **more)
        return chat, out, err

    return begin


@pytest.fixture
def with_disk(keeping):
    """The same, where what is read is kept on disk."""
    return lambda path=None: keeping(path, on_disk=True)


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
    drafts = [path.with_name(f"{path.name}x_1abcde") for path in (here, other, here.with_name("never.jsonl"))]
    own = [kept_folder() / name for name in ("x.jsonl.gz", "notes.jsonl.bak", "a.jsonl2")]  # these went with it
    for path in (*drafts, *own):
        path.write_text("half")
    delete([here])
    assert sorted(kept_folder().iterdir()) == sorted([other, drafts[1], *own])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_is_one_line_and_the_file_stays_whole_until_there_is_room(keeping, full_disk, number):
    opened = keeping()
    ran(opened, "hello")

    with full_disk(number):
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


LONG = "say it again, and then once more, slowly: " * 8


def talked(opened, *lines):
    ran(opened, *lines)
    opened[0].close()
    return opened[0].loaded.session.replies


def test_a_chat_that_goes_on_reads_only_what_is_new_and_says_the_same(keeping, with_disk):
    talked(with_disk(), LONG)
    (path,) = kept_chats()
    assert [Entry.read(one).owner for one in entry_files(disk_cache_folder())] == [path.stem]
    read = keeping(path)
    read[0].settings = read[0].settings.with_value("max-tokens", "16")
    read[0].keeper = None  # the file stays as it is
    ((*_, anew, same),) = talked(read, "and now?")
    ((*_, prefill, finish),) = talked(with_disk(path), "and now?")
    assert prefill.disk_tokens > len(LONG) and anew.disk_tokens == 0
    assert finish.text == same.text


def test_a_chat_that_is_not_kept_or_was_deleted_leaves_nothing_on_disk(with_disk):
    begun = with_disk()
    begun[0].keeper = None  # --private
    talked(begun, LONG)
    assert not disk_cache_folder().exists()
    talked(with_disk(), LONG)
    assert entry_files(disk_cache_folder())
    delete(kept_chats())
    assert not list(disk_cache_folder().iterdir())
    going = with_disk()
    ran(going, LONG)
    delete(kept_chats())
    going[0].close()
    assert not entry_files(disk_cache_folder())


def test_a_long_write_at_the_end_is_said_and_only_where_there_is_one(with_disk, monkeypatch):
    monkeypatch.setattr("specdec_cli.apps.chat.chat.SOON_WRITTEN_BYTES", 1)
    begun = with_disk()
    ran(begun, LONG)
    begun[0].close()  # the first turn was on disk already
    assert "of what was read…" not in begun[2].getvalue()
    ran(begun, "hello", LONG[::-1][:240])
    begun[0].close()
    assert begun[2].getvalue().count("of what was read…") == 1


def test_another_chat_keeps_what_the_one_before_has_read(with_disk):
    begun = with_disk()
    ran(begun, LONG[:300], "/clear", LONG[::-1])
    begun[0].close()
    assert len(entry_files(disk_cache_folder())) == len(kept_chats()) == 2
