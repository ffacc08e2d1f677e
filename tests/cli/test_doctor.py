"""`specdec doctor`: a report on stdout, and exit code 1 for wrong tokens only."""

import pytest

from specdec_cli.engine.conformance import suite
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
    found, out, err = specdec("doctor", "--selftest")
    assert (found, err) == (code, "") and out.strip()
