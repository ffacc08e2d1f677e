"""`specdec doctor`: a report on stdout, and exit code 1 for wrong tokens only."""

import json

import pytest

from specdec_cli.engine.conformance import kernels, suite
from specdec_cli.engine.conformance.suite import Outcome


def test_the_report_names_machine_versions_and_cache_and_exits_0(specdec):
    code, out, err = specdec("doctor")
    rows = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert {"chip", "computes on", "memory", "mlx", "mlx-lm", "python", "model cache"} <= {row[0] for row in rows}
    assert all(2 <= len(row) <= 3 for row in rows)


@pytest.mark.parametrize(("status", "code"), [("pass", 0), ("refused", 0), ("wrong", 1)])
def test_only_a_selftest_that_found_wrong_tokens_exits_1(specdec, monkeypatch, status, code):
    def outcomes(architectures, *sizes):
        yield Outcome("qwen3", status, ("KVCache",), 3, 3, "position 9: 3 instead of 4" if status == "wrong" else "")

    monkeypatch.setattr(suite, "run_suite", outcomes)
    monkeypatch.setattr(kernels, "run_families", lambda families: iter(()))
    found, out, err = specdec("doctor", "--selftest")
    assert (found, err) == (code, "") and out.strip()


def test_a_selftest_gives_one_json_line_for_each_result(specdec, monkeypatch):
    monkeypatch.setattr(suite, "run_suite", lambda *_: iter([Outcome("qwen3", "pass")]))
    monkeypatch.setattr(kernels, "run_families", lambda _: iter([Outcome("qwen3, 4 bits", "refused", detail="no")]))
    code, out, err = specdec("doctor", "--selftest", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "") and [line["name"] for line in lines] == ["qwen3, 4 bits", "qwen3"]
    assert lines[1]["proves"] == "rollback logic, float32"


def test_json_without_a_selftest_is_a_usage_error(specdec):
    assert specdec.refused("doctor", "--json") == (
        2,
        "--json was given without --selftest",
        "specdec doctor --selftest --json",
    )


def test_into_a_pipe_a_selftest_reports_each_result_at_once_and_the_totals_last(specdec, monkeypatch):
    """The bug: `doctor --selftest | cat` said nothing for 40 seconds."""
    outcomes = [Outcome("qwen3", "pass"), Outcome("olmo", "refused", detail="no package")]

    monkeypatch.setattr(suite, "run_suite", lambda *_: iter(outcomes))
    monkeypatch.setattr(kernels, "run_families", lambda _: iter(()))
    code, out, err = specdec("doctor", "--selftest")
    lines = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "") and lines[:2] == [["qwen3", "pass"], ["olmo", "refused", "no package"]]
    assert [line[0] for line in lines[2:]] == ["rollback logic, float32", "kernels real models use", "time"]
