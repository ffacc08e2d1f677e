"""What a step reads of a mixture of experts: its dense part, and of each layer's E experts the k of its token."""

from pathlib import Path

import pytest
from mlx.utils import tree_flatten

from conformance.architectures import architectures
from fakes.heads import LAYER, cached_head, tiny_head, tiny_target
from fakes.packed import gpt_oss, model_as
from fakes.raw_qwen import MOE
from specdec_cli.engine.load import blank_network, empty_model
from specdec_cli.engine.model import CachedModel
from specdec_cli.models.checkpoint import Checkpoint

# k / E by configurations, which call k and E otherwise in every family; the shared experts of some are dense.
CHOSEN = {
    "qwen3_moe": 2 / 4,
    "deepseek_v3": 2 / 8,
    "ernie4_5_moe": 2 / 4,
    "gemma4_text": 2 / 4,
    "hunyuan": 2 / 4,
    "kimi_linear": 2 / 4,
    "llama4": 1 / 4,
    "longcat_flash": 3 / 4,
    "nemotron_h": 2 / 4,
    "phixtral": 2 / 4,
    "step3p5": 2 / 4,
    "qwen3": 1,
}
EXPERTS = (".switch_mlp.", ".switch_glu.", ".experts.")


def checkpoint(config, name="m"):
    return Checkpoint(name, Path(), config, ())


@pytest.mark.parametrize(("name", "share"), CHOSEN.items())
def test_a_step_reads_the_dense_part_and_k_of_e_experts(name, share):
    """The bug: all experts counted, so that gpt-oss 20b passed for a fifth of the 120b, and takes two thirds."""
    model = empty_model(checkpoint(architectures()[name].config))
    sizes = {name: value.nbytes for name, value in tree_flatten(model.network.module.parameters())}
    experts = sum(size for name, size in sizes.items() if any(part in name for part in EXPERTS))
    assert bool(experts) == (name != "qwen3")
    assert model.step_bytes == sum(sizes.values()) - experts + experts * share
    assert model.network.expert_share == pytest.approx(experts * share / model.step_bytes)


def test_the_pass_that_counts_leaves_the_network_as_it_was():
    network = blank_network(checkpoint(architectures()["qwen3_moe"].config))
    kinds = [type(module) for _, module in network.named_modules()]
    CachedModel(network, "m")
    assert [type(module) for _, module in network.named_modules()] == kinds


def test_a_head_with_experts_reads_as_many_of_them_as_its_layer_asks_for():
    target = tiny_target()
    head = cached_head(target, tiny_head(config=LAYER | MOE)).head
    sizes = {name: value.nbytes for name, value in tree_flatten(head.module.parameters())}
    unread = sum(size for name, size in sizes.items() if ".switch_mlp." in name) / 2
    assert unread and head.step_bytes == sum(sizes.values()) - unread + head.output_head.nbytes


@pytest.mark.parametrize(("layers", "experts", "read"), [(36, 128, 4.15e9), (24, 32, 3.18e9)])
def test_gpt_oss_is_packed_in_mxfp4_as_most_that_a_step_reads(layers, experts, read):
    """The bug: five matrices of a layer in 8 bits outnumber its three of experts; so "affine, 8", and rows at half."""
    model = model_as(gpt_oss(layers, experts))
    assert model.network.packing == ("mxfp4", 4)
    assert model.step_bytes == pytest.approx(read, rel=0.01)


def test_experts_are_no_matrices_that_are_multiplied_in_tiles():
    """The bug: those of Mixtral, 14336 wide, stood for its attention, 4096 wide."""
    config = architectures()["mixtral"].config | {"intermediate_size": 4096}
    assert empty_model(checkpoint(config)).network.widest < 4096
