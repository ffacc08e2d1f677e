"""A message written in the user's own editor. The editor is a function in place of a process."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pytest

from specdec_cli.chat.editor import compose
from specdec_cli.errors import SpecdecError, UsageError


@pytest.fixture
def editor(monkeypatch):
    """The commands that were started. `editor.write` is the text saved, `editor.code` the exit code."""

    class Editor:
        write, code, seen, mode = None, 0, "", 0

        def __init__(self):
            self.commands = []

        def __call__(self, command):
            self.commands.append(command)
            path = Path(command[-1])
            self.seen, self.mode = path.read_text(), stat.S_IMODE(path.stat().st_mode)
            if self.write is not None:
                path.write_text(self.write)
            return self.code

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    found = Editor()
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("subprocess.call", found)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "nano")
    return found


def test_the_message_is_what_was_saved_without_the_editors_newline(editor):
    editor.write = "two\nlines\n"
    assert compose("begun") == "two\nlines" and editor.seen == "begun"


def test_visual_comes_before_editor_and_may_have_arguments(editor, monkeypatch):
    monkeypatch.setenv("VISUAL", "code --wait 'a b'")
    assert compose("") == "" and editor.commands[0][:-1] == ["code", "--wait", "a b"]


def test_the_file_is_private_and_gone_afterwards(editor):
    compose("secret")
    assert editor.mode == 0o600 and not Path(editor.commands[0][-1]).exists()


def test_an_editor_that_fails_sends_nothing_and_leaves_no_file(editor):
    editor.code = 3
    with pytest.raises(SpecdecError, match="nano ended with code 3"):
        compose("secret")
    assert not Path(editor.commands[0][-1]).exists()


def test_an_editor_that_is_not_there_is_named(editor, monkeypatch):
    def absent(command):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("subprocess.call", absent)
    with pytest.raises(SpecdecError, match="nano cannot be started: No such file"):
        compose("")


def test_without_a_terminal_there_is_no_editor(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(UsageError, match="/edit needs a terminal"):
        compose("")
