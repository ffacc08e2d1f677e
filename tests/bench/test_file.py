"""Results as JSON: what reads back, and what is refused."""

import json

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.report import compare
from specdec_cli.bench.result import from_dict, read_result, to_dict
from specdec_cli.errors import UsageError


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=60.0)


def test_what_was_written_reads_back_as_the_same_value(result):
    assert from_dict(json.loads(json.dumps(to_dict(result)))) == result


def test_unknown_fields_are_ignored(result):
    assert from_dict({**to_dict(result), "later": 1}) == result


def test_the_field_names_of_the_file_are_fixed(result):
    values = to_dict(result)
    assert {"settings", "environment", "samples", "rehearsals", "costs", "seconds", "partial", "schema"} < set(values)
    assert {"condition", "context_tokens", "k", "draft_seconds", "verify_seconds", "plain_seconds"} == set(
        values["costs"][0]
    )


def test_a_file_of_an_earlier_version_is_read_and_compared(result):
    """It has estimates of acceptance, answers of two phases, and less about each answer."""
    values = json.loads(json.dumps(to_dict(result)))
    for at, sample in enumerate(values["samples"]):
        for name in ("round_draft_seconds", "round_verify_seconds", "drafted_at", "accepted_at"):
            del sample[name]
        sample["phase"] = "learn" if at == 0 else sample["phase"]
    condition = values["costs"][0]["condition"]
    values["rehearsals"] = [{"condition": condition, "tokens": 9, "drafted": [4], "accepted": [1], "replayed": True}]
    old = from_dict(values)
    assert len(old.rehearsals) == 1 and old.samples[0].drafted_at == ()
    ((_, changes),) = compare(old, result).changes
    assert {change.k for change in changes} >= {0, 2, "auto"} and any(change.ratio for change in changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"specdec": "trace"}, "not a specdec bench"), ({"schema": 9}, "schema 9"), ({"seconds": "long"}, "seconds: ")],
)
def test_another_object_is_refused_with_its_first_wrong_field(result, change, message):
    with pytest.raises(ValueError, match=message):
        from_dict({**to_dict(result), **change})


@pytest.mark.parametrize("content", [b"\xff", b"{", b"[]", b"{}"])
def test_a_file_that_is_no_result_is_a_usage_error(tmp_path, content):
    path = tmp_path / "bench.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is no bench result"):
        read_result(path)


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_result(tmp_path / "none.json")
