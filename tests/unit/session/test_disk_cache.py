"""Entries on disk: found by their ids, never wrong, never half there, within their limit."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, replace
from pathlib import Path

import mlx.core as mx
import pytest

from fakes.chat import BYTES, NEVER_STOP, loaded, networks, tokenizer_in
from fakes.models import tiny_folder
from fakes.server import until
from specdec_cli.core.events import Prefill, RoundDone
from specdec_cli.core.jsonfile import locked
from specdec_cli.engine import device
from specdec_cli.engine.cache.cache_kinds import as_bytes, parts_of
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.files import find
from specdec_cli.pairs.limits import HEADROOM
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session import kept_chats
from specdec_cli.session.disk_cache import RESTS, SLICE_BYTES, DiskCache, slowly
from specdec_cli.session.disk_entries import (
    UNFINISHED,
    Entry,
    disk_cache_folder,
    entry_files,
    fingerprint,
    remove_all,
)
from specdec_cli.session.load import numbers_depend_on
from specdec_cli.session.slot import Slot

PROMPT = [(7 * i * i + i) % (BYTES - 3) + 3 for i in range(300)]


@pytest.fixture(scope="module")
def weights():
    target, draft = networks("qwen3")
    return CachedModel(target, "target"), CachedModel(draft, "draft")


def read_slot(weights, ids=PROMPT):
    """A slot whose target and draft have read `ids`."""
    slot = Slot(*weights).fresh()
    for model in (slot.target, slot.draft):
        for _ in model.prefill([*ids, 3]):
            pass
    return slot


def stored(weights, folder, ids=PROMPT, most_bytes=10**9, owner="", told=None):
    cache = DiskCache(folder, most_bytes, told.append if told is not None else pytest.fail)
    cache.write("print", read_slot(weights, ids), owner)
    cache.finish()
    return cache


def restored(weights, folder, prompt, print_="print"):
    slot = Slot(*weights).fresh()
    return DiskCache(folder, 10**9).restore(print_, slot, prompt), slot


def test_what_was_read_comes_back_and_nothing_of_another_text(weights, tmp_path):
    stored(weights, tmp_path / "disk")
    found, slot = restored(weights, tmp_path / "disk", [*PROMPT, 9, 9])
    assert found == len(PROMPT) and list(slot.tokens) == PROMPT
    assert restored(weights, tmp_path / "disk", [4, *PROMPT])[0] == 0
    assert restored(weights, tmp_path / "disk", [*PROMPT, 9], print_="other")[0] == 0
    # So short a beginning is sooner read.
    assert restored(weights, tmp_path / "disk", [*PROMPT[:200], 9, 9, 9])[0] == 0


def test_the_longest_one_is_taken_and_a_longer_one_of_the_same_chat_replaces_it(weights, tmp_path):
    folder = tmp_path / "disk"
    stored(weights, folder, PROMPT[:270], owner="a")
    stored(weights, folder, PROMPT, owner="b")
    assert restored(weights, folder, [*PROMPT, 9])[0] == 300 and len(entry_files(folder)) == 2
    stored(weights, folder, [*PROMPT, 5, 6], owner="a")
    assert sorted(len(Entry.read(path).ids) for path in entry_files(folder)) == [300, 302]


def test_a_writer_who_fails_or_is_killed_leaves_what_the_new_entry_was_to_replace(weights, tmp_path, monkeypatch):
    """It was removed before the new one was written, which takes a minute for a gigabyte."""
    stored(weights, tmp_path, PROMPT[:270])

    def fail(*given):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        stored(weights, tmp_path, told=(told := []))
    assert len(told) == 1 and restored(weights, tmp_path, [*PROMPT, 9])[0] == 270
    for _ in range(2):  # the second one has the first one's bytes and name
        stored(weights, tmp_path)
        (path,) = tmp_path.iterdir()
        assert list(Entry.read(path).ids) == PROMPT
    one = path.stat().st_size
    stored(weights, tmp_path, [3, *PROMPT], owner="other")
    stored(
        weights, tmp_path, [*PROMPT, 5], most_bytes=round(2.5 * one)
    )  # where there is no room for both, it goes first
    assert [restored(weights, tmp_path, [*text, 9])[0] for text in ([3, *PROMPT], [*PROMPT, 5])] == [301, 301]


def test_a_writer_has_a_fortieth_of_a_core_until_somebody_waits_for_it(weights, tmp_path, monkeypatch):
    """Answers that were decoded meanwhile had 0.95 of their speed, on two cores."""
    data, clock, rests = memoryview(bytes(3 * SLICE_BYTES - 5)), iter(range(6)), []
    assert b"".join(slowly(data, rests.append, lambda: next(clock))) == data
    assert rests == [RESTS] * 3
    monkeypatch.setattr("specdec_cli.session.disk_cache.RESTS", 1e9)
    cache = DiskCache(tmp_path, 10**9, pytest.fail)
    assert cache.write("print", read_slot(weights)) and not entry_files(tmp_path)
    cache.finish()
    assert len(entry_files(tmp_path)) == 1


def test_an_entry_is_left_out_while_another_process_writes_and_the_next_one_is_not(weights, tmp_path, monkeypatch):
    monkeypatch.setattr("specdec_cli.session.disk_cache.WRITER_SECONDS", 0.0)
    cache = DiskCache(tmp_path, 10**9, pytest.fail)
    with locked(tmp_path):
        assert cache.write("print", read_slot(weights))
        cache.finish()
    assert not entry_files(tmp_path)
    assert cache.write("print", read_slot(weights))
    cache.finish()
    assert len(entry_files(tmp_path)) == 1


def test_beside_the_bytes_that_are_written_there_is_a_copy_of_one_array_at_most(weights):
    """All of them were copied together first: an answer was decoded while a Mac of 16 GB swapped."""
    slot = read_slot(weights, PROMPT * 6)
    _, arrays = parts_of(slot.contents())
    held, largest = device.active_memory_bytes(), max(array.nbytes for array in arrays.values())
    assert largest < sum(array.nbytes for array in arrays.values()) / 4
    device.reset_peak_memory()
    data = as_bytes(arrays, {})
    assert device.peak_memory_bytes() - held < 1.1 * largest
    assert len(data) < 1.01 * sum(array.nbytes for array in arrays.values())


def test_arrays_of_every_type_and_shape_come_back(tmp_path):
    types = (mx.float32, mx.float16, mx.bfloat16, mx.uint8, mx.uint32, mx.int32, mx.int64, mx.bool_)
    arrays = {f"{n}": mx.arange(24).reshape(2, 3, 4)[..., 1:3].astype(dtype) for n, dtype in enumerate(types)}
    arrays |= {"none": mx.zeros([2, 0]), "one": mx.array(3, mx.uint16), "slice": mx.arange(9)[4:]}
    (tmp_path / "a.safetensors").write_bytes(as_bytes(arrays, {"said": "é"}))
    found, metadata = mx.load(str(tmp_path / "a.safetensors"), return_metadata=True)
    assert metadata == {"said": "é"} and found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert mx.array_equal(found[name], array)


def test_what_has_no_room_in_memory_beside_all_else_is_not_written_until_it_has(weights, tmp_path, device_says):
    slot, cache = read_slot(weights), DiskCache(tmp_path / "disk", 10**9, pytest.fail)
    device_says(active_memory_bytes=10**6, usable_bytes=(10**6 + slot.nbytes) / HEADROOM - 10)
    assert not cache.write("print", slot)
    device_says(usable_bytes=device.usable_bytes() + 20)
    assert cache.write("print", slot)
    cache.finish()
    assert len(entry_files(tmp_path / "disk")) == 1


def test_files_are_the_users_own(weights, tmp_path):
    stored(weights, tmp_path / "disk")
    assert (tmp_path / "disk").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "disk").iterdir()} == {0o600}


def test_the_least_recently_used_goes_first_and_what_is_too_large_is_not_kept(weights, tmp_path):
    folder, texts = tmp_path / "disk", [[first, *PROMPT] for first in (3, 4, 5)]
    stored(weights, folder, texts[0])
    one = sum(path.stat().st_size for path in folder.iterdir())
    stored(weights, folder, texts[1], most_bytes=3 * one)
    assert restored(weights, folder, [*texts[0], 9])[0]  # used: newer than the other
    stored(weights, folder, texts[2], most_bytes=round(2.5 * one))
    assert [restored(weights, folder, [*text, 9])[0] > 0 for text in texts] == [True, False, True]
    cache = DiskCache(tmp_path / "small", 1000, (told := []).append)
    assert not any(cache.write("print", read_slot(weights)) for _ in range(2))
    assert not (tmp_path / "small").exists()
    assert len(told) == 1 and told[0].endswith(" is not kept on disk, where all together may take 1 kB")


def test_an_entry_stays_beside_a_longer_one_that_cannot_return_to_where_it_ends():
    short, longer = (Entry("print", "", (length,), {"target.read": PROMPT[:length]}) for length in (4, 6))
    assert not short.is_in(longer)
    assert all(short.is_in(replace(longer, ends=ends)) for ends in ((4, 6), None))


def test_an_entry_is_compared_with_the_limit_by_its_own_size(tmp_path):
    """States of a window share arrays in memory, and are written one by one."""
    slot, told = Slot(*(CachedModel(one, "m") for one in networks("gemma3_text"))), []
    for turn in (1, 2, 3):
        for model in (slot.target, slot.draft):
            deque(model.prefill([3 + i * i % 250 for i in range(400 * turn)]), maxlen=0)
    assert not DiskCache(tmp_path / "disk", slot.nbytes, told.append).write("print", slot) and len(told) == 1


def test_a_folder_that_cannot_be_written_is_told_once(weights, tmp_path):
    (tmp_path / "file").write_text("")
    told = []
    cache = stored(weights, tmp_path / "file" / "disk", told=told)
    assert not cache.write("print", read_slot(weights))
    cache.finish()
    assert len(told) == 1 and told[0].startswith("what was read is not kept on disk: ")


def test_deleting_a_chat_deletes_what_was_read_of_it(weights, monkeypatch, tmp_path):
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    folder = tmp_path / "specdec" / "conversations"
    stored(weights, folder, [3, *PROMPT], owner="20260101-000000-aa")
    stored(weights, folder, [4, *PROMPT], owner="20260101-000000-bb")
    kept_chats.delete([tmp_path / "20260101-000000-aa.jsonl"])
    assert [Entry.read(path).owner for path in entry_files(folder)] == ["20260101-000000-bb"]


def test_all_is_removed_while_a_process_writes_which_leaves_that_out_and_goes_on(weights, monkeypatch, tmp_path):
    """`specdec rm disk-cache` waited for the writer, who takes a minute for a gigabyte, and gave up after 10 s."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path)
    monkeypatch.setattr("specdec_cli.session.disk_cache.RESTS", 1e9)
    folder = disk_cache_folder()
    cache = stored(weights, folder)
    assert cache.write("print", read_slot(weights, [4, *PROMPT]))
    until(lambda: (folder / UNFINISHED).exists())
    try:
        remove_all()
    finally:
        cache.finish()
    assert not folder.exists()
    assert cache.write("print", read_slot(weights))
    cache.finish()
    assert len(entry_files(folder)) == 1


def test_an_entry_that_cannot_be_marked_as_used_is_of_use(weights, monkeypatch, tmp_path):
    """Another process removes it while it is read, or nothing can be written there: it was read for nothing."""
    stored(weights, tmp_path)

    def refuse(path):
        raise PermissionError

    monkeypatch.setattr(os, "utime", refuse)
    assert restored(weights, tmp_path, [*PROMPT, 9])[0] == len(PROMPT)
    assert len(entry_files(tmp_path)) == 1


@pytest.mark.parametrize("change", [{"outline": {}}, {"more": 1}, {"ends": None, "outline": {"target.read": []}}])
def test_an_entry_of_another_shape_is_removed(weights, monkeypatch, tmp_path, change):
    monkeypatch.setattr("specdec_cli.session.disk_entries.asdict", lambda entry: asdict(entry) | change)
    stored(weights, tmp_path / "disk")
    assert entry_files(tmp_path / "disk")
    assert restored(weights, tmp_path / "disk", [*PROMPT, 9])[0] == 0 and not list((tmp_path / "disk").iterdir())


WRITER = """
import sys, itertools
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from unit.session.test_disk_cache import DiskCache, PROMPT, read_slot, weights
models = weights.__wrapped__() if hasattr(weights, "__wrapped__") else weights()
slots = [read_slot(models, [first, *PROMPT]) for first in (3, 4)]
cache = DiskCache(Path(sys.argv[1]), 10**9)
print("ready", flush=True)
for at in itertools.count():
    cache.write("print", slots[at % 2], str(at), waits=True)
"""


def begun(folder):
    """A process that writes entry after entry."""
    command = [sys.executable, "-c", WRITER, str(folder), str(Path(__file__).parents[2])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_killed_writers_leave_whole_entries_alone(weights, tmp_path):
    folder = tmp_path / "disk"
    for at in range(int(os.environ.get("KILLS", "3"))):
        writers = [begun(folder) for _ in range(2)]
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        time.sleep(0.01 + 0.0137 * (at * 7 % 20))
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
    DiskCache(folder, 10**9)  # the next process tidies up
    assert entry_files(folder) and {*entry_files(folder)} == {*folder.iterdir()}
    for first in (3, 4):
        text = [first, *PROMPT]
        found, slot = restored(weights, folder, [*text, 9])
        assert found == len(text)
        fresh = read_slot(weights, text)
        assert mx.allclose(slot.target.outputs([*text, 9]).logits, fresh.target.outputs([*text, 9]).logits, atol=1e-3)


@pytest.fixture
def files(tmp_path):
    target, draft = tiny_folder(tmp_path / "target"), tiny_folder(tmp_path / "draft", noise=0.05)
    return lambda **more: find(PairSpec(Pair("tiny", str(target), str(draft), **more)))


def print_of(files, kv_bits=None, where="chip", **more):
    return fingerprint(numbers_depend_on(files(**more), kv_bits, where))


def test_other_bits_devices_and_windows_of_the_draft_are_other_fingerprints(files, tmp_path, device_says):
    """And other versions, and another file: which ones show is in `unit/pairs/test_fingerprint`."""
    found = [
        *(print_of(files), print_of(files, kv_bits=8), print_of(files, kv_bits=4), print_of(files, where="another")),
        *(print_of(files, draft_context=64), print_of(files, draft_context="full")),
    ]
    assert print_of(files) == found[0]
    versions = device.versions()
    for name in ("mlx", "mlx-lm"):
        device_says(versions=versions | {name: "0.0.1"})
        found.append(print_of(files))
    with (tmp_path / "draft" / "model.safetensors").open("r+b") as file:
        file.seek(-9, os.SEEK_END)
        file.write(b"another")
    found.append(print_of(files))
    assert len(set(found)) == len(found)


def test_weights_that_are_gone_have_no_entry(files, tmp_path):
    had = files()
    (tmp_path / "draft" / "model.safetensors").unlink()
    assert len({fingerprint(numbers_depend_on(had, None, "chip")) for _ in range(2)}) == 2


def test_a_session_writes_when_a_conversation_has_doubled_and_at_its_end(weights, tmp_path):
    cache = DiskCache(tmp_path / "disk", 10**9, pytest.fail)
    pair = loaded(Slot(*weights), tokenizer_in(tmp_path), fingerprint=lambda: "f", disk=cache)
    session, counts = pair.session(), []
    prompt = list(PROMPT)
    for _ in range(7):
        events = list(session.reply(prompt, max_tokens=8, k=3, logit_bias=NEVER_STOP))
        session.keep("chat")
        cache.finish()
        counts.append([len(Entry.read(path).ids) for path in entry_files(cache.folder)])
        said = [token for one in events if isinstance(one, RoundDone) for token in one.round.emitted]
        prompt = [*prompt, *said, *PROMPT[:100]]
        assert next(one for one in events if isinstance(one, Prefill)).disk_tokens == 0
    assert [len(one) for one in counts] == [1] * 7 and counts[0] == counts[2] < counts[3] == counts[6]
    session.keep("chat", ends=True)
    cache.finish()
    (path,) = entry_files(cache.folder)
    assert list(Entry.read(path).ids) == list(session.slot.tokens)
