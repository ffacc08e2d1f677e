"""`specdec chat` as a person uses it: the whole program on a pseudo-terminal that answers like a real one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from typing import ClassVar

import pyte
import pytest

from fakes.drafting import open_session
from fakes.models import TINY, tiny_folder
from specdec_cli.chat.transcript import load
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request

pytestmark = pytest.mark.slow
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
COLUMNS, ROWS = 80, 40
PASTE = "\x1b[200~{}\x1b[201~"
ALT_ENTER, ENTER, CTRL_C, CTRL_D, UP = "\x1b\r", "\r", "\x03", "\x04", "\x1b[A"
PROMPTS = b"\x1b[6n"  # the editor asks once where it begins


class Terminal:
    """One chat on a pty; what it asks the terminal (where is the cursor?) is answered."""

    started: ClassVar[list[subprocess.Popen]] = []

    def __init__(self, home, *arguments, **environment):
        self.screen = pyte.HistoryScreen(COLUMNS, ROWS, history=5000)
        self.screen.write_process_input = self.type
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        self.resize(COLUMNS, ROWS)
        own = {"TERM": "xterm-256color", "XTERM_VERSION": "pyte", "HOME": str(home), "XDG_STATE_HOME": str(home)}
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "specdec_cli", "chat", *arguments],
            env=ENVIRONMENT | own | environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C becomes a signal
            **streams,
        )
        self.started.append(self.process)
        self.slave = slave

    def resize(self, columns, rows):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def type(self, keys):
        os.write(self._master, keys.encode())

    def wait(self, text, seconds=60):
        """Until `text` (bytes written, or a str on the screen) is there."""
        end = time.monotonic() + seconds
        while not (text in self.raw if isinstance(text, bytes) else text in self.text().replace("\n", "")):
            assert time.monotonic() < end, "\n".join(self.screen.display)
            assert self._pump(), "the program ended:\n" + "\n".join(self.screen.display)
        return self

    def ready(self):
        """Until it waits for a line: the editor is drawn, its toolbar at the bottom."""
        end = time.monotonic() + 60
        while not (self.screen.display[self.screen.cursor.y].startswith("❯") and " K " in self.text()[-400:]):
            assert time.monotonic() < end, "\n".join(self.screen.display)
            assert self._pump(), "the program ended:\n" + "\n".join(self.screen.display)
        return self

    def say(self, message):
        """Types a message, sends it and waits for the next prompt."""
        prompts = self.raw.count(PROMPTS)
        self.type(message + ENTER)
        end = time.monotonic() + 60
        while self.raw.count(PROMPTS) == prompts:
            assert time.monotonic() < end, "\n".join(self.screen.display)
            assert self._pump(), "the program ended:\n" + "\n".join(self.screen.display)
        return self.ready()

    def _pump(self):
        if not select.select([self._master], [], [], 0.1)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def text(self):
        """All that was ever shown."""
        rows = ["".join(row[x].data for x in range(COLUMNS)).rstrip() for row in self.screen.history.top]
        return "\n".join(rows + [row.rstrip() for row in self.screen.display])

    def end(self):
        """(exit code, all that was shown) once the program has ended, the terminal as it was."""
        while self._pump():
            pass
        code = self.process.wait(30)
        while select.select([self._master], [], [], 0)[0]:
            self._pump()
        assert not self.screen.cursor.hidden and termios.tcgetattr(self.slave)[3] & termios.ECHO
        os.close(self.slave)
        os.close(self._master)
        return code, self.text()


@pytest.fixture(autouse=True)
def _no_chat_outlives_its_test():
    yield
    for process in Terminal.started:
        process.kill()
        process.wait(30)
    Terminal.started.clear()


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A model that never stops, slow enough to be stopped."""
    config = TINY | {"max_position_embeddings": 100_000}
    return str(tiny_folder(tmp_path_factory.mktemp("long") / "model", config, seed=1, endless=True))


def messages(path):
    return [turn.user for turn in load(path).conversation.turns]


def test_it_says_which_pair_is_loaded_and_ctrl_d_leaves(tmp_path):
    chat = Terminal(tmp_path, "-n", "12").ready()
    assert "demo pair" in chat.text() and "specdec pull" in chat.text() and "demo: target" in chat.text()
    assert "demo · K 2 · temp 0 · context 0 / 1024" in chat.text()
    chat.type(CTRL_D)
    assert chat.end()[0] == 0


def test_a_paste_of_many_lines_is_one_message(tmp_path):
    saved = tmp_path / "chat.jsonl"
    chat = Terminal(tmp_path, "-n", "8", "--save", str(saved)).ready()
    chat.type(PASTE.format("def f(a):\r    if a:\r        return 日本 🙂"))
    chat.wait("return 日").say("")
    assert messages(saved) == ["def f(a):\n    if a:\n        return 日本 🙂"]
    chat.type(CTRL_D)
    assert chat.end()[0] == 0


def test_alt_enter_and_fences_make_messages_of_several_lines(tmp_path):
    saved = tmp_path / "chat.jsonl"
    chat = Terminal(tmp_path, "-n", "8", "--save", str(saved)).ready()
    chat.say("one" + ALT_ENTER + "two")
    chat.say('"""three' + ENTER + "four" + ENTER + '"""')
    assert messages(saved) == ["one\ntwo", "three\nfour"]
    chat.type("/exit" + ENTER)
    assert chat.end()[0] == 0


def test_ctrl_c_stops_the_reply_and_the_next_turn_has_the_partial_text_as_its_history(tmp_path, endless):
    saved = tmp_path / "chat.jsonl"
    arguments = ("--target", endless, "--draft", endless, "-k", "4", "-n", "90000", "--save", str(saved))
    chat = Terminal(tmp_path, *arguments, "--no-panel").ready()
    chat.type("hello" + ENTER)
    chat.wait(b"\x1b[?2004l")
    time.sleep(2)
    chat.type(CTRL_C)
    chat.wait("interrupted: the conversation keeps the text above").ready()
    time.sleep(1.1)
    chat.say("/set max-tokens 24")
    chat.say("and then?")
    chat.type(CTRL_D)
    assert chat.end()[0] == 0
    first, second = load(saved).conversation.turns
    assert first.answer.reason == "interrupted" and first.answer.text
    session = open_session(Pair("t", endless, endless))
    history = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": first.answer.text},
        {"role": "user", "content": "and then?"},
    ]
    *_, finish = session.reply(session.conversation_tokens(history), Request(max_tokens=24, k=0))
    assert second.answer.text == finish.text.rstrip("\ufffd")
    assert second.answer.facts["cached_tokens"] > 10


def test_ctrl_c_twice_within_a_second_ends_with_130_and_gives_the_terminal_back(tmp_path, endless):
    chat = Terminal(tmp_path, "--target", endless, "--draft", endless, "-n", "90000").ready()
    chat.type("hello" + ENTER)
    chat.wait("accepted")
    chat.type(CTRL_C)
    time.sleep(0.2)
    chat.type(CTRL_C)
    code, text = chat.end()
    assert (code, "Traceback" in text) == (130, False)


def test_ctrl_c_at_the_prompt_clears_the_line_and_says_how_to_leave(tmp_path):
    chat = Terminal(tmp_path).ready()
    chat.type("half a mess" + CTRL_C)
    chat.wait("Ctrl-D or /exit leaves").ready()
    assert chat.screen.display[chat.screen.cursor.y].rstrip() == "❯"
    time.sleep(1.1)
    prompts = chat.raw.count(PROMPTS)
    chat.type(CTRL_C)
    while chat.raw.count(PROMPTS) == prompts:
        assert chat._pump()
    chat.type(CTRL_C)
    assert chat.end()[0] == 130


@pytest.mark.parametrize(
    "signals",
    [["SIGTERM"], ["SIGHUP"], ["SIGQUIT"], ["SIGTERM", "SIGTERM"], ["SIGHUP", "SIGTERM", "SIGINT"]],
    ids="+".join,
)
@pytest.mark.parametrize("replying", [False, True], ids=["at the prompt", "in a reply"])
def test_a_chat_that_is_ended_gives_the_terminal_back(tmp_path, endless, signals, replying):
    """The bug: SIGHUP, SIGQUIT and a second SIGTERM left echo off and bracketed paste on."""
    chat = Terminal(tmp_path, "--target", endless, "--draft", endless, "-n", "90000").ready()
    if replying:
        chat.type("hello" + ENTER)
        chat.wait("· round ")
    assert not termios.tcgetattr(chat.slave)[3] & termios.ECHO
    for name in signals:
        chat.process.send_signal(getattr(signal, name))
        time.sleep(0.01)
    code, text = chat.end()
    assert code == 128 + getattr(signal, signals[0]) and "Traceback" not in text
    assert chat.raw.rfind(b"\x1b[?2004l") > chat.raw.rfind(b"\x1b[?2004h")


def test_a_long_paste_that_does_not_fit_is_refused_where_the_user_looks(tmp_path):
    """The bug: the message came back, filled the screen and hid the error above it: Enter seemed dead."""
    chat = Terminal(tmp_path, "--max-context", "64").ready()
    chat.type(PASTE.format("\r".join(f"line {number} of a long paste" for number in range(200))))
    chat.wait("line 199")
    chat.type(ENTER)
    chat.wait(b"not sent:")
    rows = [row.rstrip() for row in chat.screen.display]
    assert any(row.startswith(" not sent: the conversation has ") and "holds 64" in row for row in rows[-2:]), rows
    chat.type("!")
    chat.wait("line 199 of a long paste!")
    assert not any("not sent" in row for row in chat.screen.display)
    chat.type(CTRL_C + CTRL_D)
    assert chat.end()[0] == 0


def test_an_unknown_command_is_an_error_and_nothing_is_sent(tmp_path):
    chat = Terminal(tmp_path).ready()
    chat.say("/hlep").wait("hint: the nearest: /help")
    chat.type(CTRL_D)
    code, text = chat.end()
    assert code == 0 and "error: there is no command /hlep" in text and " passes · " not in text


def test_history_outlives_the_chat_privately_and_can_be_switched_off(tmp_path):
    chat = Terminal(tmp_path).ready()
    chat.type("/stats" + ENTER)
    chat.wait("none yet").ready()
    chat.type(CTRL_D)
    assert chat.end()[0] == 0
    (found,) = tmp_path.rglob("history")
    assert stat.S_IMODE(found.stat().st_mode) == 0o600 and "/stats" in found.read_text()
    again = Terminal(tmp_path).ready()
    again.type(UP)
    again.wait("❯ /stats")
    again.type(CTRL_C + CTRL_D)
    again.end()
    private = Terminal(tmp_path, SPECDEC_NO_HISTORY="1").ready()
    private.type(UP + "/show" + ENTER)
    private.wait("overflow").ready()
    private.type(CTRL_D)
    assert private.end()[0] == 0 and "/show" not in found.read_text()


def test_a_damaged_file_is_not_loaded(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{")
    chat = Terminal(tmp_path).ready()
    chat.say(f"/load {bad}").wait("damaged:")
    chat.type(CTRL_D)
    assert chat.end()[0] == 0


def test_overflow_is_refused_with_both_numbers_and_the_message_given_back_or_the_oldest_dropped(tmp_path):
    chat = Terminal(tmp_path, "-n", "8", "--max-context", "64", "-s", "Be brief.").ready()
    chat.say("def first_function(a, b):")
    long = "def second_function(a, b, c, d, e, f, g, h, i, j, k, l):"
    chat.type(long + ENTER)
    chat.wait("and the context holds 64")
    chat.wait(f"drop-oldest leaves the oldest turns out; /clear starts anew❯ {long}")  # the message came back
    chat.say("\x15/set overflow drop-oldest")
    chat.say("def second_function(a, b, c, d):")
    chat.type(CTRL_D)
    code, text = chat.end()
    assert code == 0
    assert "left out the oldest turn: the context holds 64 tokens; the system message stays" in text


def test_a_resize_in_mid_reply_leaves_answer_and_prompt_in_order(tmp_path, endless):
    chat = Terminal(tmp_path, "--target", endless, "--draft", endless, "-n", "250").ready()
    chat.type("hello" + ENTER)
    chat.wait("accepted")
    chat.resize(60, 30)
    os.kill(chat.process.pid, signal.SIGWINCH)
    chat.wait("stopped at 250 tokens").ready()
    chat.type("wide 日本 🙂")
    chat.wait("❯ wide 日")
    chat.type(CTRL_C + CTRL_D)
    code, text = chat.end()
    assert code == 0 and "╭─ demo" not in text and text.count("tokens in") == 1


def test_keys_typed_amid_a_reply_wait_for_the_next_prompt_and_are_not_echoed_into_it(tmp_path, endless):
    chat = Terminal(tmp_path, "--target", endless, "--draft", endless, "-n", "200").ready()
    chat.type("hello" + ENTER)
    chat.wait("accepted")
    chat.type("typed ahead")
    chat.wait("stopped at 200 tokens").wait("❯ typed ahead")
    assert chat.text().count("typed ahead") == 1
    chat.type(CTRL_C + CTRL_D)
    assert chat.end()[0] == 0


def test_a_dumb_terminal_gets_plain_lines(tmp_path):
    chat = Terminal(tmp_path, "-n", "12", TERM="dumb")
    chat.wait(b"> ")
    chat.type("def f(a):\n")
    chat.wait("12 tokens in").wait(b"/set max-tokens N")
    chat.type(CTRL_D)
    code, _ = chat.end()
    assert code == 0 and b"\x1b" not in chat.raw


def test_edit_sends_what_the_editor_saved(tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf 'def f(a):\\n    return' >> \"$1\"\n")
    editor.chmod(0o755)
    saved = tmp_path / "chat.jsonl"
    chat = Terminal(tmp_path, "-n", "8", "--save", str(saved), EDITOR=str(editor), VISUAL="").ready()
    chat.say("/edit")
    assert messages(saved) == ["def f(a):\n    return"]
    chat.type(CTRL_D)
    assert chat.end()[0] == 0


def test_copy_hands_the_answer_to_the_terminals_clipboard(tmp_path):
    import base64

    saved = tmp_path / "chat.jsonl"
    chat = Terminal(tmp_path, "-n", "8", "--save", str(saved)).ready()
    chat.say("def f(a):")
    chat.type("/copy" + ENTER)
    chat.wait("handed to the terminal's clipboard").ready()
    chat.type(CTRL_D)
    chat.end()
    (copied,) = re.findall(rb"\x1b\]52;c;([^\x07]*)\x07", chat.raw)
    assert base64.b64decode(copied).decode() == load(saved).conversation.turns[0].answer.text


def piped(*arguments, stdin, **environment):
    command = [sys.executable, "-m", "specdec_cli", "chat", *arguments]
    done = subprocess.run(
        command, input=stdin.encode(), capture_output=True, env=ENVIRONMENT | environment, timeout=120
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_piped_lines_are_messages_and_stdout_holds_the_answers_alone(tmp_path):
    saved = tmp_path / "chat.jsonl"
    code, out, err = piped("-n", "8", "--save", str(saved), "-q", stdin='def f(a):\n/retry\n"""\nclass A:\n"""\n')
    turns = load(saved).conversation.turns
    assert (code, err) == (0, "")
    assert [turn.user for turn in turns] == ["def f(a):", "class A:"]
    assert out == "".join(f"{turn.answer.text}\n" for turn in (turns[0], *turns))


def test_json_turns_each_reply_into_events_and_failures_too():
    code, out, _ = piped(
        "-n", "8", "--json", "--max-context", "40", stdin="def f(a):\nclass A:\n" + "x = 1 " * 40 + "\n"
    )
    events = [json.loads(line) for line in out.splitlines()]
    kinds = [event["event"] for event in events if event["event"] != "round"]
    assert (code, kinds) == (5, ["start", "prefill", "finish"] * 2 + ["error"])
    assert events[-1]["exit_code"] == 5


def test_a_saved_chat_is_continued_with_its_pair_and_its_history(tmp_path):
    saved = tmp_path / "chat.jsonl"
    assert piped("-n", "8", "--save", str(saved), "-s", "Brief.", stdin="def f(a):\n")[0] == 0
    code, _, err = piped("-n", "8", "--resume", str(saved), stdin="class A:\n")
    assert code == 0 and "1 turn continued" in err and "\n> def f(a):\n" in err  # the last turn is shown
    conversation = load(saved).conversation
    assert [turn.user for turn in conversation.turns] == ["def f(a):", "class A:"] and conversation.system == "Brief."
    code, _, err = piped("--save", str(saved), stdin="")
    assert code == 2 and f"continue it: specdec chat --resume {saved}" in err


def test_escape_sequences_never_reach_the_terminal(tmp_path):
    """From a file, a system message, a typed command and a pair's name."""
    hostile = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md&#x202e;"
    saved = tmp_path / "chat.jsonl"
    lines = [
        {"transcript": 1, "id": "x"},
        {"role": "system", "content": hostile},
        {"role": "user", "content": hostile},
        {"role": "assistant", "content": hostile, "thinking": hostile, "reason": hostile},
    ]
    saved.write_text("".join(json.dumps(line) + "\n" for line in lines))
    commands = ["/show", "/show last", "/show all", "/show thinking", "/system", f"/{hostile}", f"/pair {hostile}"]
    code, out, err = piped("--resume", str(saved), stdin="\n".join([*commands, f"/load {hostile}", ""]))
    assert code == 2 and out == "" and "abcd" in err
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", err), ascii(err)


def test_a_first_message_is_an_argument(tmp_path):
    saved = tmp_path / "chat.jsonl"
    code, _, err = piped("def f(a):", "-n", "8", "--save", str(saved), stdin="class A:\n")
    assert code == 0 and messages(saved) == ["def f(a):", "class A:"] and "> def f(a):" in err
    assert piped("", stdin="")[0] == 2
