"""A memo on disk: what was written is read, and nothing it holds or lacks does harm."""

import json

import pytest

from specdec_cli.engine.draft_length.adaptive import Adaptive
from specdec_cli.request import MAX_K
from specdec_cli.session.cost_file import KEPT_ENTRIES, SCHEMA, CostFile


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


GOOD = {"at": 0.0, "costs": {"verify": {"2": 1.2}, "draft": {"1": 0.1}, "prefill_token": 0.01, "doubt": 0.1}}
GOOD |= {"judged": 10.0, "accepted": 6.0, "tokens": 100, "since": 20.0, "fails": 1}


@pytest.mark.parametrize("wrong", [None, {}, 1e308, float("nan"), {"1": float("nan")}])
def test_entries_of_nonsense_are_measured_anew_or_give_finite_costs(wrong):
    for key in [*GOOD, *GOOD["costs"]]:
        values = json.loads(json.dumps(GOOD))
        next(part for part in (values, values["costs"]) if key in part)[key] = wrong
        try:
            adaptive = Adaptive.from_dict(values, 1.0)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            continue
        if adaptive is not None:
            adaptive.begin(64, 100)
            assert all(0 <= adaptive.next() <= MAX_K for _ in range(20))
