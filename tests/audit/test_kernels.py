"""Architectures whose passes of several rows do round differently on this CPU: the machine's changes, and no faults."""

from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx
import pytest

from specdec_cli.audit.measure import measure
from specdec_cli.engine.architectures import architectures
from specdec_cli.engine.baseline import plain_steps
from specdec_cli.engine.conformance.networks import tiny_network
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.rounding import KnownText, Position

ROWS, TOKENS = 5, 40


def measured(name):
    network = tiny_network(architectures()[name], seed=1)
    network.set_dtype(mx.bfloat16)
    model, prompt = CachedModel(network, name), [3 + 7 * i % 50 for i in range(20)]
    steps = plain_steps(network, prompt, TOKENS, frozenset(), lambda _, logits: logits)
    text = KnownText(prompt, [Position.of(step) for step in steps])
    session = SimpleNamespace(slot=SimpleNamespace(target=model), dtype="bfloat16")
    return measure(session, [(name, text)], [ROWS])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mamba2", "falcon_h1", "plamo2"])
def test_ours_differ_no_more_than_the_machines_where_kernels_differ(name):
    """Scans as matrices, and projections that are shaped otherwise."""
    found = measured(name)
    (passes,) = found.passes
    assert 0.0 < passes.ours.rms < 1.5 * passes.machine.rms and found.faults == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lfm2", "olmo3", "recurrent_gemma"])
def test_windows_and_recurrent_states_change_nothing_where_kernels_go_row_by_row(name):
    found = measured(name)
    assert found.measured == 0.0 and found.faults == []
