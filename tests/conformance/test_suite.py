"""The suite itself: it passes what is right, and finds what is wrong."""

import pytest

from conformance.architectures import architectures
from conformance.suite import check
from specdec_cli.engine.cache.recompute import Recorder


@pytest.mark.parametrize("name", ["qwen3", "mamba2"])
def test_a_right_architecture_passes_with_tokens_accepted_and_rejected(name):
    found = check(architectures()[name], 3, 24)
    assert (found.status, found.detail) == ("pass", "") and found.accepted and found.rejected and found.caches


def test_a_state_that_is_not_rolled_back_is_wrong_at_a_position(monkeypatch):
    monkeypatch.setattr(Recorder, "recompute", lambda recorder, recording, tokens: None)
    found = check(architectures()["mamba2"], 3, 24)
    assert found.status == "wrong" and found.detail.startswith("position ")
