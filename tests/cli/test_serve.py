"""`specdec serve` as a person starts it: what is refused before any model, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest


def test_another_interface_needs_a_key(specdec):
    code, message, hint = specdec.refused("serve", "--host", "0.0.0.0")
    assert (code, message) == (2, "--host 0.0.0.0 lets other machines in, and there is no key")
    assert hint == "give one: --api-key-file FILE, or SPECDEC_API_KEY in the environment"


def test_a_port_in_use_is_named_with_the_next(specdec):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, message, hint = specdec.refused("serve", "--port", port)
    assert (code, message) == (1, f"port {port} of 127.0.0.1 is in use by another program")
    assert hint == f"take another: --port {port + 1}"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--port", "70000"), "--port 70000 is outside 0 to 65535"),
        (("--host", "no.such.invalid"), "--host no.such.invalid lets other machines in, and there is no key"),
        (("--api-key-file", "/none/such"), "--api-key-file /none/such cannot be read: No such file or directory"),
        (("--allow-origin", "localhost"), "--allow-origin localhost is no origin of a page"),
        (("--idle-unload", "soon"), "--idle-unload soon is no time"),
        (("--log", "/none/such/log"), "--log /none/such/log cannot be written: No such file or directory"),
        (("-k", "99"), "-k 99 is outside 0 to 16"),
    ],
)
def test_what_is_wrong_is_refused_before_any_model(specdec, arguments, message):
    assert specdec.refused("serve", *arguments)[:2] == (2, message)


def test_an_empty_key_is_no_key(specdec, monkeypatch, tmp_path):
    (tmp_path / "key").write_text("\n")
    assert specdec.refused("serve", "--api-key-file", tmp_path / "key")[0] == 2
    monkeypatch.setenv("SPECDEC_API_KEY", "")
    assert specdec.refused("serve")[:2] == (2, "SPECDEC_API_KEY holds no key: one line of ASCII is expected")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@pytest.fixture
def running(tmp_path):
    """A server as a process: (process, port)."""
    port = free_port()
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "COLUMNS": "80"}
    command = [sys.executable, "-m", "specdec_cli", "serve", "--port", str(port), "--log", str(tmp_path / "log")]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline and process.poll() is None, process.stderr.read()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    yield process, port
    process.kill()
    process.communicate()


def post(port, stream):
    body = json.dumps({"prompt": "def f(", "max_tokens": 900, "stream": stream}).encode()
    headers = {"Content-Type": "application/json"}
    return urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, headers)


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once_during_an_answer(running, tmp_path):
    process, port = running
    with urllib.request.urlopen(post(port, stream=True), timeout=60) as reply:
        assert reply.readline().startswith(b"data: ")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert (process.returncode, out) == (130, "") and "Traceback" not in err
    lines = err.splitlines()
    assert lines[1] == f"demo answers this machine alone. OpenAI's clients take http://127.0.0.1:{port}/v1,"
    assert "completions left" in lines[-1]
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "log").read_text())["prompt"] == "def f("


@pytest.mark.slow
def test_a_browser_finds_a_chat(running):
    with urllib.request.urlopen(f"http://127.0.0.1:{running[1]}/", timeout=60) as reply:
        assert reply.headers["content-type"].startswith("text/html") and b"/page/main.js" in reply.read()


@pytest.mark.slow
def test_a_second_server_says_that_the_first_is_there(running, specdec):
    port = running[1]
    assert specdec.refused("serve", "--port", port)[:2] == (
        1,
        f"port {port} of 127.0.0.1 is in use by another specdec server",
    )
