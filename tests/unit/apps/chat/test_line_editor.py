"""The line editor's keys, driven through prompt_toolkit's pipe input: no terminal needed."""

from __future__ import annotations

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

from specdec_cli.apps.chat.commands import suggestions
from specdec_cli.apps.chat.line_editor import LineEditor, open_history
from specdec_cli.apps.chat.talk import is_open


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
        ("a\rb\nc\r", "a\nb\nc"),  # more is there with Enter: a paste that nobody marked
        ("/k 4\rhello\r", "/k 4"),  # a command is a line, typed ahead or not
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


def test_ctrl_c_and_ctrl_d_are_told_apart():
    with pytest.raises(KeyboardInterrupt):
        typed("half\x03")
    with pytest.raises(EOFError):
        typed("\x04")
    assert typed("half\x04\r") == "half"


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


@pytest.mark.parametrize("presses", [1, 3])
def test_a_signal_while_the_editor_opens_is_left_aside_and_one_from_a_key_is_not(presses):
    """The bugs: prompt_toolkit handled it amid the making of its loop, and the chat ended: "Event loop is closed"."""
    with create_pipe_input() as keyboard:
        left = [presses]

        def toolbar(width):
            while left[0]:
                left[0] -= 1
                signal.raise_signal(signal.SIGINT)
            return "bar"

        editor = editor_of(keyboard, toolbar=toolbar)
        keyboard.send_text("hello\r")
        assert editor.read("") == "hello"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_end_between_the_first_frame_and_the_first_key_leaves_no_paste_marked(monkeypatch):
    written = io.StringIO()
    output = Vt100_Output(written, lambda: Size(24, 80), enable_cpr=False)

    def end(*_):
        raise SystemExit(143)

    # What prompt_toolkit does next once the first frame is drawn.
    monkeypatch.setattr(Application, "_start_auto_refresh_task", end)
    with create_pipe_input() as keyboard, pytest.raises(SystemExit):
        editor_of(keyboard, output=output).read("")
    drawn = written.getvalue()
    assert 0 < drawn.rfind("\x1b[?2004h") < drawn.rfind("\x1b[?2004l")


def test_the_history_file_is_private_and_keeps_several_lines_together(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    open_history(True).store_string("a\nb")
    (path,) = tmp_path.rglob("history")
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)]
    assert modes == [0o600, 0o700] and list(open_history(True).load_history_strings()) == ["a\nb"]
    assert isinstance(open_history(False), InMemoryHistory)
    path.unlink()
    path.mkdir()
    assert isinstance(open_history(True), InMemoryHistory)
