"""Servers see each other by files whose locks they hold: what a killed one left is nobody, whoever has its id now."""

import fcntl
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.servers import PARENT, plant
from specdec_cli.engine import device
from specdec_cli.system import servers

WAITS = """
import sys, time
from specdec_cli.system.servers import announced
with announced("demo", "http://127.0.0.1:1") as holds:
    holds(5, 0)
    print(flush=True)
    time.sleep(60)
"""


def test_a_server_is_seen_from_its_start_to_its_end_by_others_only_its_owner_reads():
    assert servers.running() == []
    with servers.announced("demo", "http://127.0.0.1:8040") as holds:
        (own,) = servers.running()
        assert (own.pid, own.pair, own.url, own.weight_bytes) == (os.getpid(), "demo", "http://127.0.0.1:8040", 0)
        assert own.path.stat().st_mode & 0o777 == 0o600
        holds(123_456, 789)
        assert servers.running()[0].held_bytes == 123_456 + 789 and servers.others() == ()
        holds(0, 0, loading=True)
        assert servers.running()[0].loading
        holds(5, 0)
        assert servers.running()[0].held_bytes == 5 and not servers.running()[0].loading
    assert servers.running() == [] and not list(servers.servers_folder().iterdir())


def test_a_file_that_nobody_holds_is_removed_though_its_process_id_lives():
    with plant(lock=False) as left:
        assert servers.running() == [] and not Path(left.name).exists()
    with plant() as held:
        assert [one.pid for one in servers.running()] == [PARENT]
        fcntl.flock(held, fcntl.LOCK_UN)  # as when it is killed
        assert servers.running() == []


def test_a_server_of_another_version_is_left_alone():
    with plant(colour="red") as file:
        assert servers.running() == [] and Path(file.name).exists()


@pytest.mark.parametrize(
    "values",
    [
        {"since": "now"},
        {"since": None},
        {"since": 1e400},
        {"since": -1e300},
        {"since": math.nan},
        {"since": True},
        {"pid": -1},
        {"pid": 0},
        {"pid": 1 << 70},
        {"pid": str(PARENT)},
        {"pid": PARENT + 1},
        {"pair": None},
        {"url": 5},
        {"weight_bytes": "5"},
        {"weight_bytes": -5},
        {"cache_bytes": 10**400},
        {"cache_bytes": [1]},
    ],
    ids=str,
)
def test_a_running_servers_file_with_values_that_cannot_be_true_is_left_alone(values):
    """`ps` failed unexpectedly at a text for a time; to end a process -1 would end all of the user's."""
    with plant(name=f"{PARENT}.json", **values) as file:
        assert servers.running() == [] and Path(file.name).exists()


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1', "[]", "5", "\0" * 9, "[" * 100_000], ids=range(7))
def test_a_running_servers_torn_file_is_left_alone(text):
    with plant() as file:
        Path(file.name).write_text(text)
        assert servers.running() == [] and Path(file.name).exists()


def test_end_signals_nobody_whose_file_is_free(monkeypatch):
    """Its process is over, and who has the id now is another."""
    killed = []
    monkeypatch.setattr(os, "kill", lambda *what: killed.append(what))
    with plant(lock=False) as left:
        server = servers.RunningServer(PARENT, "tiny", "", 1.0)
        assert servers.end(server, 0.0) and killed == [], left


def test_what_others_hold_is_not_usable_and_what_an_idle_one_could_hold_is():
    alone = device.usable_bytes()
    with plant(weight_bytes=1 << 20):
        assert alone - device.usable_bytes() == 1 << 20
    with plant(weight_bytes=1 << 20, cache_bytes=1 << 21):  # a second process filled what the first one's caches need
        assert alone - device.usable_bytes() == 3 << 20
    with plant(weight_bytes=0):
        assert device.usable_bytes() == alone
    with plant(weight_bytes=1 << 60):
        assert device.usable_bytes() == 1 << 20


def test_a_folder_that_cannot_be_written_only_hides_a_server(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(servers, "servers_folder", lambda: tmp_path / "file" / "servers")
    with pytest.raises(ZeroDivisionError), servers.announced("demo", "") as holds:
        holds(5, 0)
        assert servers.running() == []
        raise ZeroDivisionError  # and what happens inside is what comes out


@pytest.mark.slow
@pytest.mark.parametrize("ends", [True, False])
def test_the_end_of_a_server_is_waited_for(ends):
    """One that ignores the signal still runs; a kill is seen like any other end."""
    ignores = "" if ends else "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    process = subprocess.Popen([sys.executable, "-c", ignores + WAITS], stdout=subprocess.PIPE)
    process.stdout.readline()
    (server,) = servers.others()
    assert servers.end(server, 10.0 if ends else 0.3) == ends
    if not ends:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert servers.end(server, 0.0) and servers.running() == []
    process.communicate(timeout=10)
