"""`specdec serve` on a terminal: the panel of what it does, and the terminal as it was afterwards."""

import json
import os
import re
import signal
import socket
import sys
import termios
import time
import urllib.request

import pexpect
import pyte
import pytest

pytestmark = pytest.mark.slow


class Window:
    """A server in a terminal of its own."""

    def __init__(self, columns, rows, *options, **environment):
        names = ("NO_COLOR", "COLUMNS", "LINES", "XTERM_VERSION", "TMUX")
        settings = {key: value for key, value in os.environ.items() if key not in names}
        settings |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment}
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.screen = pyte.HistoryScreen(columns, rows, history=500)
        self._stream, self.raw = pyte.ByteStream(self.screen), b""
        command = ["-m", "specdec_cli", "serve", "--pair", "demo", "--port", str(self.port), *options]
        self.child = pexpect.spawn(sys.executable, command, env=settings, dimensions=(rows, columns), timeout=90)

    def wait_for(self, found, seconds=90):
        """Reads on until `found(lines)` holds."""
        end = time.monotonic() + seconds
        while not found(lines := self.lines()):
            assert time.monotonic() < end, "\n".join(lines)
            self.read(0.1)
        return self.lines()

    def read(self, seconds):
        try:
            data = self.child.read_nonblocking(65536, timeout=seconds)
        except pexpect.TIMEOUT:
            return
        self.raw += data
        self._stream.feed(data)

    def lines(self):
        return [row.rstrip() for row in self.screen.display if row.strip()]

    def ended(self):
        """(exit code, last lines)."""
        try:
            while True:
                self.read(90)
        except pexpect.EOF:
            pass
        self.child.close()
        return self.child.exitstatus, self.lines()

    def post(self, **body):
        data = json.dumps({"prompt": "def f(", "max_tokens": 900, **body}).encode()
        url = f"http://127.0.0.1:{self.port}/v1/completions"
        return urllib.request.urlopen(
            urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=90
        )


@pytest.fixture
def window(request):
    made = Window(80, 30, *getattr(request, "param", ()))
    yield made
    made.child.close(force=True)


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143)])
def test_a_running_answer_is_on_the_panel_and_a_signal_gives_the_terminal_back(window, number, code):
    window.wait_for(lambda lines: any("no requests running" in line for line in lines))
    before = termios.tcgetattr(window.child.child_fd)
    assert not before[3] & termios.ECHO and window.screen.cursor.hidden
    with window.post(stream=True) as reply:
        assert reply.readline().startswith(b"data: ")
        lines = window.wait_for(lambda lines: any(re.search(r"completions .* \d+ %", line) for line in lines))
        assert any(line.startswith("│ rounds") for line in lines) and any("1 running" in line for line in lines)
        window.child.kill(number)
        found, lines = window.ended()
    assert found == code and not window.screen.cursor.hidden
    assert not any("╭─ demo · http" in line for line in lines) and "completions cut short" in lines[-2]
    assert lines[-1].startswith("1 request, ") and b"Traceback" not in window.raw


@pytest.mark.parametrize("window", [("--no-panel",), ("--quiet",)], indirect=True)
def test_who_wants_no_panel_gets_none(window):
    quiet = "--quiet" in window.child.args
    deadline = time.monotonic() + 90
    while True:
        try:
            with window.post(max_tokens=4) as reply:
                assert json.load(reply)["choices"]
            break
        except OSError:
            assert time.monotonic() < deadline
            window.read(0.2)
    if not quiet:
        window.wait_for(lambda lines: any("completions  " in line for line in lines))
    window.child.kill(signal.SIGINT)
    code, lines = window.ended()
    assert code == 130 and not any("╭─ demo · http" in line for line in lines)
    assert any("completions  " in line for line in lines) != quiet
