"""Families in real precisions: what is right passes whatever its rounding, and every planted fault is found.

On the CPU mlx's passes over one row and several often round alike, so another rounding is planted, too.
"""

from dataclasses import replace

import mlx.nn as nn
import pytest
from mlx_lm.models.cache import KVCache

from specdec_cli.engine.cache.recompute import Recorder
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.conformance import kernels
from specdec_cli.engine.conformance.kernels import (
    PRECISIONS,
    agreement,
    check_family,
    families,
    network_in,
    text,
)
from specdec_cli.engine.model import CachedModel

pytestmark = pytest.mark.slow  # networks of the sizes of released models


class Changed(nn.Module):
    """A network whose passes over several rows are changed by `change(logits [1, T, V])`."""

    def __init__(self, network, change):
        super().__init__()
        self.network, self.change = network, change
        self.layers = network.layers

    def make_cache(self):
        return self.network.make_cache() if hasattr(self.network, "make_cache") else [KVCache() for _ in self.layers]

    def __call__(self, tokens, cache=None):
        logits = self.network(tokens, cache=cache)
        return self.change(logits) if tokens.shape[1] > 1 else logits


def found_with(precision, reference_change, our_change, family="dense"):
    """The agreement of a network changed in our passes, with one changed in mlx-lm's passes over several rows."""
    network = network_in(families()[family], precision)
    target = CachedModel(Changed(network, our_change), "m")
    return agreement(Changed(network, reference_change), target, text(target.vocab_size))


@pytest.mark.parametrize(("name", "precision"), [("dense", "bfloat16"), ("window", "4 bits"), ("ssd", "bfloat16")])
def test_a_right_family_passes_and_says_what_it_proves(name, precision):
    found = check_family(families()[name], precision)
    assert (found.status, found.proves) == ("pass", f"kernels real models use: {precision}, {families()[name].width}")
    assert found.accepted and found.rejected and "a lost rollback" in found.detail


@pytest.mark.full
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["sinks", "experts", "shared", "delta", "latent"])
def test_every_other_family_passes_or_is_refused_by_this_device(name, precision):
    found = check_family(families()[name], precision)
    assert found.status == "pass" or (families()[name].experts and found.detail == kernels.NO_EXPERTS)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_fault_in_every_pass_over_several_rows_is_not_taken_for_rounding(precision):
    """It moves the measured change as well: the float32-derived cap is what finds it."""

    def shifted(logits):
        return logits.at[:, :, 7].add(8.0)

    found = found_with(precision, shifted, shifted)
    assert found.found > found.allowed and replace(found, float32=found.measured).found <= 2 * found.measured


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("name", "where", "method", "broken"),
    [
        ("dense", KVCache, "trim", lambda cache, tokens: tokens),
        ("window", WindowKVCache, "trim", lambda cache, tokens: tokens),
        ("ssd", Recorder, "recompute", lambda recorder, recording, tokens: None),
    ],
)
def test_a_lost_rollback_is_wrong(monkeypatch, name, where, method, broken, precision):
    monkeypatch.setattr(where, method, broken)
    found = check_family(families()[name], precision)
    assert found.status == "wrong" and "largest change of a gap" in found.detail
