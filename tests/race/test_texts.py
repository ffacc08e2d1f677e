"""Texts that differ: the first difference, its gap, and what it is called."""

from __future__ import annotations

import math

import pytest

from specdec_cli.audit.rounding import Rounding
from specdec_cli.race.race import RacePlan, common_tokens, divergence
from specdec_cli.request import Request
from specdec_cli.session.load import load


@pytest.fixture(scope="module")
def session(tiny_pair):
    target, draft = map(str, tiny_pair)
    return load(target=target, draft=draft).session()


@pytest.fixture(scope="module")
def plan(session):
    return RacePlan(Request(max_tokens=8, k=2), session.raw_tokens("def f("), "def f(", raw=True)


@pytest.fixture(scope="module")
def answer(session, plan):
    return [step.token for step in session.plain(plan.ids, plan.plain)]


@pytest.mark.parametrize(
    ("one", "other", "common"), [([1, 2], [1, 2], 2), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [], 0)]
)
def test_texts_are_common_up_to_the_first_difference(one, other, common):
    assert common_tokens(one, other) == common


def test_equal_texts_have_none(session, plan, answer):
    assert divergence(session, plan, answer, answer) is None


def test_another_token_is_more_than_a_near_tie_where_its_score_is_far(session, plan, answer):
    wrong = [*answer[:3], (answer[3] + 1) % 259, *answer[4:]]
    found = divergence(session, plan, answer, wrong)
    assert (found.position, found.plain.id, found.specdec.id) == (3, answer[3], wrong[3])
    assert found.gap > found.limit and not found.near_tie


def test_a_gap_within_what_rounding_does_here_is_a_near_tie(session, plan, answer, monkeypatch):
    monkeypatch.setattr(Rounding, "limit", lambda self, temperature=0.0: 1e6)
    wrong = [*answer[:3], (answer[3] + 1) % 259]
    found = divergence(session, plan, answer[:4], wrong)
    assert found.near_tie and 0 < found.gap < math.inf


def test_the_gap_is_measured_after_the_lanes_own_words_where_mlx_lm_left_them_before(session, plan, answer):
    """Both lanes agree on a token that mlx-lm does not say, and differ later."""
    common = [(answer[0] + 1) % 259]
    after = [step.token for step in session.plain([*plan.ids, *common], plan.plain)]
    one, other = [*common, after[0]], [*common, (after[0] + 1) % 259]
    found = divergence(session, plan, one, other)
    assert found.position == 1 and 0 < found.gap < math.inf


def test_a_text_that_ends_before_the_other_has_no_gap(session, plan, answer):
    found = divergence(session, plan, answer, answer[:2])
    assert found.specdec is None and found.gap == math.inf and not found.near_tie
