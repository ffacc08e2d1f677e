"""Sampling flags: each under its own name, absent ones left to the target."""

import re
from typing import get_args, get_type_hints

import pytest

from specdec_cli.cli.sampling import TARGETS_OWN, SamplingOptions
from specdec_cli.errors import UsageError
from specdec_cli.request import BOUNDS, effective, flag

FLAGS = {"temperature": "temp"} | {name: name for name in BOUNDS if name != "temperature"}


@pytest.mark.parametrize("name", BOUNDS)
def test_every_flag_arrives_under_its_own_name(name):
    """Seven values are passed on by position: any two exchanged would show here."""
    low, high, _ = BOUNDS[name]
    value = high if name == "top_p" else (low + high) / 2
    assert SamplingOptions(**{FLAGS[name]: value}).values() == dict.fromkeys(BOUNDS) | {name: value}


def test_what_is_not_given_is_the_targets_own():
    own = {"do_sample": True, "temperature": 0.6, "top_k": 20}
    found = effective(own, SamplingOptions(top_p=0.9).values())
    assert (found["temperature"], found["top_k"], found["top_p"], found["min_p"]) == (0.6, 20, 0.9, 0.0)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_value_above_its_bounds_names_the_flag(name):
    high = BOUNDS[name][1]
    with pytest.raises(UsageError, match=f"--{flag(name)} .* is outside"):
        SamplingOptions(**{FLAGS[name]: high + 1}).values()


def test_the_last_bias_of_an_id_counts_and_nonsense_is_refused():
    assert SamplingOptions().bias() == ()
    assert SamplingOptions(logit_bias=["3=1", "4=-2.5", "3=7"]).bias() == ((3, 7.0), (4, -2.5))
    with pytest.raises(UsageError, match="--logit-bias 3 is not ID=VALUE"):
        SamplingOptions(logit_bias=["3"]).bias()


def test_every_flag_that_the_target_may_set_says_so_in_its_help():
    hints = get_type_hints(SamplingOptions, include_extras=True)
    shown = {name: get_args(hint)[1].show_default for name, hint in hints.items() if get_args(hint)[1:]}
    assert {name for name, value in shown.items() if value == TARGETS_OWN} == set(FLAGS.values())


def test_what_has_no_effect_is_said_in_one_dim_line(specdec, tiny_pair):
    run = ("run", "--target", tiny_pair[0], "--draft", tiny_pair[1], "--raw", "-n", "2", "--temp", "0", "hi")
    said = specdec(*run, "--max-context", "10000000", "--rule", "match")[2].splitlines()[0]
    assert re.fullmatch(
        r"without effect: --max-context 10000000: the models hold \d+ tokens; "
        "--rule match: at temperature 0 every rule gives the same text",
        said,
    )
    for count in (("--max-context", "50"), ("--rule", "match", "--temp", "1"), ()):
        assert "without effect" not in specdec(*run, *count)[2]
    assert specdec(*run, "--rule", "match", "-q")[2] == ""
