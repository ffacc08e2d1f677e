"""How matrices are packed, by headers and configurations as conversions write them."""

from pathlib import Path

import pytest

from fakes.packed import gpt_oss
from specdec_cli.core.safetensors import Stored
from specdec_cli.models.packing import Packed, Packing, bits_a_weight, packed

BYTES = {"U32": 4, "U8": 1, "BF16": 2, "F16": 2}
PATH = "model.layers.0.mlp.gate_proj"


def stored(name, dtype, *shape):
    size = BYTES[dtype]
    for side in shape:
        size *= side
    return name, Stored(Path("m"), name, dtype, shape, size)


def bytewise(path, bits, group_size, *shape, scales="U8"):
    *batch, rows, columns = shape
    return [
        stored(f"{path}.weight", "U32", *batch, rows, columns * bits // 32),
        stored(f"{path}.scales", scales, *batch, rows, columns // group_size),
    ]


def affine(path, bits, group_size, *shape):
    words, (scales, one) = bytewise(path, bits, group_size, *shape, scales="BF16")
    return [words, (scales, one), stored(scales.replace("scales", "biases"), "BF16", *one.shape)]


def found(tensors, **quantization):
    return [*packed(dict(tensors), {"quantization": quantization} if quantization else {})]


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_an_affine_matrix_has_the_bits_and_groups_of_the_configuration(bits, group_size):
    packing = Packing("affine", bits, group_size)
    tensors = affine(PATH, bits, group_size, 96, 256)
    assert found(tensors, bits=bits, group_size=group_size) == [Packed(packing, 96, 256, "matrix")]


@pytest.mark.parametrize("packing", [Packing("mxfp4", 4, 32), Packing("mxfp8", 8, 32), Packing("nvfp4", 4, 16)])
def test_scales_of_a_byte_say_the_mode_whatever_the_configuration_says(packing):
    """The bug of guessing by the configuration: one that has no word of it, as gpt-oss's first conversions."""
    tensors = bytewise(PATH, *packing[1:], 96, 256)
    assert found(tensors) == found(tensors, bits=8, group_size=64) == [Packed(packing, 96, 256, "matrix")]


def test_a_path_of_its_own_has_bits_of_its_own_and_loses_the_common_mode():
    common, own = affine("a", 4, 64, 96, 256), affine("b", 8, 32, 96, 256)
    quantization = {"bits": 4, "group_size": 64, "b": {"bits": 8, "group_size": 32}}
    assert [one.packing for one in found([*common, *own], **quantization)] == [
        Packing("affine", 4, 64),
        Packing("affine", 8, 32),
    ]


def test_a_header_that_contradicts_its_configuration_is_believed():
    assert found(affine(PATH, 8, 64, 96, 256), bits=4, group_size=64)[0].packing == Packing("affine", 8, 64)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("model.layers.0.mlp.switch_mlp.up_proj", "experts"),
        ("model.layers.0.experts.switch_glu.up_proj", "experts"),
        ("model.layers.0.attn.o_a_proj", "experts"),
        ("model.layers.0.self_attn.embed_q", "latent"),
        ("model.layers.0.self_attn.unembed_out", "latent"),
    ],
)
def test_several_matrices_in_one_are_experts_unless_all_of_them_are_multiplied(path, kind):
    assert found(affine(path, 4, 64, 8, 96, 256), bits=4, group_size=64)[0].stored_as == kind


def test_gpt_oss_as_it_was_published_has_blocks_in_place_of_words():
    tensors = [stored("e.gate_up_proj_blocks", "U8", 32, 96, 8, 16), stored("e.gate_up_proj_scales", "U8", 32, 96, 8)]
    assert found(tensors) == [Packed(Packing("mxfp4", 4, 32), 96, 256, "experts")]


def test_what_is_not_packed_or_damaged_is_left_out():
    bare = [stored("norm.weight", "BF16", 64), stored("a.scales", "BF16", 8, 4), stored("b.weight", "U32", 8, 4)]
    flat = [stored("c.weight", "U32", 2), stored("c.scales", "F16", 2)]
    odd = bytewise("d", 3, 32, 96, 256)
    assert not found([*bare, *flat, *odd], bits=4, group_size=64)


@pytest.mark.parametrize(
    ("config", "path", "bits"),
    [
        (gpt_oss(2, 4), "model.layers.0.mlp.experts.up_proj", 4.25),
        (gpt_oss(2, 4), "lm_head", 8.5),
        ({"quantization_config": {"quant_method": "mxfp4"}}, PATH, 4.25),
        ({"quantization": {"bits": 3, "group_size": 128}}, PATH, 3.25),
        ({"quantization_config": {"quant_method": "fp8"}}, PATH, 16),
        ({"dtype": "float32"}, PATH, 32),
        ({}, PATH, 16),
    ],
)
def test_bits_of_a_weight_include_its_part_of_the_scales(config, path, bits):
    assert bits_a_weight(config, path) == bits
