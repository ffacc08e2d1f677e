"""Row costs on a device that takes given times and stops the host as mlx does; rollback on real caches."""

from itertools import count

import mlx.core as mx
import pytest

from fakes.device import FakeDevice, TextModel
from fakes.models import tiny_network
from specdec_cli.engine.architectures import architectures
from specdec_cli.engine.conformance.networks import tiny_network as tiny_of
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.timing import ROWS, row_costs, varied_tokens

STEP, ROW, BUILD = 1.0, 0.2, 0.01


class Built(TextModel):
    """A model whose graph takes time on the host."""

    def forget(self):
        self.length = 0

    def ids(self, tokens):
        return mx.array(list(tokens))

    def prefill(self, context):
        while self.length < len(context) - 1:
            output = super().forward(mx.zeros(len(context) - 1 - self.length))
            self.device.wait(output.logits)
            yield output

    def extend(self, tokens):
        self.device.spend(BUILD)
        return super().extend(tokens)


def measured(monkeypatch, buffers, rows=(1, 4, 8)):
    fake = FakeDevice().install(monkeypatch)
    model = Built(fake, [3, 1, 4, 1, 5, 9], lambda n: STEP + ROW * (n - 1), buffers)
    return row_costs(model, 20, rows, 3, fake.clock)


def test_building_queueing_and_the_whole_pass_are_told_apart(monkeypatch):
    """33 command buffers: the host is stopped until ten are left, so most of the pass is spent in the queueing."""
    for cost in measured(monkeypatch, 33):
        whole = STEP + ROW * (cost.rows - 1)
        assert cost.build_seconds == pytest.approx(BUILD)
        assert cost.total_seconds == pytest.approx(BUILD + whole)
        assert cost.queue_seconds == pytest.approx(whole * 23 / 33)


def test_a_pass_of_few_command_buffers_never_stops_the_host(monkeypatch):
    assert all(cost.queue_seconds == 0.0 for cost in measured(monkeypatch, 5))


def test_every_row_count_asked_for_is_measured_in_order(monkeypatch):
    assert [cost.rows for cost in measured(monkeypatch, 5, ROWS)] == list(ROWS)


@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "mamba2"])
def test_every_pass_starts_at_the_same_context_whatever_the_caches(monkeypatch, name):
    model = CachedModel(tiny_of(architectures()[name], 1), "m")
    lengths = []

    def extend(self, tokens, real=CachedModel.extend):
        lengths.append(self.length)
        return real(self, tokens)

    monkeypatch.setattr(CachedModel, "extend", extend)
    ticks = count()
    assert len(row_costs(model, 40, (1, 8, 32), 2, lambda: float(next(ticks)))) == 3
    assert set(lengths) == {40} and model.length == 0


@pytest.mark.parametrize(("done", "kept"), [(2, []), (5, [1, 1]), (6, [1, 1, 1]), (7, [2, 1, 1])])
def test_a_cancelled_measurement_keeps_the_turns_it_has(done, kept):
    """The first turn compiles kernels and is not kept; three row counts are a turn."""
    model = CachedModel(tiny_network(seed=1), "m")
    timed, ticks = [], count()

    def clock():
        timed.append(None)
        return float(next(ticks))

    costs = row_costs(model, 8, (1, 2, 3), 5, clock, lambda: len(timed) >= 4 * done)
    assert [cost.passes for cost in costs] == kept


def test_a_busy_moment_moves_no_median(monkeypatch):
    fake = FakeDevice().install(monkeypatch)
    turns = count()

    def costs(rows):
        return 9.0 if next(turns) in (4, 5) else STEP  # two passes in a row, of the second turn

    model = Built(fake, [3, 1, 4, 1, 5, 9], costs, 5)
    found = row_costs(model, 20, (1, 4), 3, fake.clock)
    assert [cost.total_seconds for cost in found] == pytest.approx([STEP + BUILD] * 2)


def test_rows_differ_so_that_experts_do():
    assert len(set(varied_tokens(32, 151_936))) == 32
