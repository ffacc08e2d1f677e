"""The list of architectures: what it holds, and what it refuses."""

import sys

import pytest
from mlx_lm.utils import MODEL_REMAPPING, _get_classes

from specdec_cli.engine.architectures import architectures, installed, refusal


def test_names_are_those_of_the_modules_and_every_refusal_has_a_reason():
    found = architectures()
    assert all(name == one.name for name, one in found.items())
    assert all(one.refused is None or len(one.refused) > 10 for one in found.values())


@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "mamba2", "llama4", "falcon_h1"])
def test_a_config_is_one_that_mlx_lm_builds(name):
    config = dict(architectures()[name].config)
    model_class, args_class = _get_classes(config)
    network = model_class(args_class.from_dict(config))
    assert network.__module__ == f"mlx_lm.models.{name}"


def test_another_name_of_a_model_type_has_the_same_answer():
    listed = architectures()
    for alias, name in MODEL_REMAPPING.items():
        assert refusal(alias) == (listed[name].refused if name in listed else None)


def test_modules_are_read_and_not_imported():
    before = {name for name in sys.modules if name.startswith("mlx_lm.models.")}
    names = installed()
    assert names == sorted(names) and {"qwen3", "llama", "mamba2"} <= set(names)
    assert {name for name in sys.modules if name.startswith("mlx_lm.models.")} == before
    assert not {"base", "cache", "rope_utils", "ssm"} & set(names)
