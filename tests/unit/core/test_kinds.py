"""Who drafts and which rule takes effect. A drafter and a rule are a line each: laws/test_plain_words shows it."""

import pytest

from specdec_cli.core import kinds


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
