"""`specdec serve`, `ps` and `stop` as a person starts them, and a pair that does not fit because of a server."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx
import pytest

from fakes.models import tiny_folder
from fakes.servers import PARENT, plant
from specdec_cli.core.errors import NotAvailable
from specdec_cli.system import servers


def test_those_that_run_are_listed_with_what_they_hold(specdec):
    """One whose models are on their way said "0 B", as when they were unloaded."""
    assert specdec("ps") == (0, "", "no specdec server is running here: specdec serve --detach starts one\n")
    assert json.loads(specdec("ps", "--json")[1]) == []
    with plant(weight_bytes=4_900_000_000, since=time.time() - 720):
        code, out, err = specdec("ps")
        (found,) = json.loads(specdec("ps", "--json")[1])
    assert (code, err) == (0, "")
    assert out.split() == ["tiny", "http://127.0.0.1:1", "pid", f"{PARENT},", "12", "min,", "4.9", "GB"]
    names = {"pid", "pair", "url", "since", "weight_bytes", "cache_bytes", "loading"}
    assert found["pid"] == PARENT and {*found} == names
    with plant(loading=True):
        assert specdec("ps")[1].split()[-1] == "loading"
        assert json.loads(specdec("ps", "--json")[1])[0]["loading"] is True


def test_what_is_to_end_must_be_one_that_runs_and_one_alone(specdec):
    with plant(), plant(pid=1, port=2):
        no_such = (3, "no server none is running here", "specdec ps lists the running ones")
        assert specdec.refused("stop", "none") == no_such
        code, message, hint = specdec.refused("stop")
        assert (code, message) == (2, "2 servers match") and "--all" in hint and "pid" in hint
        assert specdec.refused("stop", "tiny")[:2] == (2, "2 servers match")


@pytest.mark.slow
def test_a_bounded_context_needs_room_for_no_more(specdec):
    """The hint to bound it brought the same refusal."""
    with plant(weight_bytes=1 << 60):
        code, message, _ = specdec.refused("serve", "-p", "demo", "--max-context", 300)
    assert code == 5 and " at 300 tokens" in message


def test_a_pair_that_servers_leave_no_room_is_told_how_to_go_on(specdec):
    """Of several, the first one was said to hold what all did, and the command of the hint asked which one to end."""
    asked = ("run", "-p", "demo", "-n", 1, "def f(")
    with plant(weight_bytes=1 << 60):
        code, message, hint = specdec.refused(*asked)
        assert specdec(*asked, "--force")[0] == 0
    assert code == 5 and message.endswith("are usable beside the server of tiny, which holds 1152921504.6 GB")
    asks = "curl http://127.0.0.1:1/api/generate --json "
    assert hint.startswith(f"specdec stop {PARENT} frees that; or ask the server: {asks}")
    with plant(weight_bytes=1 << 59), plant(pid=1, port=2, weight_bytes=1 << 59):
        _, message, hint = specdec.refused(*asked)
    assert message.endswith("beside 2 servers, which hold 1152921504.6 GB")
    assert hint.startswith("specdec stop --all frees that; or ask the server: ")


@pytest.mark.slow
def test_a_server_is_loading_while_it_loads_and_not_after_it_failed_to(specdec, monkeypatch):
    """A load that fails after an unloading would have left it so for ever."""
    told = []

    @contextmanager
    def announced(pair, url):
        yield lambda *said, **more: told.append((said, more))

    def refuses(*arguments, **more):
        assert told == [((0, 0), {"loading": True})]
        raise NotAvailable("gone", "pull it")

    monkeypatch.setattr("specdec_cli.apps.serve.build.announced", announced)
    monkeypatch.setattr("specdec_cli.apps.serve.build.load_session", refuses)
    assert specdec.refused("serve", "-p", "demo", "--port", 0)[:2] == (3, "gone")
    assert told[1] == ((0, 0), {})


def run(*arguments):
    command = [sys.executable, "-m", "specdec_cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.macos
def test_a_pair_that_does_not_load_is_refused_as_run_refuses_it(tmp_path):
    """`serve` said it and was then aborted, with exit code 134, in five of five."""
    target, draft = tiny_folder(tmp_path / "target"), tiny_folder(tmp_path / "draft")
    weights = mx.load(str(draft / "model.safetensors"))
    mx.eval(weights.pop(max(weights)), weights)
    mx.save_safetensors(str(draft / "model.safetensors"), weights)
    models, said = ["--target", target, "--draft", draft], []
    for words in (["run", *models, "hi"], ["serve", *models, "--port", "0"]):
        done = run(*words)
        said.append((done.returncode, done.stdout, done.stderr))
    assert said[0][0] == 3 and said[0][2].startswith("error: ") and said[0] == said[1]


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


def post(port, stream, prompt="def f(", tokens=900):
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "stream": stream, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json"}
    return urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, headers)


@pytest.mark.slow
@pytest.mark.macos
def test_ctrl_c_ends_it_at_once_during_an_answer(tmp_path):
    port = free_port()
    process = started(port, "--log", tmp_path / "log")
    with urllib.request.urlopen(post(port, stream=True), timeout=60) as reply:
        assert reply.readline().startswith(b"data: ")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert (process.returncode, out) == (130, "") and "Traceback" not in err
    lines = err.splitlines()
    assert lines[1] == f"demo serves this machine only. OpenAI clients use http://127.0.0.1:{port}/v1;"
    assert "completions cut short" in lines[-2] and lines[-1].startswith("1 answer, ")
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


def test_a_server_that_nobody_could_see_is_not_started(specdec):
    """On a full disk it served, its file could not be written, and the command waited for that without an end."""
    folder = servers.servers_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("")
    hint = "check its permissions, or leave --detach out"
    assert specdec.refused("serve", "-p", "demo", "--detach") == (1, f"{folder} cannot be written: File exists", hint)


@pytest.mark.slow
@pytest.mark.macos
def test_a_server_in_the_background_answers_once_it_is_started_and_ends_when_told():
    port = free_port()
    begun = run("serve", "-p", "demo", "--port", port, "--detach")
    assert (begun.returncode, begun.stdout) == (0, ""), begun.stderr
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as health:
            assert json.load(health)["loaded"] is True
        (listed,) = servers.others()
        assert listed.url == f"http://127.0.0.1:{port}" and listed.weight_bytes > 100_000
        again = run("serve", "-p", "demo", "--port", port, "--detach")
        assert again.returncode == 1 and again.stderr.splitlines()[0] == (
            f"error: demo is served at http://127.0.0.1:{port} already"
        )
        log = Path(begun.stderr.split("log: ")[1].strip())
        assert "demo serves this machine only" in log.read_text() and log.stat().st_mode & 0o777 == 0o600
    finally:
        ended = run("stop", port)
    assert ended.returncode == 0 and f"ended: demo at http://127.0.0.1:{port}" in ended.stderr
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
    assert servers.others() == ()
