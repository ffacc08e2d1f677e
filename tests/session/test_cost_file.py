"""A memo on disk: what was written is read, and nothing it holds or lacks does harm."""

import json
from threading import Thread

import platformdirs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_cli.engine.draft_length.adaptive import Adaptive
from specdec_cli.request import MAX_K
from specdec_cli.session.cost_file import KEPT_ENTRIES, SCHEMA, CostFile, MemoryCostStore, NullCostStore, cost_file

VALUES = st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.floats(allow_nan=False), st.text()))


@pytest.fixture
def memory(tmp_path):
    return CostFile(tmp_path / "state" / "costs.json")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99, "entries": {"x": {}}}', '{"schema": 5, "entries": 3}'])
def test_a_damaged_file_is_as_good_as_none_and_is_replaced(memory, text):
    memory._path.parent.mkdir()
    memory._path.write_text(text)
    assert memory.read("x") is None
    memory.write("x", {"at": 1})
    assert memory.read("x") == {"at": 1}


@pytest.mark.parametrize("schema", [None, *range(1, SCHEMA)])
def test_costs_that_were_billed_to_the_wrong_pass_are_not_believed(memory, schema):
    """Before schema 3 the draft was billed the verification on Metal; a later one had shifted plain steps."""
    memory._path.parent.mkdir()
    entries = {"x": json.loads(json.dumps(Adaptive().to_dict(1.0)))}
    memory._path.write_text(json.dumps({"schema": schema, "entries": entries}))
    assert memory.read("x") is None
    memory._path.write_text(json.dumps({"schema": SCHEMA, "entries": entries}))
    assert CostFile(memory._path).read("x") == entries["x"]


def test_the_oldest_entries_go_first(memory):
    for i in range(KEPT_ENTRIES + 3):
        memory.write(str(i), {"i": i})
    memory.write("4", {"i": "again"})
    memory.write("new", {})
    assert [memory.read(key) for key in ("2", "3", "5")] == [None, None, {"i": 5}]
    assert memory.read("4") == {"i": "again"}


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path):
    (tmp_path / "file").write_text("")
    CostFile(tmp_path / "file" / "costs.json").write("x", {})


@settings(max_examples=20)
@given(writes=st.lists(st.tuples(st.sampled_from("abc"), VALUES), max_size=8))
def test_what_was_written_last_is_read_by_any_store_that_keeps(tmp_path_factory, writes):
    path = tmp_path_factory.mktemp("state") / "costs.json"
    for store in (CostFile(path), MemoryCostStore()):
        for key, values in writes:
            store.write(key, values)
        again = CostFile(path) if isinstance(store, CostFile) else store
        assert {key: again.read(key) for key, _ in writes} == dict(writes)
        assert again.read("nobody wrote this") is None


def test_a_store_that_keeps_nothing_reads_nothing():
    store = NullCostStore()
    store.write("a", {"x": 1})
    assert store.read("a") is None


def test_the_file_is_replaced_whole_and_nothing_is_left_beside_it(memory):
    for i in range(5):
        memory.write("x", {"i": i})
        json.loads(memory._path.read_text())
    assert [path.name for path in memory._path.parent.iterdir()] == ["costs.json"]


def test_two_writers_at_once_leave_a_file_that_can_be_read(memory):
    """At most an entry is lost."""
    threads = [Thread(target=lambda name=name: [memory.write(name, {"i": i}) for i in range(20)]) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {"i": 19} in (memory.read("a"), memory.read("b"))


def test_it_lies_in_the_users_own_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(platformdirs, "user_state_path", lambda name: tmp_path / name)
    assert cost_file()._path == tmp_path / "specdec" / "costs.json"


NONSENSE = [
    "[" * 100_000 + "]" * 100_000,
    '{"schema": 5, "entries": ' + "9" * 5000 + "}",
    "null",
    b"\xff\xfe",
    '{"schema": 5, "entries": []}',
    '{"schema": [], "entries": {"x": 5}}',
]


@pytest.mark.parametrize("content", NONSENSE, ids=range(len(NONSENSE)))
def test_no_nonsense_in_the_file_ends_a_run(memory, content):
    """Deep nesting ended this run and every later one."""
    memory._path.parent.mkdir()
    memory._path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert memory.read("x") is None
    memory.write("x", {"at": 1})
    assert memory.read("x") == {"at": 1}


def test_a_damaged_file_is_set_aside_and_a_folder_in_its_place_leaves_nothing_behind(memory):
    memory._path.parent.mkdir()
    memory._path.write_text("{")
    memory.write("x", {"at": 1})
    assert sorted(path.name for path in memory._path.parent.iterdir()) == ["costs.damaged.json", "costs.json"]


def test_two_programs_at_once_lose_nothing(memory):
    threads = [Thread(target=lambda name=name: memory.write(name, {"i": name})) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [memory.read(name) for name in "abcdefgh"] == [{"i": name} for name in "abcdefgh"]


GOOD = {
    "at": 0.0,
    "costs": {"verify": {"2": 1.2}, "draft": {"1": 0.1}, "prefill_token": 0.01, "doubt": 0.1},
    "judged": 10.0,
    "accepted": 6.0,
    "tokens": 100,
    "since": 20.0,
    "fails": 1,
}
WRONG = [None, "x", {}, -1, 1e308, float("nan"), {"1": float("nan")}]


@pytest.mark.parametrize("value", WRONG, ids=range(len(WRONG)))
@pytest.mark.parametrize("key", [*GOOD, *GOOD["costs"]])
def test_an_entry_of_nonsense_is_measured_anew_or_gives_finite_costs(key, value):
    values = json.loads(json.dumps(GOOD))
    place = next(part for part in (values, *values.values()) if isinstance(part, dict) and key in part)
    place[key] = value
    try:
        adaptive = Adaptive.from_dict(values, 1.0)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return
    if adaptive is not None:
        adaptive.begin(64, 100)
        for _ in range(20):
            assert 0 <= adaptive.next() <= MAX_K
