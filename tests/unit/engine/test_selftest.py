"""Families in real precisions: what is right passes whatever its rounding, and every planted fault is found.

On the CPU mlx's passes over one row and several often round alike, so another rounding is planted, too.
"""

from dataclasses import replace

import mlx.nn as nn
import pytest
from mlx_lm.models.cache import KVCache

from specdec_cli.engine import selftest
from specdec_cli.engine.cache.rollback import Recorder
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.selftest import (
    PRECISIONS,
    Agreement,
    Outcome,
    agreement,
    check_family,
    families,
    network_in,
    run_families,
    text,
)

slow = pytest.mark.slow  # networks of the sizes of released models
EACH = [
    pytest.param(PRECISIONS[0], marks=slow),
    *(pytest.param(more, marks=pytest.mark.full) for more in PRECISIONS[1:]),
]


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


@slow
@pytest.mark.parametrize(("name", "precision"), [("dense", "bfloat16"), ("window", "4 bits"), ("ssd", "bfloat16")])
def test_a_right_family_passes_and_says_what_it_proves(name, precision):
    found = check_family(families()[name], precision)
    kind = families()[name]
    assert (found.name, found.status) == (f"{kind.config['model_type']}, {precision}", "pass")
    about, _, figures = found.detail.partition(": leads change by ")
    assert about == f"{kind.about} ({kind.width})" and "a lost rollback would by" in figures


@pytest.mark.full
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["sinks", "experts", "shared", "delta", "latent"])
def test_every_other_family_passes_or_is_refused_by_this_device(name, precision):
    found = check_family(families()[name], precision)
    assert found.status == "pass" or (families()[name].experts and found.detail == selftest.NO_EXPERTS)


@pytest.mark.parametrize("precision", EACH)
def test_a_fault_in_every_pass_over_several_rows_is_not_taken_for_rounding(precision):
    """It moves the measured change as well: the float32-derived cap is what finds it."""

    def shifted(logits):
        return logits.at[:, :, 7].add(8.0)

    found = found_with(precision, shifted, shifted)
    assert found.status == "wrong" and replace(found, float32=found.measured).change <= 2 * found.measured


@pytest.mark.parametrize("precision", EACH)
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
    assert found.status == "wrong" and "leads change by" in found.detail


def test_a_test_in_which_a_lost_rollback_would_hardly_show_is_unclear():
    rows = Agreement(change=0.1, measured=0.1, float32=0.1, one_rounding=0.1, lost=1.0)
    assert rows.status == "pass" and replace(rows, lost=0.5).status == "unclear"
    assert replace(rows, change=0.3).status == replace(rows, change=float("nan")).status == "wrong"


def test_one_that_raises_is_wrong_and_the_next_is_still_tried(monkeypatch):
    calls = []

    def failing(family, precision):
        calls.append(precision)
        if len(calls) == 1:
            raise ValueError("shapes differ")
        return Outcome(family.name(precision), "pass", "")

    monkeypatch.setattr(selftest, "check_family", failing)
    assert [(o.name, o.status, o.detail) for o in run_families([families()["dense"]])] == [
        ("qwen3, bfloat16", "wrong", "ValueError: shapes differ"),
        ("qwen3, 4 bits", "pass", ""),
    ]
