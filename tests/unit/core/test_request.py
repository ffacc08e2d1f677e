"""Which sampling values are in force: the model's file, the flags over it, and what is off."""

import pytest

from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import effective, parse_bias

QWEN = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}


def test_a_models_file_sets_the_defaults_and_flags_override_one_by_one():
    assert effective(QWEN, {})["temperature"] == 0.7
    found = effective(QWEN, {"temperature": 0.0, "top_p": None})
    assert (found["temperature"], found["top_p"], found["top_k"]) == (0.0, 0.8, 20)
    assert found["min_p"] == 0.0


@pytest.mark.parametrize(
    ("config", "temperature"),
    [
        ({}, 0.0),
        ({"do_sample": False, "temperature": 0.6}, 0.0),
        ({"do_sample": True}, 1.0),
        ({"temperature": 0.6}, 0.6),
        ({"do_sample": True, "temperature": None}, 1.0),
    ],
)
def test_do_sample_decides_whether_a_temperature_counts(config, temperature):
    assert effective(config, {})["temperature"] == temperature


@pytest.mark.parametrize("given", [{"temperature": -0.1}, {"top_p": 1.5}, {"min_p": float("nan")}, {"top_k": -1}])
def test_a_flag_out_of_bounds_names_the_bounds(given):
    with pytest.raises(UsageError, match="is outside"):
        effective({}, given)


def test_a_bias_is_an_id_and_a_number():
    assert parse_bias(("3=-5", "7=1.5", "3=2")) == ((3, 2.0), (7, 1.5))
    for wrong in ("3", "x=1", "3=", "-1=2", "3=nan"):
        with pytest.raises(UsageError, match=r"logit.bias"):
            parse_bias((wrong,))
