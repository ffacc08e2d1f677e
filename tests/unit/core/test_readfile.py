"""Files from outside: pipes that nobody writes to, texts of other systems, JSON of every kind of damage; and locks."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from specdec_cli.apps.chat.line_editor import PrivateHistory
from specdec_cli.apps.chat.talk import LineReader
from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.jsonfile import NotJson, locked, parse, parse_object, whole
from specdec_cli.core.readfile import open_file, read_file
from specdec_cli.core.textfile import decode_text
from specdec_cli.hub.places import PLACES
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
    home = Path.home()
    os.mkfifo(home / ".lmstudio-home-pointer")
    (home / ".lmstudio").mkdir()
    os.mkfifo(home / ".lmstudio/settings.json")
    (folders,) = (folders for place, folders, _ in PLACES if place == "LM Studio")
    assert home / ".lmstudio/models" in folders()
    servers_folder().mkdir(parents=True)
    os.mkfifo(servers_folder() / "5.json")
    assert running() == [] and CostFile(fifo).get("a") is None
    empty = Transcript(Conversation(None, ()))
    for use in (read_config, lambda: PrivateHistory(fifo), lambda: load(fifo), lambda: save(fifo, empty)):
        with pytest.raises((OSError, SpecdecError), match="a pipe"):
            use()


# Texts as editors and shells of other systems write them.


MARKED = {
    "utf-8": b"",
    "utf-8-sig": b"",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "utf-32-le": b"\xff\xfe\x00\x00",
    "utf-32-be": b"\x00\x00\xfe\xff",
}


@pytest.mark.parametrize("encoding", MARKED)
def test_a_byte_order_mark_names_the_encoding_and_is_no_text(encoding):
    def written(text):
        return MARKED[encoding] + text.encode(encoding)

    assert decode_text(written("héllo\n")) == "héllo\n"
    assert jsonfile.parse(written(json.dumps({"a": "é"}))) == {"a": "é"}
    reader = LineReader(io.BytesIO(written("héllo\r\nзадача\n")), None)
    assert [reader.read(""), reader.read("")] == ["héllo", "задача"]


def test_a_mark_in_the_middle_is_text_and_a_wrong_byte_is_told():
    assert decode_text("a\ufeffb".encode()) == "a\ufeffb"
    with pytest.raises(UnicodeDecodeError):
        decode_text(b"\xe9")


# JSON: whatever is wrong with it is one kind of error, in words.


def size(value):
    return whole({"size": value}, "size", 7)


DEEP = "[" * 100_000 + "]" * 100_000
KINDS = {"[]": "a list", "null": "null", '"a"': "a text", "1.5": "a number"}
WRONG = [
    (parse, DEEP, "nested too deeply"),
    (parse, "9" * 5000, "a number in it is too long"),
    (parse, b"\xfe\xfd", "byte 0xfe at 0 is not UTF-8"),
    (parse, "", "Expecting value: line 1 column 1"),
    (parse, '{"a": ', "line 1 column 7"),
    *((parse_object, data, f"it holds {kind}, but an object is expected") for data, kind in KINDS.items()),
    *((size, value, "size is .*, but a whole number is expected") for value in ("abc", -1, True, 2.5)),
]


@pytest.mark.parametrize(("read", "data", "reason"), WRONG, ids=[reason for *_, reason in WRONG])
def test_every_kind_of_damage_is_the_same_error_with_its_reason(read, data, reason):
    with pytest.raises(NotJson, match=reason):
        read(data)


# The lock of a folder: dropped however its holder ends, and nothing is left behind.

HOLDER = """
import sys, time
from pathlib import Path
from specdec_cli.core.jsonfile import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_another_process_waits_and_a_killed_holder_lets_go(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError), locked(tmp_path, 0.06):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with locked(tmp_path, 1.0):
        pass
