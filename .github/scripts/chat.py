"""chat.py SPECDEC: a chat on a terminal that is suspended with Ctrl-Z, goes on, answers and ends."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time

import pexpect

SECONDS = 120


def stopped(pid: int) -> bool:
    """Whether that child of ours is stopped; waits for it."""
    for _ in range(SECONDS * 10):
        found, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
        if found:
            return os.WIFSTOPPED(status)
        time.sleep(0.1)
    return False


def main(specdec: str) -> str | None:
    settings = os.environ | {"TERM": "xterm-256color", "XDG_STATE_HOME": tempfile.mkdtemp()}
    words = ["chat", "-p", "demo", "-n", "16"]
    chat = pexpect.spawn(specdec, words, env=settings, dimensions=(40, 100), timeout=SECONDS)
    chat.delaybeforesend = 0.3
    chat.expect("demo")
    chat.expect("\x1b\\[6n")  # the editor asks where it stands
    chat.send("\x1b[1;1R")
    chat.send("\x1a")
    if not stopped(chat.pid):
        return "error: Ctrl-Z did not stop the chat\nhint: see tests/ui/test_suspension.py"
    os.kill(chat.pid, signal.SIGCONT)
    chat.send("def f(\r")
    chat.expect("tok/s|tokens")
    chat.send("\x04")
    while chat.isalive():
        try:
            chat.read_nonblocking(65536, timeout=1)
        except (pexpect.TIMEOUT, pexpect.EOF):
            continue
    return f"error: the chat ended with {chat.exitstatus}\nhint: 0 is wanted" if chat.exitstatus else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
