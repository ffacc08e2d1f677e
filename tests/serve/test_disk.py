"""The folder of conversations: what is believed, what goes, and what is said of it."""

import errno
import os
import time

import pytest

from fakes.serving import ids, tiny_loaded
from specdec_cli.errors import UsageError
from specdec_cli.serve import disk
from specdec_cli.serve.disk import Folder, open_folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return tiny_loaded(tmp_path_factory.mktemp("pair"))


def slot_of(pair, tokens):
    """A slot that read `tokens`."""
    slot = pair.slot()
    for _ in slot.target.prefill([*tokens, 1]):
        pass
    return slot


def facts_of(key=None, system_tokens=0, goes_on_at=0, prefix_only=False):
    said = {"conversation_id": key, "system_tokens": system_tokens}
    return {**said, "goes_on_at": goes_on_at, "prefix_only": prefix_only}


class Kept:
    """A folder, and what it said."""

    def __init__(self, path, budget_bytes=1 << 30, fingerprint="us"):
        self.said = []
        self.folder = Folder(path, budget_bytes, self.said.append)
        path.mkdir(exist_ok=True)
        self.folder.index(fingerprint, 0)

    def put(self, pair, number, tokens, used_at=None, facts=None):
        slot, used_at = slot_of(pair, tokens), used_at or time.time()
        for _ in self.folder.write(f"{number:016x}", slot, facts or facts_of(), used_at):
            pass

    @property
    def names(self):
        return sorted(int(path.name.partition(".")[0], 16) for path in self.folder.path.iterdir())


def reached(kept, prompt, key=None, reach=0, most_bytes=1 << 30):
    entry = kept.folder.nearest(prompt, key, reach, most_bytes)
    return entry and entry.reach(prompt)


def test_what_was_written_is_found_again_by_its_ids(pair, tmp_path):
    facts = facts_of("editor", 20, 40, False)
    Kept(tmp_path).put(pair, 1, ids(60), facts=facts)
    again = Kept(tmp_path)
    entry = again.folder.nearest([*ids(60), 5, 6], None, 0, 1 << 30)
    assert (entry.facts, list(entry.tokens)) == (facts, list(ids(60)))
    slot = pair.slot()
    assert again.folder.restore(entry, slot) and slot.reach([*ids(60), 5, 6]) == 60
    assert not again.said and (again.folder.path.stat().st_mode | 0o700) and again.folder.holds(ids(60))


def test_only_its_owner_reads_it(pair, tmp_path):
    with open_folder(tmp_path / "new" / "dir", 1 << 30, print) as found:
        found.index("us", 0)
        for _ in found.write("0" * 16, slot_of(pair, ids(30)), facts_of(), 1.0):
            pass
        (file,) = found.path.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600 and found.path.stat().st_mode & 0o777 == 0o700


def test_the_longest_prefix_wins_then_the_key_then_the_last_used(pair, tmp_path):
    kept = Kept(tmp_path)
    for number, (tokens, key, used_at) in enumerate(
        [(ids(40), "a", 3.0), (ids(60), "a", 1.0), (ids(60), "b", 2.0), (ids(60), None, 3.0)]
    ):
        kept.put(pair, number, tokens, used_at, facts_of(key))

    def found(key):
        entry = kept.folder.nearest([*ids(60), 9], key, 0, 1 << 30)
        return int(entry.name, 16)

    assert (found("a"), found("b"), found(None)) == (1, 2, 3)


def test_what_gains_little_for_its_bytes_is_not_read(pair, tmp_path, monkeypatch):
    kept = Kept(tmp_path)
    kept.put(pair, 1, ids(60))
    prompt = [*ids(60), 9]
    assert reached(kept, prompt) == reached(kept, prompt, reach=44) == 60
    assert reached(kept, prompt, reach=45) is None
    assert reached(kept, prompt, most_bytes=1000) is None
    monkeypatch.setattr(disk, "BYTES_A_TOKEN", kept.folder.nbytes // 40)
    assert reached(kept, prompt, reach=15) == 60 and reached(kept, prompt, reach=25) is None


def test_the_budget_holds_and_the_least_recently_used_go(pair, tmp_path):
    kept = Kept(tmp_path)
    kept.put(pair, 0, ids(60), 0.5)
    budget = 3 * kept.folder.nbytes + 100
    kept = Kept(tmp_path, budget)
    for number in range(1, 6):
        kept.put(pair, number, ids(60, number), float(number))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) == kept.folder.nbytes <= budget
    assert kept.names == [3, 4, 5]
    kept.put(pair, 6, ids(60, 6), 1.0)  # older than all of them: nothing goes for it
    assert kept.names == [3, 4, 5] and "has no room" in kept.said[-1]
    kept.folder.restore(kept.folder.nearest([*ids(60, 3), 9], None, 0, 1 << 30), pair.slot())
    kept.put(pair, 7, ids(60, 7), time.time())
    assert kept.names == [3, 5, 7]
    assert Kept(tmp_path, budget // 3).names == [7]


def damages(whole):
    yield whole[:100]
    yield b""
    yield whole[:30] + b"\0" + whole[31:]
    yield whole.replace(b"floor", b"flour", 1)
    yield os.urandom(500)


def test_a_damaged_file_goes_with_one_line_and_is_never_believed(pair, tmp_path):
    Kept(tmp_path).put(pair, 1, ids(60))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in damages(whole):
        path.write_bytes(damaged)
        kept = Kept(tmp_path)
        assert reached(kept, [*ids(60), 9]) is None
        assert kept.names == [] and len(kept.said) == 1 and kept.said[0].startswith(f"{path} is removed: ")


def test_other_models_conversations_are_left_and_counted(pair, tmp_path):
    Kept(tmp_path, fingerprint="them").put(pair, 1, ids(60), 1.0)
    kept = Kept(tmp_path)
    assert reached(kept, [*ids(60), 9]) is None and kept.folder.nbytes > 0
    assert kept.said == [f"{tmp_path} has 1 conversation of other models or versions: kept for those"]
    kept.folder.budget_bytes = kept.folder.nbytes
    kept.put(pair, 2, ids(59), 2.0)
    assert kept.names == [2]
    assert reached(Kept(tmp_path, fingerprint="them"), [*ids(60), 9]) is None


def test_what_a_killed_server_left_half_written_goes(pair, tmp_path):
    kept = Kept(tmp_path)
    steps = kept.folder.write("f" * 16, slot_of(pair, ids(60)), facts_of(), 1.0)
    for _ in range(3):
        next(steps)
    (path,) = tmp_path.iterdir()
    assert path.name == "f" * 16 + ".conversation.part"
    half = path.read_bytes()
    steps.close()
    assert not list(tmp_path.iterdir())  # given up, it leaves nothing
    path.write_bytes(half)
    again = Kept(tmp_path)
    assert not list(tmp_path.iterdir()) and reached(again, [*ids(60), 9]) is None


def test_files_that_are_not_ours_are_left_alone(tmp_path):
    names = ["notes.txt", "cache.safetensors", "0123.conversation", "0123456789abcdef.part"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / ("a" * 16 + ".conversation")).symlink_to(tmp_path / "notes.txt")
    (tmp_path / ("b" * 16 + ".conversation")).mkdir()
    assert not Kept(tmp_path, 1).said
    assert len(list(tmp_path.iterdir())) == 6 and (tmp_path / "notes.txt").read_text() == "mine"


def test_a_full_disk_leaves_nothing_behind(pair, tmp_path, monkeypatch):
    def full(file, packed):
        file.write(b"some")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield

    kept = Kept(tmp_path)
    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(OSError, match="No space left"):
        kept.put(pair, 1, ids(60))
    assert kept.names == []
    monkeypatch.setattr(disk, "LEAST_FREE_BYTES", 1 << 60)
    with pytest.raises(OSError, match="No space left"):
        kept.put(pair, 1, ids(60))


def test_one_server_has_it_at_a_time(tmp_path):
    with open_folder(tmp_path / "dir", None, print):
        with pytest.raises(UsageError) as refused, open_folder(tmp_path / "dir", None, print):
            pass
        assert refused.value.message == f"--cache-dir {tmp_path / 'dir'} is in use by another specdec server"
        assert refused.value.hint == "give another folder: --cache-dir DIR"
    with open_folder(tmp_path / "dir", None, print):
        pass


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be used: File exists"), open_folder(tmp_path / "file", None, print):
        pass
    with pytest.raises(UsageError, match="Not a directory"), open_folder(tmp_path / "file" / "dir", None, print):
        pass


def test_another_pair_that_leaves_less_memory_takes_no_disk_from_the_conversations_that_are_there(pair, tmp_path):
    """Without --cache-dir-bytes, whose share follows the memory of the pair that is loaded."""
    kept = Kept(tmp_path, None, "large")
    kept.folder.index("small", 1 << 20)
    for number in range(3):
        kept.put(pair, number, ids(60, number))
    for cache_bytes in (1 << 10, 0):
        kept.folder.index("large", cache_bytes)
        assert kept.folder.budget_bytes == disk.USUAL_SHARE << 20 and kept.names == [0, 1, 2]
    kept.folder.index("larger", 1 << 21)
    assert kept.folder.budget_bytes == disk.USUAL_SHARE << 21
