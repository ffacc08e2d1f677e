"""What a bench measured: the values, and the file that they read back from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.report import compare
from specdec_cli.bench.result import Contender, from_dict, plain, read_result, to_dict
from specdec_cli.errors import UsageError


@pytest.mark.parametrize(
    ("contender", "name"),
    [
        (Contender("ngram"), "ngram"),
        (Contender("model", "org/Small-4bit"), "Small-4bit"),
        (Contender("model", "/models/small/"), "small"),
        (Contender("auto", "org/Small"), "auto with Small"),
    ],
)
def test_a_contender_has_a_short_name(contender, name):
    assert contender.name == name


def test_drift_compares_the_repeated_baseline_with_the_first_of_its_prompt():
    result = sample_result(budget_seconds=60.0)
    first = next(sample for sample in result.samples if sample.arm == plain(0.0))
    slower = replace(first, phase="drift", decode_seconds=2 * first.decode_seconds)
    assert replace(result, samples=(first, slower)).drift == pytest.approx(-0.5)
    assert replace(result, samples=(first,)).drift is None


def slower_at_the_end(result, verify, plain_step):
    """`result` with the later half of its rounds dearer by these factors."""
    middle = len(result.costs) // 2
    later = [
        replace(one, verify_seconds=verify * one.verify_seconds, plain_seconds=plain_step * one.plain_seconds)
        for one in result.costs[middle:]
    ]
    return replace(result, costs=(*result.costs[:middle], *later))


def test_passes_of_several_rows_that_become_dearer_are_seen_though_plain_steps_do_not():
    """An M5 Max verified four rows in 37 ms and three runs later in 50; one row stayed, and so did every reading."""
    result = sample_result(budget_seconds=120.0)
    assert result.row_drift == pytest.approx(0.0, abs=0.05)
    assert slower_at_the_end(result, 1.35, 1.0).row_drift == pytest.approx(0.35, abs=0.07)
    assert slower_at_the_end(result, 1.35, 1.35).row_drift == pytest.approx(0.0, abs=0.05)
    assert replace(result, costs=result.costs[:8]).row_drift is None


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=60.0)


def test_what_was_written_reads_back_as_the_same_value(result):
    assert from_dict(json.loads(json.dumps(to_dict(result)))) == result


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
