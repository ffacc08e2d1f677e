"""What may be requested: sampling values in force, who drafts, and which rule takes effect."""

import pytest

from specdec_cli.core import kinds
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


def test_a_bias_is_an_id_and_a_number():
    assert parse_bias(("3=-5", "7=1.5", "3=2")) == ((3, 2.0), (7, 1.5))
    for wrong in ("3", "x=1", "3=", "-1=2", "3=nan"):
        with pytest.raises(UsageError):
            parse_bias((wrong,))


# A drafter and a rule are a line each: laws/test_plain_words shows it.


@pytest.mark.parametrize(
    ("name", "k", "has_draft", "expected"),
    [
        ("model", 4, True, "model"),
        ("model", 4, False, "none"),
        ("model", 0, True, "none"),
        ("auto", "auto", True, "auto"),
        ("auto", "auto", False, "ngram"),
        ("ngram", 4, False, "ngram"),
        ("none", "auto", True, "none"),
        ("mtp", 4, False, "none"),
    ],
)
def test_who_really_drafts(name, k, has_draft, expected):
    meant = kinds.drafting(name, k, "model" if has_draft else None)
    assert (meant.kind.name, meant.k) == (expected, 0 if expected == "none" else k)


@pytest.mark.parametrize(
    ("name", "k", "expected"),
    [("model", 4, "mtp"), ("model", 0, "none"), ("auto", 4, "auto"), ("ngram", 4, "ngram"), ("translated", 2, "mtp")],
)
def test_who_drafts_where_the_pairs_draft_is_a_head(name, k, expected):
    assert kinds.drafting(name, k, "mtp").kind.name == expected


def test_the_rule_that_takes_effect():
    assert kinds.effective_rule("auto", 3, 0.7).name == "coupled"
    assert kinds.effective_rule("auto", None, 0.7).name == "block"
    assert kinds.effective_rule("token", 3, 0.7).name == "token"
    assert kinds.effective_rule("block", 3, 0.0).name == "greedy"


def test_only_rounds_of_a_drafter_that_learns_teach():
    taught = [name for name in ("model", "ngram", "none", "unheard of") if kinds.learns_from(name)]
    assert taught == ["model"]
