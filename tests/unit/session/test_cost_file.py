"""A memo on disk: what was written is read, and nothing it holds or lacks does harm."""

from threading import Thread

import pytest

from specdec_cli.session.cost_file import KEPT_ENTRIES, SCHEMA, CostFile, CostsAtPower


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "costs.json"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        f'{{"schema": {SCHEMA}, "entries": 3}}',
        f'{{"schema": {SCHEMA - 1}, "entries": {{"x": {{}}}}}}',
    ],
)
def test_a_file_that_is_damaged_or_of_another_schema_is_as_good_as_none_and_is_replaced(path, text):
    """Deep nesting ended this run and every later one; older schemas billed costs to the wrong pass."""
    path.parent.mkdir()
    path.write_text(text)
    assert CostFile(path).get("x") is None
    CostFile(path)["x"] = {"at": 1}
    assert CostFile(path).get("x") == {"at": 1}
    assert [file.name for file in path.parent.iterdir()] == ["costs.json"]


def test_the_least_recently_written_entries_go_first(path):
    memory = CostFile(path)
    for i in range(KEPT_ENTRIES + 3):
        memory[str(i)] = {"i": i}
    memory["4"] = {"i": "again"}
    memory["new"] = {}
    assert [memory.get(key) for key in ("2", "3", "4", "5")] == [None, None, {"i": "again"}, {"i": 5}]


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path):
    (tmp_path / "file").write_text("")
    CostFile(tmp_path / "file" / "costs.json")["x"] = {}


def test_programs_that_write_at_once_lose_nothing(path):
    threads = [Thread(target=lambda name=name: CostFile(path).__setitem__(name, {"i": name})) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [CostFile(path).get(name) for name in "abcdefgh"] == [{"i": name} for name in "abcdefgh"]


def test_costs_that_were_measured_while_the_power_changed_are_not_written():
    """A server that was unplugged wrote what a battery gives as costs on mains, for 30 days."""
    store, now = {}, ["mains"]
    costs = CostsAtPower(store, "mains", lambda: now[0])
    costs["x"] = {"i": 1}
    now[0] = "battery, low power"
    costs["x"] = {"i": 2}
    assert costs.get("x") == {"i": 1}
    assert CostsAtPower(store, "battery, low power").get("x") is None
