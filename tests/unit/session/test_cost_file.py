"""A memo on disk: what was written is read, and nothing it holds or lacks does harm."""

from threading import Thread, current_thread

import pytest

from specdec_cli.session.cost_file import KEPT_ENTRIES, POWER_SECONDS, SCHEMA, CostFile, CostsAtPower


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "costs.json"


def test_the_least_recently_written_entries_go_first(path):
    memory = CostFile(path)
    for i in range(KEPT_ENTRIES + 3):
        memory[str(i)] = {"i": i}
    memory["4"] = {"i": "again"}
    memory["new"] = {}
    assert [memory.get(key) for key in ("2", "3", "4", "5")] == [None, None, {"i": "again"}, {"i": 5}]
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA - 1}'))
    assert memory.get("4") is None  # older schemas billed costs to the wrong pass


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
    store, now, clock = {}, ["mains"], [0.0]
    power = {"ask": lambda: now[0], "now": lambda: clock[0]}
    costs = CostsAtPower(store, **power)
    costs["x"] = {"i": 1}
    assert costs.get("x") == {"i": 1}
    now[0], clock[0] = "battery, low power", POWER_SECONDS
    costs["x"] = {"i": 2}
    assert costs.get("x") == {"i": 1}
    assert CostsAtPower(store, **power).get("x") is None


def test_the_power_is_asked_once_in_ten_seconds_and_never_in_the_thread_that_writes():
    """Every entry of every reply started two programs on a Mac, in a server's only generating thread."""
    asked, clock = [], [0.0]
    costs = CostsAtPower({}, lambda: asked.append(current_thread()) or "mains", lambda: clock[0])
    for reply in range(20):
        clock[0] = reply * 1.0
        for key in "abcd":
            costs[key] = {"i": reply}
        assert costs.get("d") == {"i": reply}
    assert len(asked) == 2 and current_thread() not in asked
    clock[0] += POWER_SECONDS
    assert costs.get("d") == {"i": 19} and len(asked) == 2  # whoever reads waits for no program
