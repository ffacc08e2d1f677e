"""Will it fit: sums, limits, and what the refusal proposes."""

import pytest

from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.format import size
from specdec_cli.core.request import Request
from specdec_cli.pairs.limits import ContextLimit, Footprint, MemoryEstimate, prefill_bytes
from specdec_cli.system.servers import RunningServer

GB = 10**9
TARGET, DRAFT = Footprint("big", 8 * GB, GB, GB), Footprint("small", GB, GB // 2, GB // 4)


def estimate(available, footprints=(TARGET, DRAFT), **more):
    return MemoryEstimate(footprints, 4096, int(available * GB / 0.92), **more)


def test_the_peak_counts_weights_and_caches_of_both_and_the_larger_prefill():
    assert estimate(16).peak_bytes == 11.5 * GB and estimate(16).prefill_bytes == GB


def test_it_fits_up_to_its_limit():
    assert estimate(11.6).fits and not estimate(11.4).fits


@pytest.mark.parametrize(
    ("found", "hint"),
    [
        (estimate(10, fits_with_kv_bits=4), "--kv-bits 4"),
        (estimate(10.26, largest_context=2048), "--max-context 2048"),
        (estimate(5), "--drafter none"),
        (estimate(5, (TARGET,)), "a lower quantization"),
    ],
)
def test_the_refusal_names_both_numbers_and_what_would_fit(found, hint):
    error = found.obstacle()
    assert isinstance(error, DoesNotFit) and hint in error.hint and "--force" in error.hint
    assert f"{size(found.peak_bytes)} at 4096 tokens" in error.message
    assert f"{size(found.limit_bytes)} are usable" in error.message


def test_what_just_fits_beside_a_server_is_told_whose_memory_it_is():
    server = RunningServer(7, "tiny", "http://127.0.0.1:1", 1.0, 3 * GB)
    assert estimate(12, servers=(server,)).warning == (
        "memory 96 % of 12.0 GB beside the server of tiny, which holds 3.0 GB; specdec stop 7 frees that"
    )
    assert not estimate(20, servers=(server,)).warning and not estimate(12).warning


def test_without_a_fused_kernel_prefill_grows_with_the_context():
    fused, plain = (prefill_bytes(512, 8192, 12, 1024, 4096, 16, 2, fused) for fused in (True, False))
    assert plain - fused == 16 * 512 * 8192 * 2


def test_one_layer_alone_computes_neither_attention_nor_mlp_before_the_last_token():
    small, big = (prefill_bytes(512, 8192, 1, 1024, inner, 16, 2, False) for inner in (4096, 16384))
    assert small == big < prefill_bytes(512, 8192, 2, 1024, 4096, 16, 2, True)


def test_the_shorter_context_of_target_and_draft_bounds_a_reply_that_drafts_with_it():
    limit = ContextLimit(target=100, draft=60)
    assert limit.tokens(Request(drafter="model")) == 60 and ContextLimit(50, 60).tokens(Request(drafter="model")) == 50
    assert limit.tokens(Request(drafter="none")) == limit.tokens(Request(drafter="ngram")) == 100
    assert limit.warning(Request(drafter="model", max_context=80)) and not limit.warning(Request(max_context=60))
