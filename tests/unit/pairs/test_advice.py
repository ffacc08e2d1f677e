import re
from collections import namedtuple
from pathlib import Path

import pytest

from fakes.packed import gpt_oss
from specdec_cli.engine.load import empty_model
from specdec_cli.models.checkpoint import Checkpoint
from specdec_cli.pairs.check import SHORT_ANSWERS, Side, advise, break_even
from specdec_cli.pairs.files import ModelFiles

Snapshot = namedtuple("Snapshot", "weight_bytes")

EIGHT_BITS, FOUR_BITS = {"quantization": {"bits": 8}}, {"quantization": {"bits": 4}}


def side(billions: float, config=EIGHT_BITS) -> Side:
    """A model of so many billion parameters; a quantization of group 64 costs half a bit a weight more."""
    bits = config.get("quantization", {}).get("bits", 16)
    return Side(int(billions * 1e9 * (bits + (0.5 if bits < 16 else 0)) / 8), config)


def told(target: Side, draft: Side | None, chip: str = "Apple M4") -> list[str]:
    return [sentence for sentence in advise(target, draft, chip) if sentence != SHORT_ANSWERS]


@pytest.mark.parametrize(("target", "draft", "largest"), [(7, 3, 1), (14, 7, 3), (32, 14, 7), (4, 2, 1)])
def test_a_draft_above_its_size_band_is_told_the_largest_useful(target, draft, largest):
    (sentence,) = told(side(target), side(draft))
    assert sentence == (f"a draft of {draft:.1f} B is large for a target of {target:.1f} B: use one up to {largest} B")


def test_a_target_of_three_billion_is_told_to_take_better_quantization_instead():
    (sentence,) = told(side(3), side(0.5))
    assert sentence == (
        "a target of 3.0 B parameters is too small for a useful draft; a better quantization gains more"
    )


def test_four_bit_targets_are_told_what_eight_bits_would_change():
    (sentence,) = told(side(8, FOUR_BITS), side(0.6))
    assert sentence.startswith("4-bit targets gain least")


@pytest.mark.parametrize(
    "config",
    [{"num_local_experts": 8}, {"num_experts": 128}, {"n_routed_experts": 64}, {"text_config": {"num_experts": 128}}],
)
def test_a_mixture_of_experts_is_recognised_by_its_configuration(config):
    (sentence,) = told(side(30, {**EIGHT_BITS, **config}), side(0.6))
    assert sentence.startswith("mixture of experts")


@pytest.mark.parametrize(("chip", "warned"), [("Apple M1", 2), ("Apple M2 Max", 2), ("Apple M3", 0), ("Apple M12", 0)])
def test_chips_before_m3_are_warned(chip, warned):
    assert len(told(side(8), side(0.6), chip)) == warned


def of_shapes(config, weight_bytes):
    """What is known of a model before its download: its configuration, and how large its files are."""
    checkpoint = Checkpoint("m", Path(), config, ())
    return Side.of(ModelFiles(checkpoint, Snapshot(weight_bytes)), empty_model(checkpoint))


@pytest.fixture(scope="module")
def gpt_oss_pair():
    return of_shapes(gpt_oss(36, 128), 63_080_000_000), of_shapes(gpt_oss(24, 32), 12_080_000_000)


def test_a_step_of_a_mixture_reads_few_of_the_experts_in_the_bits_that_these_are_packed_in(gpt_oss_pair):
    """The bug: gpt-oss 120b and 20b were 63 and 12 GB a step; in 4 bits throughout the experts would be most of it."""
    target, draft = gpt_oss_pair
    assert (target.step_bytes, target.expert_bytes) == pytest.approx((4.17e9, 1.90e9), rel=0.03)
    assert (draft.step_bytes, draft.expert_bytes) == pytest.approx((3.18e9, 1.27e9), rel=0.03)


def test_break_even_of_a_mixture_counts_what_is_read_and_the_experts_of_each_row(gpt_oss_pair):
    """The bug: 1.9 tokens a round of K = 2; it costs 3.5 plain steps, more than any round of it yields."""
    target, draft = gpt_oss_pair
    experts = 1.90 / 4.17
    row = 0.9 * experts + 0.25 * (1 - experts)
    assert break_even(target, draft.step_bytes, 2) == pytest.approx(1 + 2 * (3.18 / 4.17 + row), rel=0.02)


def test_advice_on_sizes_is_about_the_parameters_that_a_step_reads(gpt_oss_pair):
    """As the model cards count them: 5.1 B of 117 B, and 3.6 B of 21 B, less the embedding."""
    sentence, *_ = told(*gpt_oss_pair)
    assert re.fullmatch(
        r"a draft of (\S+) B active is large for a target of (\S+) B active: use one up to 1 B", sentence
    )
    small, big = map(float, re.findall(r"(\S+) B active", sentence))
    assert big == pytest.approx(5.1 + 0.6, rel=0.1) and small == pytest.approx(3.6 + 0.6, rel=0.1)
    assert told(side(3), side(0.5))[0].startswith("a target of 3.0 B parameters")


def test_files_that_are_packed_otherwise_than_they_say_have_no_more_experts_than_bytes():
    config = gpt_oss(24, 32) | {"quantization": {}}
    side = of_shapes(config, 12_080_000_000)
    assert side.expert_bytes + side.unread_bytes == pytest.approx(side.weight_bytes)
    assert side.expert_bytes == pytest.approx(side.weight_bytes * 4 / 32)


def test_break_even_counts_draft_steps_by_size_and_a_quarter_step_a_row():
    assert break_even(Side(8_000, {}), 800, 4) == pytest.approx(1 + 4 * (0.1 + 0.25))
    assert break_even(Side(8_000, {}), 800, 0) == 1
