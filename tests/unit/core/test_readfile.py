"""Nothing that reads a file waits for a pipe that nobody writes to: it hung for ever, without a word."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from specdec_cli.apps.chat.line_editor import PrivateHistory
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.readfile import open_file, read_file
from specdec_cli.hub import places
from specdec_cli.session.conversation import Conversation
from specdec_cli.session.cost_file import CostFile
from specdec_cli.session.transcript import Transcript, load, save
from specdec_cli.system.config import read_config
from specdec_cli.system.servers import running, servers_folder


@pytest.fixture(autouse=True)
def bounded():
    """A wait is a failure."""

    def fail(*_):
        pytest.fail("it waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.mark.parametrize("piped", [False, True])
def test_a_pipe_without_a_writer_and_a_device_are_named_at_once(fifo, piped):
    for path, why in {fifo: "it is a pipe,", "/dev/zero": "it is a device,", "/": "direc", "a\0b": "no file"}.items():
        with pytest.raises(OSError, match=why) as failure:
            read_file(path, piped=piped)
        assert failure.value.strerror and failure.value.filename == str(path)
    assert read_file(os.devnull, piped=piped) == b""


@pytest.mark.parametrize("late", [False, True])
def test_a_pipe_that_somebody_writes_to_is_read_to_its_end_where_it_may_be_one(late):
    read, write = os.pipe()
    text = b"x" * 300_000  # more than a pipe holds

    def fill():
        with os.fdopen(write, "wb") as file:
            file.write(text)

    writer = threading.Timer(0.1 * late, fill)
    writer.start()
    assert read_file(f"/dev/fd/{read}", piped=True) == text
    writer.join()
    with pytest.raises(OSError, match="a pipe"):
        open_file(f"/dev/fd/{read}")
    os.close(read)


def test_files_of_our_own_and_of_other_programs_may_be_pipes(fifo, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEC_CONFIG", str(fifo))
    with pytest.raises(SpecdecError, match="cannot be read: it is a pipe"):
        read_config()
    home = Path.home()
    os.mkfifo(home / ".lmstudio-home-pointer")
    (home / ".lmstudio").mkdir()
    os.mkfifo(home / ".lmstudio/settings.json")
    assert home / ".lmstudio/models" in places._lm_studio_folders()
    servers_folder().mkdir(parents=True)
    os.mkfifo(servers_folder() / "5.json")
    assert running() == [] and CostFile(fifo).get("a") is None
    with pytest.raises(OSError, match="a pipe"):
        PrivateHistory(fifo)
    with pytest.raises(SpecdecError, match="a pipe"):
        load(fifo)
    with pytest.raises(SpecdecError, match="a pipe"):
        save(fifo, Transcript(Conversation(None, ())))
