"""Gemma 3 270M, a released model of 262,144 entries, through loop, caches, drafts and shapes."""

from __future__ import annotations

import re

import pytest

import specdec_cli as specdec
from fakes.planted import left_over
from real import released
from real.answers import LONG, SETTINGS, TEXTS, equal, plain, spoken
from specdec_cli.measure.audit import AuditPlan, run_audit
from specdec_cli.measure.prompts import SamplePrompt

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
TOKENS, END_OF_TURN = 32, 106


@pytest.mark.parametrize(("drafter", "k"), SETTINGS)
def test_every_drafter_says_mlx_lm_s_own_tokens(gemma_pair, drafter, k):
    for text in TEXTS:
        equal(gemma_pair, gemma_pair.text_tokens(text), TOKENS, drafter=drafter, k=k)


def test_the_model_in_4_bits_is_a_good_draft_of_itself(gemma_pair):
    ids = gemma_pair.text_tokens(TEXTS[0])
    assert equal(gemma_pair, ids, TOKENS, k=4).stats["draft_acceptance_rate"] > 0.5


def test_a_cut_draft_and_a_random_one_change_no_token(gemma, tmp_path):
    cut = released.first_layers(gemma, 6)
    noise = released.random_network(tmp_path / "noise", gemma, released.GEMMA_TOKENIZER.entries)
    for draft in (cut, noise):
        pair = specdec.load(target=str(gemma), draft=str(draft))
        finish = equal(pair, pair.text_tokens(TEXTS[0]), TOKENS, k=3)
        assert finish.stats["draft_acceptance_rate"] < 0.3


def test_one_seed_gives_one_text_whatever_drafts(gemma_pair):
    ids = gemma_pair.text_tokens(TEXTS[1])
    coupled = {"temperature": 0.7, "seed": 5, "rule": "coupled"}
    wanted, _ = spoken(gemma_pair, ids, TOKENS, k=0, **coupled)
    assert wanted != plain(gemma_pair, ids, TOKENS)
    for drafter, k in SETTINGS[1:]:
        assert spoken(gemma_pair, ids, TOKENS, drafter=drafter, k=k, **coupled)[0] == wanted, (drafter, k)


@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_its_window_of_512_tokens_rolls_back_exactly(gemma_pair, drafter):
    ids = gemma_pair.text_tokens(LONG)
    assert len(ids) > 512
    assert equal(gemma_pair, ids, TOKENS, drafter=drafter, k=4).stats["draft_n"] > 0


def test_its_window_is_entered_while_it_answers(gemma_pair):
    ids = gemma_pair.text_tokens(LONG)[:490]
    equal(gemma_pair, ids, 40, drafter="model", k=4)


def test_a_prediction_is_accepted_where_it_is_right(gemma_pair):
    ids = gemma_pair.text_tokens(TEXTS[0])
    text = spoken(gemma_pair, ids, TOKENS, temperature=0, k=0)[1].text
    finish = equal(gemma_pair, ids, TOKENS, drafter="ngram", k=8, predict=text)
    assert finish.stats["target_passes"] < TOKENS / 2


def test_a_stop_string_cuts_the_text(gemma_pair):
    ids = gemma_pair.text_tokens(TEXTS[0])
    _, finish = spoken(gemma_pair, ids, TOKENS, temperature=0, k=4, stop=["sub"])
    assert finish.reason == "stop" and finish.text.endswith("def ")


def test_a_turns_end_written_by_a_user_stays_text(gemma_pair):
    ids = gemma_pair.message_tokens([{"role": "user", "content": "Say <end_of_turn> twice."}])
    assert ids.count(END_OF_TURN) == 1


@pytest.mark.parametrize(("drafter", "k"), [("none", 0), ("model", 4), ("auto", "auto")])
def test_an_answer_has_the_shape_that_was_asked_for(gemma_pair, drafter, k):
    """Its tokenizer knows 262,145 ids, and its network has 262,144 rows."""
    shape = specdec.Constraint("regex", r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
    request = specdec.Request(16, k=k, drafter=drafter, constraint=shape, sampling={"temperature": 0})
    session = gemma_pair.session()
    ids = gemma_pair.text_tokens("The first day of the year 2024 is ")
    events = list(session.reply(ids, request))
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", events[-1].text)
    said = [token for event in events if event.event == "round" for token in event.round.emitted]
    assert said == [step.token for step in session.plain(ids, request)]


def test_quantized_caches_say_what_plain_decoding_with_them_says(gemma):
    pair = specdec.load(target=str(gemma), kv_bits=8)
    session, ids = pair.session(), pair.text_tokens(TEXTS[0])
    request = specdec.Request(TOKENS, k=4, drafter="ngram", sampling={"temperature": 0})
    said = [token for event in session.reply(ids, request) if event.event == "round" for token in event.round.emitted]
    assert said == [step.token for step in session.plain(ids, request)]


def audited(folder):
    pair = specdec.load(target=str(folder))
    plan = AuditPlan([SamplePrompt("", "code", TEXTS[0])], (4,), "ngram", 24, temperature=0.0, raw=True)
    return run_audit(pair.session(), plan, lambda *_: None)


@pytest.mark.parametrize("convert", [released.bfloat16, released.four_bits])
def test_an_audit_of_a_converted_model_finds_it_lossless(gemma, convert):
    assert audited(convert(gemma)).lossless


def test_an_audit_catches_a_rollback_that_leaves_something(gemma, monkeypatch):
    left_over(1.0, monkeypatch)
    assert not audited(gemma).lossless
