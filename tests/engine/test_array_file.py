"""Arrays in a file: all of it or nothing."""

import itertools
import os

import mlx.core as mx
import pytest

from specdec_cli.engine import array_file
from specdec_cli.engine.array_file import ArrayFile, Unusable, file_bytes, write

FACTS = {"of": "a test", "numbers": [1, 2, 3]}


def drawn(dtype):
    values = mx.random.randint(0, 100, (2, 3, 5), key=mx.random.key(1))
    return values.astype(dtype)


ARRAYS = {
    **{str(number): drawn(dtype) for number, dtype in enumerate(array_file.DTYPES.values())},
    "slice": mx.arange(60).reshape(3, 20).swapaxes(0, 1)[::2],
    "empty": mx.zeros((1, 2, 0, 4)),
    "one": mx.array(3.5),
    "ids": mx.array([3, 1, 4, 1, 5], dtype=mx.int32),
}


def written(path, arrays=ARRAYS, facts=FACTS):
    with path.open("wb") as file:
        for _ in write(file, facts, arrays):
            pass
    return path


@pytest.fixture
def path(tmp_path):
    return written(tmp_path / "arrays")


def read(path):
    """Everything in the file, as values that can be compared."""
    file = ArrayFile(path)
    return file.facts, {name: (file.array(name).dtype, file.array(name).tolist()) for name in ARRAYS}


def test_what_was_written_is_read(path):
    file = ArrayFile(path)
    assert file.facts == FACTS and list(file.ids("ids")) == [3, 1, 4, 1, 5]
    for name, array in ARRAYS.items():
        again = file.array(name)
        assert (again.dtype, again.shape) == (array.dtype, array.shape) and mx.array_equal(again, array)
    assert path.stat().st_size == file.nbytes == file_bytes(FACTS, ARRAYS)


def test_other_tools_read_it_too(path, tmp_path):
    os.link(path, tmp_path / "arrays.safetensors")
    found = mx.load(str(tmp_path / "arrays.safetensors"))
    assert all(mx.array_equal(found[name], array) for name, array in ARRAYS.items())


def test_every_changed_byte_is_found(path):
    """Each byte in turn has one bit flipped; a file that is still read says the same."""
    whole, expected = path.read_bytes(), read(path)
    unusable = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            assert read(path) == expected
        except Unusable:
            unusable += 1
    print(f"{unusable} of {len(whole)} flipped bits made it unusable")
    assert unusable == len(whole)


def test_a_file_that_ends_early_or_late_is_none(path):
    whole = path.read_bytes()
    for length in (*range(0, len(whole), 7), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(Unusable):
            ArrayFile(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(Unusable, match=f"it has {len(whole) + 1} bytes, and its header says {len(whole)}"):
        ArrayFile(path)


def test_another_programs_file_is_none(tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    mx.save_safetensors(str(foreign), {"a": mx.ones(3)})
    for content in (foreign.read_bytes(), b"", b"{}", os.urandom(999), b"\xff" * 100, b"\x02" + b"\0" * 7 + b"{}"):
        foreign.write_bytes(content)
        with pytest.raises(Unusable):
            ArrayFile(foreign)


def test_what_is_no_number_is_not_kept(tmp_path):
    with pytest.raises(Unusable, match="the array bad holds what is no number"):
        written(tmp_path / "arrays", {"good": mx.array([mx.inf]), "bad": mx.array([1.0, mx.nan])})
    with pytest.raises(Unusable, match="complex64"):
        written(tmp_path / "arrays", {"bad": mx.array([1j])})


def test_it_is_written_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(array_file, "PIECE_BYTES", 1000)
    sizes = []
    with (tmp_path / "arrays").open("wb", buffering=0) as file:
        for _ in write(file, FACTS, {"a": mx.ones((25, 100)), "b": mx.ones(3)}):
            sizes.append(file.tell())
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) == 1000 and len(steps) == 12
    assert mx.array_equal(ArrayFile(tmp_path / "arrays").array("a"), mx.ones((25, 100)))
