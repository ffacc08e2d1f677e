"""The whole program on a pseudo-terminal that answers like a real one, and what a person would see there."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import ClassVar

import pyte

OWN = ("NO_COLOR", "COLUMNS", "LINES", "PAGER", "LESS")
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in OWN}
COLUMNS, ROWS = 80, 40
PROMPTS = b"\x1b[6n"  # the editor of a chat asks once where it begins


class Terminal:
    """One command on a pty of its own; what it asks the terminal (where is the cursor?) is answered."""

    started: ClassVar[list[subprocess.Popen]] = []

    def __init__(self, home, *arguments, program=(sys.executable, "-m", "specdec_cli"), rows=ROWS, **environment):
        self.screen = pyte.HistoryScreen(COLUMNS, rows, history=5000)
        self.screen.write_process_input = self.type
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
        own = {"TERM": "xterm-256color", "HOME": str(home)}
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.process = subprocess.Popen(
            [*program, *map(str, arguments)],
            env=ENVIRONMENT | own | environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C becomes a signal
            **streams,
        )
        self.started.append(self.process)
        self.slave = slave

    def send(self, number):
        """A signal for the program alone."""
        self.process.send_signal(number)

    def type(self, keys):
        os.write(self._master, keys.encode())

    def wait(self, text, seconds=60):
        """Until `text` (bytes written, or a str on the screen) is there."""
        end = time.monotonic() + seconds
        while not (text in self.raw if isinstance(text, bytes) else text in self.text().replace("\n", "")):
            assert time.monotonic() < end, "\n".join(self.screen.display)
            assert self.pump(), "the program ended:\n" + "\n".join(self.screen.display)
        return self

    def ready(self):
        """Until it waits for a line: the editor is drawn, its toolbar at the bottom."""
        end = time.monotonic() + 60
        while not (self.screen.display[self.screen.cursor.y].startswith("❯") and " K " in self.text()[-400:]):
            assert time.monotonic() < end, "\n".join(self.screen.display)
            assert self.pump(), "the program ended:\n" + "\n".join(self.screen.display)
        return self

    def say(self, message):
        """Types a message, sends it and waits for the next prompt."""
        prompts = self.raw.count(PROMPTS)
        self.type(message + "\r")
        end = time.monotonic() + 60
        while self.raw.count(PROMPTS) == prompts:
            assert time.monotonic() < end, "\n".join(self.screen.display)
            assert self.pump(), "the program ended:\n" + "\n".join(self.screen.display)
        return self.ready()

    def pump(self):
        if not select.select([self._master], [], [], 0.1)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def settle(self, seconds):
        """Reads on for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.pump()
        return self

    def lines(self):
        """Every row that was ever shown."""
        rows = ["".join(row[x].data for x in range(COLUMNS)).rstrip() for row in self.screen.history.top]
        return rows + [row.rstrip() for row in self.screen.display]

    def text(self):
        return "\n".join(self.lines())

    def end(self):
        """(exit code, all that was shown) once the program has ended, the terminal as it was."""
        while self.pump():
            pass
        code = self.process.wait(30)
        while select.select([self._master], [], [], 0)[0]:
            self.pump()
        assert not self.screen.cursor.hidden and termios.tcgetattr(self.slave)[3] & termios.ECHO
        os.close(self.slave)
        os.close(self._master)
        return code, self.text()
