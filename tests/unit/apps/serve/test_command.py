"""`specdec serve` as a person starts it: what is refused before any model, and how it ends."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import mlx.core as mx
import pytest

from fakes.models import tiny_folder


@pytest.mark.slow
def test_a_port_in_use_is_named_with_the_next(specdec):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, message, hint = specdec.refused("serve", "-p", "demo", "--port", port)
    assert (code, message) == (1, f"port {port} of 127.0.0.1 is in use by another program")
    assert hint == f"use another: --port {port + 1}"


@pytest.mark.slow
@pytest.mark.macos
def test_a_pair_that_does_not_load_is_refused_as_run_refuses_it(tmp_path):
    """`serve` said it and was then aborted, with exit code 134, in five of five."""
    target, draft = tiny_folder(tmp_path / "target"), tiny_folder(tmp_path / "draft")
    weights = mx.load(str(draft / "model.safetensors"))
    mx.eval(weights.pop(max(weights)), weights)
    mx.save_safetensors(str(draft / "model.safetensors"), weights)
    models, said = ["--target", target, "--draft", draft], []
    for words in (["run", *models, "hi"], ["serve", *models, "--port", "0"], ["serve", *models, "--port", "0", "-q"]):
        done = subprocess.run([sys.executable, "-m", "specdec_cli", *map(str, words)], capture_output=True, text=True)
        said.append((done.returncode, done.stdout, done.stderr))
    assert said[0][0] == 3 and said[0][2].startswith("error: ") and said[0] == said[1] == said[2]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def started(port, *options, **more):
    """A server as a process, which answers."""
    environment = os.environ | {"COLUMNS": "80"}
    command = [sys.executable, "-m", "specdec_cli", "serve", "-p", "demo", "--port", str(port), *map(str, options)]
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more
    )
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline and process.poll() is None, process.stderr.read()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    return process


@pytest.fixture
def running(tmp_path):
    """A server as a process: (process, port)."""
    port = free_port()
    process = started(port, "--log", tmp_path / "log")
    yield process, port
    process.kill()
    process.communicate()


def post(port, stream, prompt="def f(", tokens=900):
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "stream": stream, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json"}
    return urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, headers)


@pytest.mark.slow
@pytest.mark.macos
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
    assert lines[1] == f"demo serves this machine only. OpenAI clients use http://127.0.0.1:{port}/v1;"
    assert "completions cut short" in lines[-2] and lines[-1].startswith("1 request, ")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "log").read_text())["prompt"] == "def f("


@pytest.mark.slow
def test_with_few_files_it_starts_and_a_crowd_that_says_nothing_keeps_nobody_out(tmp_path):
    """mlx_lm failed where 4,096 files are not allowed; 2,200 silent connections shut /health out, with 44 MB of
    tracebacks in 15 s."""

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    port = free_port()
    process, crowd = started(port, "-q", preexec_fn=few), []
    try:
        for number in range(700):
            crowd.append(socket.create_connection(("127.0.0.1", port), timeout=10))
            if number % 100 == 99:
                began = time.monotonic()
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as health:
                    assert json.load(health)["status"] == "ok" and time.monotonic() - began < 5
        with urllib.request.urlopen(post(port, False, tokens=16), timeout=60) as reply:
            assert len(json.load(reply)["choices"][0]["text"]) > 5
        shut = crowd[0].recv(100)
        assert shut.startswith(b"HTTP/1.1 503 ") and crowd[0].recv(1) == b""
    finally:
        for connection in crowd:
            connection.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")
