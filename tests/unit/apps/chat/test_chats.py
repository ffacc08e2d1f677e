"""`specdec chats`, and what `chat` keeps: continued, listed, searched, shown, exported, deleted, killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time

import pexpect
import pytest

from fakes.terminal import Terminal
from specdec_cli.session.conversation import Answer, Conversation, Turn
from specdec_cli.session.kept_chats import TOLD, kept_chats, kept_folder
from specdec_cli.session.transcript import Transcript, load, save

HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9b31m\td\ne\u202e\ud800"


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


def test_show_and_export_give_one_document(three, tmp_path):
    document = (
        "# Chat with tiny\n\n02 Jan 2021, 1 turn\n\n## System\n\nBe brief.\n\n## You\n\nthird\n\n## tiny\n\nof of"
    )
    code, out, err = three("chats", "show", "2")
    assert (code, err) == (0, "") and out.startswith(document) and out.endswith("needle in a haystack\n")
    file = tmp_path / "talk.md"
    assert three("chats", "show", "2", "--export", file) == (0, "", f"wrote {file}\n")
    assert file.read_text() == out
    missing = tmp_path / "none" / "talk.md"
    assert three.refused("chats", "show", "2", "--export", missing)[1].startswith(f"--export {missing} cannot be wr")


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


def test_a_hostile_file_is_shown_filtered(specdec, tmp_path):
    keep("x", (HOSTILE, HOSTILE), pair=HOSTILE, system=HOSTILE)
    file = tmp_path / "x.md"
    specdec("chats", "show", "1", "--export", file)
    outputs = [specdec("chats", *words)[1] for words in ([], ["show", "1"])]
    outputs += [specdec("chats", "delete", "1")[2], file.read_text()]
    assert outputs[0].split("\t")[2:] == ["abc d e\N{REPLACEMENT CHARACTER}", "1", "abc d e\N{REPLACEMENT CHARACTER}\n"]
    for output in outputs:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800]", output), ascii(output)
        assert "abc" in output or not output


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
    screen = Terminal(tmp_path, "run", "-p", "demo", "-n", "3", **environment).ready().say("def f(a):")
    screen.type("\x04")
    assert screen.end()[0] == 0
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
    arguments = ["-m", "specdec_cli", "chat", "-c", "-p", "demo", "-n", "12", "--plain"]
    for number in range(kills):
        chat = pexpect.spawn(sys.executable, [*arguments, f"x{number} = 1"], encoding="utf-8", timeout=60)
        chat.expect_exact("stopped at --max-tokens 12")
        chat.expect_exact("> ")
        chat.sendline(f"y{number} = 2")
        time.sleep(dice.uniform(0.0, 0.5))
        chat.kill(signal.SIGKILL)
        chat.wait()
        chat.close()
        assert chat.signalstatus == signal.SIGKILL
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
    (left := kept_folder() / ".gone.jsonl9").mkdir()  # and one of what kills left
    code, _, err = three("chats", "delete", "--all", "--yes")
    assert code == 1 and "deleted 3 chats" in err and "error: not deleted: " in err
    assert all(f"{path} (" in err for path in (*stays, left)) and err.splitlines()[-1].startswith("hint: ")
    assert sorted(kept_folder().iterdir()) == sorted([*stays, left])
