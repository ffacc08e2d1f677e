"""How a head is packed, by the configuration of its target: as the target's last layer is."""

from pathlib import Path

import pytest

from specdec_cli.models.checkpoint import Checkpoint
from specdec_cli.models.packing import Bits, packing_of

GATE = "language_model.model.layers.{}.mlp.gate"


def packing(**config):
    text = {"num_hidden_layers": 4}
    return packing_of(Checkpoint("m", Path("m"), {"model_type": "x", "text_config": text, **config}, ()))


def test_what_the_last_layer_says_of_a_matrix_holds_and_else_the_models_own_bits():
    values = {"group_size": 64, "bits": 4, "mode": "affine"}
    values |= {GATE.format(0): {"group_size": 64, "bits": 6}, GATE.format(3): {"group_size": 32, "bits": 8}}
    values |= {"language_model.model.layers.3.self_attn.o_proj": False, "language_model.lm_head": {"bits": 3}}
    found = packing(quantization=values)
    assert found.of("layers.0.mlp.gate", (4, 64)) == Bits(32, 8)
    assert found.of("layers.0.mlp.up_proj", (96, 64)) == found.of("fc", (64, 128)) == Bits(64, 4)
    assert found.of("layers.0.self_attn.o_proj", (64, 64)) is None
    assert found.of("layers.0.mlp.down_proj", (64, 96)) is None  # 96 inputs are no groups of 64
    assert found.of("norm", (64,)) is None


@pytest.mark.parametrize(
    ("values", "bits"),
    [
        ({"quant_method": "mxfp4"}, Bits(32, 4, "mxfp4")),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, Bits(128, 4)),
        ({"quant_method": "fp8", "bits": 8, "group_size": 128}, None),
        ({"group_size": 32, "bits": "many"}, None),
        ({"quant_method": "bitnet"}, None),
    ],
)
def test_configurations_of_other_tools_are_read_as_mlx_lm_packs_them_or_not_at_all(values, bits):
    found = packing(quantization_config=values)
    assert (found and found.usual) == bits


@pytest.mark.parametrize(
    ("bits", "expected"),
    [(Bits(32, 4), 4 * 64 // 2 + 8 * 4), (Bits(64, 8), 4 * 64 + 4 * 4), (Bits(32, 4, "mxfp4"), 4 * 64 // 2 + 8)],
)
def test_the_bytes_of_a_packed_matrix_are_its_numbers_and_its_groups(bits, expected):
    assert bits.size_bytes((4, 64)) == expected
