import pytest

from specdec_cli.pairs.check import SHORT_ANSWERS, Side, advise, break_even

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


def test_break_even_counts_draft_steps_by_size_and_a_quarter_step_a_row():
    assert break_even(Side(8_000, {}), 800, 4) == pytest.approx(1 + 4 * (0.1 + 0.25))
    assert break_even(Side(8_000, {}), 800, 0) == 1
