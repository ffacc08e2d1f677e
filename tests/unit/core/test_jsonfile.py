"""JSON from elsewhere: whatever is wrong with it is one kind of error, in words."""

import subprocess
import sys

import pytest

from specdec_cli.core.jsonfile import NotJson, locked, parse, parse_object, read_object, read_or_empty, whole

DEEP = "[" * 100_000 + "]" * 100_000
WRONG = [
    (DEEP, "nested too deeply"),
    ("9" * 5000, "a number in it is too long"),
    (b"\xfe\xfd", "byte 0xfe at 0 is not UTF-8"),
    ("", "Expecting value: line 1 column 1"),
    ('{"a": ', "line 1 column 7"),
]


@pytest.mark.parametrize(("data", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_every_kind_of_damage_is_the_same_error_with_its_reason(data, reason):
    with pytest.raises(NotJson, match=reason):
        parse(data)


@pytest.mark.parametrize(("data", "kind"), [("[]", "a list"), ("null", "null"), ('"a"', "a text"), ("1.5", "a number")])
def test_another_kind_of_value_is_named(data, kind):
    with pytest.raises(NotJson, match=f"it holds {kind}, but an object is expected"):
        parse_object(data)


def test_a_file_of_our_own_is_empty_where_it_is_damaged_missing_or_a_folder(tmp_path):
    (tmp_path / "deep").write_text(DEEP)
    assert [read_or_empty(tmp_path / name) for name in ("deep", "missing", ".")] == [{}, {}, {}]
    (tmp_path / "good").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_or_empty(tmp_path / "good") == read_object(tmp_path / "good") == {"a": 1}


@pytest.mark.parametrize("value", ["abc", -1, True, 2.5])
def test_what_is_no_whole_number_is_refused_with_key_and_value(value):
    with pytest.raises(NotJson, match=r"size is .*, but a whole number is expected"):
        whole({"size": value}, "size", 7)


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
