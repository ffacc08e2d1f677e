"""Options that name a file, and a pipe at its place."""

from __future__ import annotations

import os

import pytest

OPTIONS = {
    "--file": ("run", "-p", "demo", "--raw"),
    "--schema": ("run", "-p", "demo", "--raw", "x"),
    "--grammar": ("run", "-p", "demo", "--raw", "x"),
    "--predict": ("run", "-p", "demo", "--raw", "x"),
    "--prompts": ("bench", "-p", "demo"),
    "--api-key-file": ("serve", "-p", "demo"),
    "--resume": ("chat", "-p", "demo"),
    "--text": ("tune", "-p", "demo"),
    "": ("replay",),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_names_a_file_refuses_a_pipe_that_nobody_writes_to(specdec, tmp_path, option):
    """All but chats and `--text` hung for ever, without a word."""
    os.mkfifo(fifo := tmp_path / "fifo")
    code, message, _ = specdec.refused(*OPTIONS[option], *filter(None, [option]), fifo)
    assert code == 2 and str(fifo) in message and ("a pipe" in message or "neither" in message)
