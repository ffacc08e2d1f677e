"""`specdec ps`, `specdec stop` and `serve --detach`; and a pair that does not fit because of a server that runs."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakes.servers import PARENT, plant
from specdec_cli.core.errors import NotAvailable

STOP = "specdec ps lists the running ones"


def test_nobody_runs(specdec):
    assert specdec("ps") == (0, "", "no specdec server is running here: specdec serve --detach starts one\n")
    assert json.loads(specdec("ps", "--json")[1]) == []
    assert specdec.refused("stop") == (3, "no specdec server is running here", "specdec serve --detach starts one")


def test_those_that_run_are_listed(specdec):
    with plant(weight_bytes=4_900_000_000, since=time.time() - 720):
        code, out, err = specdec("ps")
        (found,) = json.loads(specdec("ps", "--json")[1])
    assert (code, err) == (0, "")
    assert out.split() == ["tiny", "http://127.0.0.1:1", "pid", f"{PARENT},", "12", "min,", "4.9", "GB"]
    assert found["pid"] == PARENT and {*found} == {
        "pid",
        "pair",
        "url",
        "since",
        "weight_bytes",
        "cache_bytes",
        "loading",
    }


def test_one_whose_models_are_on_their_way_says_so(specdec):
    """It said "0 B", as when they were unloaded."""
    with plant(loading=True):
        assert (
            specdec("ps")[1].split()[-1] == "loading" and json.loads(specdec("ps", "--json")[1])[0]["loading"] is True
        )


def test_what_is_to_end_must_be_one_that_runs_and_one_alone(specdec):
    with plant(), plant(pid=1, port=2):
        assert specdec.refused("stop", "none") == (3, "no server none is running here", STOP)
        code, message, hint = specdec.refused("stop")
        assert (code, message) == (2, "2 servers match") and "--all" in hint and "pid" in hint
        assert specdec.refused("stop", "tiny")[:2] == (2, "2 servers match")


def test_a_pair_that_a_server_leaves_no_room_is_told_how_to_go_on(specdec):
    with plant(weight_bytes=1 << 60):
        code, message, hint = specdec.refused("run", "-p", "demo", "def f(")
        assert specdec("run", "-p", "demo", "--force", "-n", 4, "def f(")[0] == 0
    assert code == 5 and message.endswith("are usable beside the server of tiny, which holds 1152921504.6 GB")
    asks = "curl http://127.0.0.1:1/api/generate --json "
    assert hint.startswith(f"specdec stop {PARENT} frees that; or ask the server: {asks}")
    assert specdec("run", "-p", "demo", "-n", 4, "def f(")[0] == 0


def test_of_several_servers_all_are_to_end(specdec):
    """Before, the first one was said to hold what all did, and the command of the hint asked which one to end."""
    with plant(weight_bytes=1 << 59), plant(pid=1, port=2, weight_bytes=1 << 59):
        _, message, hint = specdec.refused("run", "-p", "demo", "def f(")
    assert message.endswith("beside 2 servers, which hold 1152921504.6 GB")
    assert hint.startswith("specdec stop --all frees that; or ask the server: ")


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "specdec_cli", *arguments], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.macos
def test_a_server_in_the_background_answers_once_it_is_started_and_ends_when_told():
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = str(found.getsockname()[1])
    begun = run("serve", "-p", "demo", "--port", port, "--detach")
    assert (begun.returncode, begun.stdout) == (0, ""), begun.stderr
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as health:
            assert json.load(health)["loaded"] is True
        (listed,) = json.loads(run("ps", "--json").stdout)
        assert listed["url"] == f"http://127.0.0.1:{port}" and listed["weight_bytes"] > 100_000
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
    assert json.loads(run("ps", "--json").stdout) == []


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
