"""Architectures whose passes of several rows do round differently on this CPU: measured, bounded, and no faults."""

from __future__ import annotations

import mlx.core as mx
import pytest

from specdec_cli.audit.change import Change, SeveralRows, difference
from specdec_cli.audit.rounding import Noise, Rounding
from specdec_cli.engine.architectures import architectures
from specdec_cli.engine.baseline import plain_steps
from specdec_cli.engine.conformance.networks import tiny_network
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.rounding import KnownText, Position, float32_leads, row_gaps

ROWS, TOKENS = 5, 40


def measured(name):
    network = tiny_network(architectures()[name], seed=1)
    network.set_dtype(mx.bfloat16)
    model, prompt = CachedModel(network, name), [3 + 7 * i % 50 for i in range(20)]
    steps = plain_steps(network, prompt, TOKENS, frozenset(), lambda _, logits: logits)
    text = KnownText(prompt, [Position.of(step) for step in steps])
    leads = [position.leads for position in text.positions]
    pairs = zip(leads, float32_leads(model.network, text), strict=True)
    noise = Noise.of([difference(*values) for both in pairs for values in zip(*both, strict=True)])
    changes = [
        Change(name, found.reading, found.position, found.row, difference(found.gap, leads[found.position][0]))
        for found in row_gaps(model, text, ROWS)
    ]
    largest = max(position.largest_logit for position in text.positions)
    return Rounding("bfloat16", TOKENS, largest, noise, [SeveralRows(ROWS, changes)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mamba2", "falcon_h1", "plamo2"])
def test_real_differences_of_kernels_lie_within_the_float32_noise(name):
    """Scans as matrices, and projections that are shaped otherwise. Seen: 0.5 to 0.7 r, at most 3.5 r."""
    found = measured(name)
    assert 0.0 < found.passes[0].all.rms < 1.5 * found.noise.rms
    assert found.faults == [] and found.limit() == max(found.measured, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lfm2", "olmo3", "recurrent_gemma"])
def test_windows_and_recurrent_states_change_nothing_where_kernels_go_row_by_row(name):
    found = measured(name)
    assert found.measured == 0.0 < found.noise.rms and found.faults == []
