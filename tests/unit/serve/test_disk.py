"""The folder of conversations: what is believed, what goes, and what is said of it."""

import os
import time
from collections import deque

import mlx.core as mx
import pytest

from fakes.heads import agreeing_head, cached_head, tiny_target
from fakes.serving import ids, tiny_loaded
from specdec_cli.core.errors import UsageError
from specdec_cli.engine.stored import Unusable, pack, read_facts, read_values, write
from specdec_cli.serve import disk
from specdec_cli.serve.disk import Folder, open_folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return tiny_loaded(tmp_path_factory.mktemp("pair"))


class Kept:
    """A folder, and what it said."""

    def __init__(self, path, budget_bytes=1 << 30, fingerprint="us"):
        self.said = []
        self.folder = Folder(path, budget_bytes, self.said.append)
        path.mkdir(exist_ok=True)
        self.folder.index(fingerprint, 0)

    def put(self, pair, tokens, used_at=None, key=None):
        slot = pair.slot()
        for _ in slot.target.prefill([*tokens, 1]):
            pass
        self.folder.write(slot, key, used_at or time.time())

    def nearest(self, prompt, key=None, reach=0, most_bytes=1 << 30):
        return self.folder.nearest(prompt, key, reach, most_bytes)

    def holds(self, *seeds):
        assert len(list(self.folder.path.iterdir())) == len(seeds)
        return all(self.folder.holds(ids(60, seed)) for seed in seeds)


def test_what_was_written_is_found_again_by_its_ids_and_only_its_owner_reads_it(pair, tmp_path):
    Kept(tmp_path).put(pair, ids(60), key="editor")
    again = Kept(tmp_path)
    entry, slot = again.nearest([*ids(60), 5, 6]), pair.slot()
    assert (entry.conversation_id, list(entry.tokens)) == ("editor", list(ids(60)))
    assert again.folder.restore(entry, slot) and slot.reach([*ids(60), 5, 6]) == 60
    assert not again.said and again.holds(0) and entry.path.stat().st_mode & 0o777 == 0o600


def test_the_longest_prefix_wins_then_the_key_then_the_last_used(pair, tmp_path):
    kept = Kept(tmp_path)
    for last, key, used_at in [(1, "a", 3.0), (2, "a", 1.0), (3, "b", 2.0), (4, None, 4.0)]:
        kept.put(pair, [*ids(40), *ids(20, last)], used_at, key)
    prompt = [*ids(40), *ids(20, 9)]
    found = [kept.nearest(prompt, key).tokens[-1] for key in ("a", "b", None)]
    assert found == [ids(20, last)[-1] for last in (1, 3, 4)]
    assert kept.nearest([*ids(40), *ids(20, 2), 9], "b").tokens[-1] == ids(20, 2)[-1]


def test_what_gains_little_for_its_bytes_is_not_read(pair, tmp_path, monkeypatch):
    kept = Kept(tmp_path)
    kept.put(pair, ids(60))
    prompt = [*ids(60), 9]
    assert kept.nearest(prompt) and kept.nearest(prompt, reach=44)
    assert kept.nearest(prompt, reach=45) is kept.nearest(prompt, most_bytes=1000) is None
    monkeypatch.setattr(disk, "BYTES_A_TOKEN", kept.folder.nbytes // 40)
    assert kept.nearest(prompt, reach=15) and kept.nearest(prompt, reach=25) is None


def test_the_budget_holds_and_the_least_recently_used_go(pair, tmp_path):
    kept = Kept(tmp_path)
    kept.put(pair, ids(60), 0.5)
    budget = 3 * kept.folder.nbytes + 100
    kept = Kept(tmp_path, budget)
    for seed in range(1, 6):
        kept.put(pair, ids(60, seed), float(seed))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) == kept.folder.nbytes <= budget
    assert kept.holds(3, 4, 5)
    kept.put(pair, ids(60, 6), 1.0)  # older than all of them: nothing goes for it
    assert kept.holds(3, 4, 5) and "has no room" in kept.said[-1]
    kept.folder.restore(kept.nearest([*ids(60, 3), 9]), pair.slot())
    kept.put(pair, ids(60, 7), time.time())
    assert kept.holds(3, 5, 7) and Kept(tmp_path, budget // 3).holds(7)


def test_a_conversation_that_went_on_takes_the_place_of_its_beginning(pair, tmp_path):
    kept = Kept(tmp_path)
    kept.put(pair, ids(60))
    kept.put(pair, [*ids(60), *ids(20, 2)])
    assert [len(entry.tokens) for entry in kept.folder._entries.values()] == [80] and len(list(tmp_path.iterdir())) == 1


def damages(whole):
    yield whole[:100]
    yield b""
    yield whole[:30] + b"\0" + whole[31:]
    yield whole.replace(b"floor", b"flour", 1)
    yield whole[:-2000] + bytes([whole[-2000] ^ 1]) + whole[-1999:]
    yield os.urandom(500)


def test_a_damaged_file_goes_with_one_line_and_is_never_believed(pair, tmp_path):
    Kept(tmp_path).put(pair, ids(60))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in damages(whole):
        path.write_bytes(damaged)
        kept = Kept(tmp_path)
        entry = kept.nearest([*ids(60), 9])
        assert entry is None or not kept.folder.restore(entry, pair.slot())
        assert not path.exists() and len(kept.said) == 1 and kept.said[0].startswith(f"{path} is removed: ")


def test_other_models_conversations_are_left_and_counted(pair, tmp_path):
    Kept(tmp_path, fingerprint="them").put(pair, ids(60), 1.0)
    kept = Kept(tmp_path)
    assert kept.nearest([*ids(60), 9]) is None and kept.folder.nbytes > 0
    assert kept.said == [f"{tmp_path} has 1 conversation of other models or versions: kept for those"]
    kept.folder.budget_bytes = kept.folder.nbytes
    kept.put(pair, ids(59), 2.0)
    assert Kept(tmp_path, fingerprint="them").nearest([*ids(60), 9]) is None


def test_what_a_killed_server_left_half_written_goes_and_files_that_are_not_ours_stay(tmp_path):
    names = ["notes.txt", "cache.safetensors", "0123.conversation", "0123456789abcdef.part"]
    for name in (*names, "f" * 16 + ".conversation.part"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ("a" * 16 + ".conversation")).symlink_to(tmp_path / "notes.txt")
    (tmp_path / ("b" * 16 + ".conversation")).mkdir()
    assert not Kept(tmp_path, 1).said
    assert len(list(tmp_path.iterdir())) == 6 and (tmp_path / "notes.txt").read_text() == "mine"


def test_a_full_disk_leaves_nothing_behind(pair, tmp_path, monkeypatch):
    kept = Kept(tmp_path)
    monkeypatch.setattr(disk, "LEAST_FREE_BYTES", 1 << 60)
    with pytest.raises(OSError, match="No space left"):
        kept.put(pair, ids(60))
    assert kept.holds()


def test_one_server_has_it_at_a_time_and_what_is_no_folder_is_refused(tmp_path):
    with open_folder(tmp_path / "new" / "dir", None, print) as found:
        assert found.path.stat().st_mode & 0o777 == 0o700
        with pytest.raises(UsageError) as refused, open_folder(found.path, None, print):
            pass
    assert refused.value.message == f"--cache-dir {found.path} is in use by another specdec server"
    (tmp_path / "file").write_text("")
    for path in ("file", "file/dir"):
        with pytest.raises(UsageError, match="cannot be used: "), open_folder(tmp_path / path, None, print):
            pass


def test_another_pair_that_leaves_less_memory_takes_no_disk_from_the_conversations_that_are_there(pair, tmp_path):
    """Without --cache-dir-bytes, whose share follows the memory of the pair that is loaded."""
    kept = Kept(tmp_path, None, "large")
    kept.folder.index("small", 1 << 20)
    for seed in range(3):
        kept.put(pair, ids(60, seed))
    for cache_bytes in (1 << 10, 0, 1 << 19):
        kept.folder.index("small", cache_bytes)
        assert kept.folder.budget_bytes == disk.USUAL_SHARE << 20 and kept.holds(0, 1, 2)


def forge(path, change):
    """The same file with other values, and a digest that fits."""
    steps = read_values(path)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            values = end.value
            break
    change(values)
    facts, forged = read_facts(path) | {"tokens": values["target"]["read"].tolist()}, path.with_suffix(".forged")
    with forged.open("wb") as file:
        deque(write(file, pack(facts, values)), maxlen=0)
    forged.replace(path)


def cut(part, by=1):
    part["read"] = part["read"][:-by]


def longer(part):
    part["read"] = mx.concatenate([part["read"], mx.array([5], dtype=mx.int32)])


def states_of(values, name):
    """The attributes of each cache of keys and values."""
    return [state for state in values[name]["states"] if isinstance(state.get("keys"), mx.array)]


FORGED = {
    **{f"origin {o!r}": lambda v, o=o: v["target"].update(origin=o) for o in (1, 40, True, -1, "x", None, 0.0, 1.5)},
    **{f"origin of the draft {o!r}": lambda v, o=o: v["draft"].update(origin=o) for o in (3, -1, "x", None)},
    "a token less": lambda v: cut(v["target"]),
    "five tokens less": lambda v: cut(v["target"], 5),
    "a token more": lambda v: longer(v["target"]),
    "a token less of the draft": lambda v: cut(v["draft"]),
    "tokens that are no ids": lambda v: v["target"].update(read=v["target"]["read"].astype(mx.float32)),
    "a shorter cache": lambda v: states_of(v, "target")[-1].update(offset=59),
    "a cache without its last row": lambda v: [s.update(keys=s["keys"][:, :, :59]) for s in states_of(v, "target")],
    "an emptied conversation": lambda v: [s.update(keys=None, values=None, offset=0) for s in v["target"]["states"]],
}
SNAPSHOTS = {
    "a snapshot elsewhere": lambda v: v["target"]["snapshots"][-1].__setitem__(0, 50),
    "a snapshot beyond the end": lambda v: v["target"]["snapshots"][-1].__setitem__(0, 61),
    "a snapshot at no number": lambda v: v["target"]["snapshots"][-1].__setitem__(0, True),
}
CASES = [("plain", name) for name in FORGED] + [("window", name) for name in SNAPSHOTS]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_forged_conversation_with_a_right_digest_is_not_believed(tmp_path, kind, name):
    """Its answers were wrong from the first token on, or failed amid the reply."""
    pair, kept = tiny_loaded(tmp_path / "pair", kind), Kept(tmp_path / "kept")
    slot = pair.slot()
    for model in (slot.target, slot.draft):
        deque(model.prefill([*ids(60), 1]), maxlen=0)
    kept.folder.write(slot, None, time.time())
    entry = Kept(tmp_path / "kept").nearest([*ids(60), 5, 6])
    forge(entry.path, lambda values: None)
    assert Kept(tmp_path / "kept").folder.restore(entry, pair.slot())  # written anew, it is believed
    forge(entry.path, (FORGED | SNAPSHOTS)[name])
    again, other = Kept(tmp_path / "kept"), pair.slot()
    found = again.nearest([*ids(70), 5, 6])
    assert found and not again.folder.restore(found, other)
    assert not found.path.exists() and "is removed: " in again.said[-1]
    assert not other.tokens and not other.draft.read


@pytest.mark.parametrize("change", [{"origin": 1}, {"origin": "x"}, {"origin": -1}, {"context": mx.array([1, 2, 3])}])
def test_a_forged_head_is_not_believed(change):
    target = tiny_target()
    head = cached_head(target, agreeing_head(target))
    for output in target.prefill([*ids(30), 1]):
        head.hand_over([*ids(30), 1][: target.length + 1], output.hidden)
    head.first()
    stored = head.stored()
    cached_head(target, head.head.module).restore(stored)
    with pytest.raises(Unusable):
        cached_head(target, head.head.module).restore(stored | change)
