"""The line editor's keys, driven through prompt_toolkit's pipe input: no terminal needed."""

from __future__ import annotations

import asyncio
import io
import itertools
import signal
import stat
import threading

import pytest
from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.output.vt100 import Vt100_Output

from specdec_cli.chat.commands import suggestions
from specdec_cli.chat.loop import is_open
from specdec_cli.ui.chat import line_editor
from specdec_cli.ui.chat.line_editor import KEPT_ENTRIES, LineEditor, PrivateHistory, open_history


def editor_of(keyboard, history=None, output=None, toolbar=lambda width: "bar", is_open=is_open):
    return LineEditor(
        history or InMemoryHistory(),
        toolbar,
        io.StringIO(),
        keyboard,
        output or DummyOutput(),
        complete=suggestions,
        is_open=is_open,
    )


def typed(keys, text="", history=None):
    """What the editor returns for these keys."""
    with create_pipe_input() as keyboard:
        keyboard.send_text(keys)
        return editor_of(keyboard, history).read(text)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("hello\r", "hello"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("\x1b[200~a\rb\nc\r\n\x1b[201~\r", "a\nb\nc\n"),
        ('"""a\rb\r"""\r', '"""a\nb\n"""'),
        ('say """ twice\r', 'say """ twice'),
        ("wide 日本 🙂\x7f!\r", "wide 日本 !"),
    ],
)
def test_keys_make_messages(keys, message):
    assert typed(keys) == message


@pytest.mark.parametrize("keys", [b"a\xffb\r", b"\x1b[200~a\xffb\x1b[201~\r"], ids=["typed", "pasted"])
def test_a_byte_that_is_not_utf_8_comes_back_as_one_sign_typed_or_pasted(keys):
    """The bug: it reached the history and the tokenizer as half a character, which neither can write."""
    history = InMemoryHistory()
    with create_pipe_input() as keyboard:
        keyboard.send_bytes(keys)
        assert editor_of(keyboard, history).read("") == "a\ufffdb"


def test_a_message_that_was_given_back_can_be_edited():
    assert typed(" again\r", "hello") == "hello again"


def test_a_message_from_a_file_is_filtered_before_it_is_drawn():
    assert typed("\r", "a\x1b[2Jb\u202e\nc") == "ab\nc"


@pytest.mark.parametrize("ending", ["enter", "Ctrl-C"])
@pytest.mark.parametrize("steps", range(6))
def test_a_signal_while_a_line_ends_leaves_an_editor_that_reads_the_next_line(steps, ending, caplog):
    """The bug: prompt_toolkit handled it after the application's end and left a task in the closed loop.

    The next key cancelled that task, and the chat ended with "Event loop is closed".
    """
    raised, read = [], []

    def press(wait):
        if wait:
            asyncio.get_running_loop().call_soon(press, wait - 1)
        else:
            raised.append(signal.raise_signal(signal.SIGINT))

    def end_and_press(text):
        if not raised:
            press(steps)
            if ending == "Ctrl-C":
                signal.raise_signal(signal.SIGINT)
        return False

    with create_pipe_input() as keyboard:
        editor = editor_of(keyboard, is_open=end_and_press)
        keyboard.send_text("hello\r")
        for _ in range(4):
            try:
                read.append(editor.read(""))
            except KeyboardInterrupt:
                read.append(None)
            keyboard.send_text("next\r")
    assert raised and set(read) <= {"hello", "next", None} and read[-1] == "next" and read.count(None) <= 2
    assert not caplog.records and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_each_of_two_signals_ends_a_line_wherever_the_first_one_is():
    """The bug: asyncio forgot a press between its handler's installation and its first step, and was cancelled."""
    with create_pipe_input() as keyboard:
        presses = [2]

        def toolbar(width):
            while presses[0]:
                presses[0] -= 1
                signal.raise_signal(signal.SIGINT)
            return "bar"

        editor = editor_of(keyboard, toolbar=toolbar)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                editor.read("")
        keyboard.send_text("hello\r")
        assert editor.read("") == "hello"


def test_ctrl_c_and_ctrl_d_are_told_apart():
    with pytest.raises(KeyboardInterrupt):
        typed("half\x03")
    with pytest.raises(EOFError):
        typed("\x04")
    assert typed("half\x04\r") == "half"


@pytest.mark.parametrize("ending", [SystemExit(143), KeyboardInterrupt()])
def test_a_signal_between_the_first_frame_and_the_first_key_leaves_no_paste_marked(monkeypatch, ending):
    written = io.StringIO()
    output = Vt100_Output(written, lambda: Size(24, 80), enable_cpr=False)

    def end(*_):
        raise ending

    # What prompt_toolkit does next once the first frame is drawn.
    monkeypatch.setattr(Application, "_start_auto_refresh_task", end)
    with create_pipe_input() as keyboard, pytest.raises(type(ending)):
        editor_of(keyboard, output=output).read("")
    drawn = written.getvalue()
    assert 0 < drawn.rfind("\x1b[?2004h") < drawn.rfind("\x1b[?2004l")


@pytest.mark.slow
def test_tab_completes_commands_and_pair_names():
    for keys, line in (("/ret", "/retry"), ("/pair dem", "/pair demo")):
        with create_pipe_input() as keyboard:
            editor, over = editor_of(keyboard), threading.Event()

            def press(keyboard=keyboard, over=over):
                following = itertools.chain("\t", itertools.repeat("\r"))
                while not over.wait(1.5):  # completions come a moment later
                    keyboard.send_text(next(following))

            keyboard.send_text(keys)
            thread = threading.Thread(target=press)
            thread.start()
            try:
                assert editor.read("") == line
            finally:
                over.set()
                thread.join()


def test_up_brings_back_the_last_line():
    history = InMemoryHistory(["first", "second\nof two"])
    assert typed("\x1b[A\r", history=history) == "second\nof two"


def test_the_history_file_is_private_keeps_several_lines_together_and_stays_short(tmp_path):
    path = tmp_path / "state" / "history"
    PrivateHistory(path).store_string("a\nb")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    history = PrivateHistory(path)
    assert list(history.load_history_strings()) == ["a\nb"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for number in range(KEPT_ENTRIES):
        history.store_string(f"line {number}")
    kept = list(PrivateHistory(path).load_history_strings())
    assert len(kept) == KEPT_ENTRIES // 2 and kept[0] == f"line {KEPT_ENTRIES - 1}"


def test_a_history_that_cannot_be_written_is_forgotten_after_the_chat(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(line_editor, "history_file", lambda: tmp_path / "file" / "history")
    assert isinstance(open_history(True), InMemoryHistory)
    assert isinstance(open_history(False), InMemoryHistory)
