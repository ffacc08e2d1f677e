"""The suite itself: it passes what is right, finds what is wrong, and goes on after what raises."""

import pytest

from specdec_cli.engine.cache.recompute import Recorder
from specdec_cli.engine.conformance import suite
from specdec_cli.engine.conformance.suite import check, run_suite
from specdec_cli.engine.load import architectures


@pytest.mark.parametrize("name", ["qwen3", "mamba2"])
def test_a_right_architecture_passes_with_tokens_accepted_and_rejected(name):
    found = check(architectures()[name], 3, 24)
    assert (found.status, found.detail) == ("pass", "") and found.accepted and found.rejected and found.caches


def test_a_state_that_is_not_rolled_back_is_wrong_at_a_position(monkeypatch):
    monkeypatch.setattr(Recorder, "recompute", lambda recorder, recording, tokens: None)
    found = check(architectures()["mamba2"], 3, 24)
    assert found.status == "wrong" and found.detail.startswith("position ")


def test_one_that_raises_is_wrong_and_the_next_is_still_tried(monkeypatch):
    calls = []

    def failing(architecture, k, tokens):
        calls.append(architecture.name)
        if len(calls) == 1:
            raise ValueError("shapes differ")
        return suite.Outcome(architecture.name, "pass")

    monkeypatch.setattr(suite, "check", failing)
    outcomes = list(run_suite([architectures()["qwen3"], architectures()["llama"]], 3, 8))
    assert [(o.name, o.status, o.detail) for o in outcomes] == [
        ("qwen3", "wrong", "ValueError: shapes differ"),
        ("llama", "pass", ""),
    ]
