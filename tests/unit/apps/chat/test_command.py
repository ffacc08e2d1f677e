"""`specdec chat` as a person uses it: the whole program on a pseudo-terminal that answers like a real one."""

from __future__ import annotations

import base64
import json
import re
import signal
import termios
import time

import pytest

from fakes.terminal import Terminal
from specdec_cli.session.transcript import load

pytestmark = pytest.mark.slow
PASTE = "\x1b[200~{}\x1b[201~"
ALT_ENTER, ENTER, CTRL_C, CTRL_D, UP = "\x1b\r", "\r", "\x03", "\x04", "\x1b[A"


def chat_on(home, *arguments, **environment):
    named = {"-p", "--target", "--resume", "--pair"} & set(arguments) or "SPECDEC_PAIR" in environment
    return Terminal(home, "chat", *(() if named else ("-p", "demo")), *arguments, **environment)


@pytest.fixture(autouse=True)
def _no_chat_outlives_its_test():
    yield
    for process in Terminal.started:
        process.kill()
        process.wait(30)
    Terminal.started.clear()


def messages(path):
    return [turn.user for turn in load(path).conversation.turns]


def test_it_says_which_pair_is_loaded_and_takes_a_paste_alt_enter_and_fences_as_one_message_each(tmp_path):
    saved = tmp_path / "chat.jsonl"
    chat = chat_on(tmp_path, "-n", "8", "--save", saved).ready()
    assert "demo pair" in chat.text() and "specdec pull" in chat.text() and "demo: target" in chat.text()
    assert "demo · K 2 · temp 0 · context 0 / 1024" in chat.text()
    chat.type(PASTE.format("def f(a):\r    if a:\r        return 日本 🙂"))
    chat.wait("return 日").say("")
    chat.say("one" + ALT_ENTER + "two")
    chat.say('"""three' + ENTER + "four" + ENTER + '"""')
    assert messages(saved) == ["def f(a):\n    if a:\n        return 日本 🙂", "one\ntwo", "three\nfour"]
    chat.type("/exit" + ENTER)
    assert chat.end()[0] == 0


@pytest.mark.parametrize(
    ("moment", "ends", "code"),
    [
        ("loading", [PASTE.format("a\rb"), CTRL_C], 130),
        ("ready", ["SIGTERM"], 143),
        ("ready", ["SIGQUIT"], 131),
        ("replying", [CTRL_C, CTRL_C], 130),
        ("replying", ["SIGTERM", "SIGTERM"], 143),
        ("replying", ["SIGHUP", "SIGTERM", "SIGINT"], 129),
    ],
    ids=str,
)
def test_a_chat_that_is_ended_at_any_moment_gives_the_terminal_back(tmp_path, endless, moment, ends, code):
    """By signals, and by keys. The bug: SIGHUP, SIGQUIT and a second SIGTERM left echo off and bracketed paste on."""
    chat = chat_on(tmp_path, "--target", endless, "--draft", endless, "-n", "90000").wait(b"\x1b[?2004h")
    if moment != "loading":
        chat.ready()
    if moment == "replying":
        chat.type("hello" + ENTER)
        chat.wait("· round ")
    assert moment == "loading" or not termios.tcgetattr(chat.slave)[3] & termios.ECHO
    for end in ends:
        chat.send(getattr(signal, end)) if end.startswith("SIG") else chat.type(end)
        time.sleep(0.01 if end.startswith("SIG") else 0.2)
    found, text = chat.end()
    assert (found, "Traceback" in text) == (code, False)
    assert chat.raw.rfind(b"\x1b[?2004l") > chat.raw.rfind(b"\x1b[?2004h")


def test_a_long_paste_that_does_not_fit_is_refused_where_the_user_looks(tmp_path):
    """The bug: the message came back, filled the screen and hid the error above it: Enter seemed dead."""
    chat = chat_on(tmp_path, "--max-context", "64").ready()
    chat.type(PASTE.format("\r".join(f"line {number} of a long paste" for number in range(200))))
    chat.wait("line 199")
    chat.type(ENTER)
    chat.wait(b"not sent:")
    rows = [row.rstrip() for row in chat.screen.display]
    assert any(row.startswith(" not sent: prompt is too long: ") and "> 63 maximum" in row for row in rows[-2:]), rows
    chat.type("!")
    chat.wait("line 199 of a long paste!")
    assert not any("not sent" in row for row in chat.screen.display)
    chat.type(CTRL_C + CTRL_D)
    assert chat.end()[0] == 0


def test_keys_typed_amid_a_reply_wait_for_the_next_prompt_and_are_not_echoed_into_it(tmp_path, endless):
    chat = chat_on(tmp_path, "--target", endless, "--draft", endless, "-n", "200").ready()
    chat.type("hello" + ENTER)
    chat.wait("accepted")
    chat.type("typed ahead")
    chat.wait("stopped at --max-tokens 200").wait("❯ typed ahead")
    assert chat.text().count("typed ahead") == 1
    chat.type(CTRL_C + CTRL_D)
    assert chat.end()[0] == 0


LINES = [f"x{number} = {number}" for number in range(200)]


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "bare"])
@pytest.mark.parametrize("moment", ["started", "loading", "replying"])
def test_a_paste_before_the_prompt_is_one_message_with_its_lines(tmp_path, endless, moment, marked):
    """The bug: each line of a paste while the model loaded was sent as a message of its own: 200 answers."""
    saved = tmp_path / "chat.jsonl"
    chat = chat_on(tmp_path, "--target", endless, "--draft", endless, "-n", "100", "--save", str(saved))
    if moment == "loading":
        chat.wait(b"\x1b[?2004h")
    elif moment == "replying":
        chat.ready().type("hello" + ENTER)
        chat.wait("accepted")
    chat.type(PASTE.format("\r".join(LINES)) if marked else "\r".join(LINES))
    chat.wait("x199 = 199").type(ENTER)
    while not saved.exists() or "x199" not in saved.read_text():
        assert chat.pump()
    chat.ready().type(CTRL_D)
    assert chat.end()[0] == 0
    assert messages(saved)[-1].splitlines() == LINES and len(messages(saved)) == 1 + (moment == "replying")


def test_without_an_editor_a_paste_is_one_message_too(tmp_path):
    saved = tmp_path / "chat.jsonl"
    chat = chat_on(tmp_path, "--plain", "-n", "8", "--save", saved)
    chat.type("\r".join(LINES[:50]) + ENTER)
    chat.wait("stopped at --max-tokens 8")
    chat.type(CTRL_D)
    assert chat.end()[0] == 0
    assert [message.splitlines() for message in messages(saved)] == [LINES[:50]]


@pytest.fixture
def piped(specdec):
    """A chat whose messages come through a pipe, in this process."""

    def chat(*arguments, stdin):
        named = () if "--resume" in arguments else ("-p", "demo")
        return specdec("chat", *named, *arguments, stdin=stdin.encode())

    return chat


def test_piped_lines_are_messages_and_stdout_holds_the_answers_alone(piped, tmp_path):
    saved = tmp_path / "chat.jsonl"
    code, out, err = piped("-n", "8", "--save", str(saved), "-q", stdin='def f(a):\n/retry\n"""\nclass A:\n"""\n')
    turns = load(saved).conversation.turns
    assert (code, err) == (0, "")
    assert [turn.user for turn in turns] == ["def f(a):", "class A:"]
    assert out == "".join(f"{turn.answer.text}\n" for turn in (turns[0], *turns))


def test_json_turns_each_reply_into_events_and_failures_too(piped):
    code, out, _ = piped(
        "-n", "8", "--json", "--max-context", "40", stdin="def f(a):\nclass A:\n" + "x = 1 " * 40 + "\n"
    )
    events = [json.loads(line) for line in out.splitlines()]
    kinds = [event["event"] for event in events if event["event"] != "round"]
    assert (code, kinds) == (5, ["start", "prefill", "finish"] * 2 + ["error"])
    assert events[-1]["exit_code"] == 5


@pytest.mark.macos
def test_a_saved_chat_is_continued_with_its_pair_and_its_history(piped, tmp_path):
    saved = tmp_path / "chat.jsonl"
    assert piped("-n", "8", "--save", str(saved), "-s", "Brief.", stdin="def f(a):\n")[0] == 0
    code, _, err = piped("-n", "8", "--resume", str(saved), stdin="class A:\n")
    assert code == 0 and "1 turn continued" in err and "\n> def f(a):\n" in err  # the last turn is shown
    conversation = load(saved).conversation
    assert [turn.user for turn in conversation.turns] == ["def f(a):", "class A:"] and conversation.system == "Brief."
    code, _, err = piped("--save", str(saved), stdin="")
    assert code == 2 and f"continue it: specdec chat --resume {saved}" in err


def test_escape_sequences_never_reach_the_terminal(piped, tmp_path):
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
    code, out, err = piped("-p", "demo", "--resume", str(saved), stdin="\n".join([*commands, f"/load {hostile}", ""]))
    assert code == 2 and out == "" and "abcd" in err
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", err), ascii(err)


def test_a_first_message_is_an_argument(piped, tmp_path):
    saved = tmp_path / "chat.jsonl"
    code, _, err = piped("def f(a):", "-n", "8", "--save", str(saved), stdin="class A:\n")
    assert code == 0 and messages(saved) == ["def f(a):", "class A:"] and "> def f(a):" in err
    assert piped("", stdin="")[0] == 2


def test_copy_hands_the_answer_to_the_terminals_clipboard(tmp_path):
    saved = tmp_path / "chat.jsonl"
    chat = chat_on(tmp_path, "-n", "8", "--save", saved).ready()
    chat.say("def f(a):")
    chat.type("/copy" + ENTER)
    chat.wait("sent to the terminal's clipboard").ready()
    chat.type(CTRL_D)
    assert chat.end()[0] == 0
    (copied,) = re.findall(rb"\x1b\]52;c;([^\x07]*)\x07", chat.raw)
    assert base64.b64decode(copied).decode() == load(saved).conversation.turns[0].answer.text
