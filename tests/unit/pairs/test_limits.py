"""Will it fit: sums, limits, and what the refusal proposes."""

from dataclasses import replace

import pytest

from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.format import size
from specdec_cli.core.request import Request
from specdec_cli.pairs.fit import Fit, Footprint
from specdec_cli.pairs.limits import ContextLimit
from specdec_cli.system.servers import RunningServer

GB = 10**9
TARGET, DRAFT = Footprint("big", 8 * GB, GB, GB), Footprint("small", GB, GB // 2, GB // 4)


def fit(usable, footprints=(TARGET, DRAFT), **more):
    """At 4096 tokens, where `footprints` are theirs."""

    def sizes(tokens):
        return tuple(replace(part, cache_bytes=part.cache_bytes * tokens // 4096) for part in footprints)

    return Fit(None, sizes, int(usable * GB / 0.92), tokens=4096, **more)


def test_the_peak_counts_weights_and_caches_of_both_and_the_larger_prefill():
    assert fit(16).peak_bytes == 11.5 * GB and fit(16).prefill_bytes == GB


def test_it_fits_up_to_its_limit():
    assert fit(11.6).fits and not fit(11.4).fits


@pytest.mark.parametrize(
    ("found", "quantized", "hint"),
    [
        (fit(10), fit(11.6), "--kv-bits 8"),
        (fit(10.8), fit(10.8), "--max-context 2048"),
        (fit(5), None, "--drafter none"),
        (fit(5, (TARGET,)), None, "a lower quantization"),
    ],
)
def test_the_refusal_names_both_numbers_and_what_would_fit(found, quantized, hint, monkeypatch):
    monkeypatch.setattr(Fit, "quantized", quantized)
    error = found.obstacle()
    assert isinstance(error, DoesNotFit) and hint in error.hint and "--force" in error.hint
    assert f"{size(found.peak_bytes)} at 4096 tokens" in error.message
    assert f"{size(found.limit_bytes)} are usable" in error.message


def test_what_just_fits_beside_a_server_is_told_whose_memory_it_is():
    server = RunningServer(7, "tiny", "http://127.0.0.1:1", 1.0, 3 * GB)
    assert fit(12, servers=(server,)).warning == (
        "memory 96 % of 12.0 GB beside the server of tiny, which holds 3.0 GB; specdec stop 7 frees that"
    )
    assert not fit(20, servers=(server,)).warning and not fit(12).warning


def test_the_shorter_context_of_target_and_draft_bounds_a_reply_that_drafts_with_it():
    limit = ContextLimit(target=100, draft=60)
    assert limit.tokens(Request(drafter="model")) == 60 and ContextLimit(50, 60).tokens(Request(drafter="model")) == 50
    assert limit.tokens(Request(drafter="none")) == limit.tokens(Request(drafter="ngram")) == 100
    assert limit.warning(Request(drafter="model", max_context=80)) and not limit.warning(Request(max_context=60))
