"""chat.py SPECDEC: a chat in a shell on a terminal: it is suspended with Ctrl-Z, goes on with fg, answers and ends."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pexpect

SECONDS = 120
WHERE = "\x1b\\[6n"  # the editor asks the terminal where it stands
HERE = "\x1b[1;1R"


def main(specdec: str) -> str | None:
    settings = os.environ | {"TERM": "xterm-256color", "PS1": "shell> ", "XDG_STATE_HOME": tempfile.mkdtemp()}
    words = ["--norc", "--noprofile", "-i"]
    shell = pexpect.spawn("bash", words, env=settings, dimensions=(40, 100), timeout=SECONDS)
    shell.delaybeforesend = 0.5
    try:
        shell.expect("shell> ")
        shell.sendline(f"{Path(specdec).absolute()} chat -p demo -n 16")
        shell.expect(WHERE)
        shell.send(HERE)
        shell.send("\x1a")
        shell.expect("Stopped")
        shell.sendline("fg")
        shell.expect("specdec")
        shell.send(HERE + "def f(\r")
        shell.expect(r"\d tok/s")
        shell.send(HERE + "\x04")
        shell.expect("shell> ")
        shell.sendline("echo ended $?.")
        shell.expect(r"ended (\d+)\.")
    except (pexpect.TIMEOUT, pexpect.EOF):
        return f"error: the chat did not go on after {shell.before!r}\nhint: see tests/unit/ui/test_suspension.py"
    code = int(shell.match[1])
    return f"error: the chat ended with {code}\nhint: 0 is wanted" if code else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
