"""A folder's lock: one holder at a time, dropped however its holder ends, and nothing left behind."""

import subprocess
import sys

import pytest

from specdec_cli.jsonfile import locked

HOLDER = """
import sys, time
from pathlib import Path
from specdec_cli.jsonfile import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_folder_is_made_and_holds_no_lock_file(tmp_path):
    with locked(tmp_path / "new"):
        assert not list((tmp_path / "new").iterdir())
    with locked(tmp_path / "new"):
        pass


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
