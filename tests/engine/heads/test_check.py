"""The self-check: each wrong way to use a head is found, an honest one is left alone, one that guesses at random falls.

Target and head are those of `fakes.counting`. Odds to fail by chance are none: everything is deterministic.
"""

import json
from dataclasses import replace
from itertools import islice
from math import comb

import numpy as np
import pytest
from mlx.utils import tree_flatten

from fakes.counting import SMALL, counting_folder, counting_tensors, random_head
from fakes.raw_qwen import raw_tensors
from specdec_cli.engine.heads.agreement import Agreement, Variant
from specdec_cli.engine.heads.branches import Text
from specdec_cli.engine.heads.check import LOOKS, Contest, at_least, check, own_texts, readable, sign_test
from specdec_cli.engine.heads.load import load_head
from specdec_cli.engine.heads.mtp import QWEN
from specdec_cli.engine.hidden import LAST, READ
from specdec_cli.engine.load import load
from specdec_cli.errors import Refused
from specdec_cli.format import percent
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head

PROMPTS = [[(31 * i + 17 * j) % 250 + 3 for i in range(6)] for j in range(8)]
HONEST = Variant(QWEN, zero_centred=True)
WRONG = {
    "the state before the last norm": replace(HONEST, recipe=replace(QWEN, reads=LAST)),
    "norms not shifted": replace(HONEST, zero_centred=False),
    "the state first": replace(HONEST, recipe=replace(QWEN, embedding_first=False)),
    "the token of the state's position": replace(HONEST, recipe=replace(QWEN, lag=1)),
    "carried before the norm": replace(HONEST, recipe=replace(QWEN, carries="raw")),
}
WRONG["all at once"] = Variant(replace(QWEN, reads=LAST, embedding_first=False, lag=1, carries="raw"), False)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = counting_folder(tmp_path_factory.mktemp("counting") / "model")
    return load(read_checkpoint(folder, "counting")), find_head(read_checkpoint(folder, "counting"))


@pytest.fixture(scope="module")
def texts(target):
    """The target's own, enough for every look; read once for all tests."""
    return list(islice(own_texts(target[0], PROMPTS, frozenset()), 24))


def checked(target, texts, as_if, files=None):
    """The check of the head, loaded and used as `as_if` says."""
    model, own = target
    head = load_head(files or own, SMALL["hidden_size"], as_if.zero_centred, as_if.recipe)
    return check(head, model, as_if.zero_centred, iter(texts)), head


def test_an_honest_head_is_left_alone(target, texts):
    found, _ = checked(target, texts, HONEST)
    assert found.variant == found.known == HONEST and not found.repaired and found.guesses
    assert found.positions >= LOOKS[0] and found.chance < 0.02
    assert 0.99 > found.by_step[0] >= found.by_step[1] >= found.by_step[2] > 0.5


@pytest.mark.parametrize("mistake", WRONG)
def test_each_wrong_way_to_use_it_is_found_and_repaired(target, texts, mistake):
    found, _ = checked(target, texts, WRONG[mistake])
    assert found.variant == HONEST and found.repaired and found.guesses
    assert found.by_step[-1] > found.known_by_step[-1]
    assert "used unlike its family" in found.summary


def test_the_agreement_is_that_of_what_is_used(target, texts):
    """Repaired or not, the same shares are found, of the same tokens."""
    honest, _ = checked(target, texts, HONEST)
    repaired, _ = checked(target, texts, WRONG["norms not shifted"])
    assert repaired.by_step == honest.by_step and repaired.positions == honest.positions


def test_a_head_that_was_never_learned_is_refused_with_the_numbers(target, texts, tmp_path):
    files = find_head(read_checkpoint(counting_folder(tmp_path / "other", random_head(counting_tensors())), "other"))
    found, _ = checked(target, texts, HONEST, files)
    assert not found.guesses
    with pytest.raises(Refused) as caught:
        found.require_guesses("other", "counting")
    assert caught.value.exit_code == 4
    assert f"guesses {percent(found.by_step[0])} of {found.positions} tokens of counting" in caught.value.message
    assert "\n" not in caught.value.message + caught.value.hint


def test_a_head_of_another_target_of_the_same_sizes_is_refused(target, texts, tmp_path):
    """The trained head over another random trunk."""
    other = load(read_checkpoint(counting_folder(tmp_path / "m", raw_tensors(seed=29, text=SMALL)), "m"))
    own = list(islice(own_texts(other, PROMPTS, frozenset()), 24))
    found, _ = checked((other, target[1]), own, HONEST)
    assert len({token for text in own for token in text.context[text.begin :]}) > 20
    assert not found.guesses and found.by_step[0] < found.chance + 0.1


def test_what_it_was_and_what_is_watched_stays(target, texts):
    model, files = target
    before = {name: np.array(value) for name, value in tree_flatten(load_head(files, 32).parameters())}
    _, head = checked(target, texts, HONEST)
    assert head.recipe == QWEN
    for name, value in tree_flatten(head.parameters()):
        np.testing.assert_array_equal(np.array(value), before[name])
    assert not model.outputs([5, 6, 7]).hidden


def test_texts_are_the_targets_own_greedy_words(target, texts):
    model, context = target[0], list(PROMPTS[0])
    for _ in range(12):
        context.append(int(model.fresh().logits(context, model.ids([]))[-1].argmax()))
    assert texts[0].context[: len(context)] == context and texts[0].begin == len(PROMPTS[0])
    assert set(texts[0].hidden) == {READ, LAST} == set(readable(model))
    assert all(len(states) == len(texts[0].context) - 1 for states in texts[0].hidden.values())
    later = texts[len(PROMPTS)]  # the next turn goes on where the first ended
    assert list(later.context[: later.begin]) == list(texts[0].context)


def test_texts_end_at_stop_tokens_and_within_the_context(target, texts):
    model = target[0]
    stop = texts[0].context[texts[0].begin + 4]
    ended = list(islice(own_texts(model, PROMPTS[:1], frozenset([stop])), 5))
    assert len(ended) == 1 and ended[0].context[-1] == stop


def script(runs, monkeypatch):
    """A contest over one text of which variant v guesses runs[v] tokens in a row at each position; others nothing."""
    text = Text(list(range(len(runs[HONEST]) + 5)), 3, {})
    contest = Contest(None, None, HONEST, (READ, LAST))

    def guess(variant, text, places, steps):
        right = zip(places, runs.get(variant, [0] * len(runs[HONEST])), strict=True)
        rows = [[at + step if step < run else -1 for step in range(steps)] for at, run in right]
        return [list(tokens) for tokens in zip(*rows, strict=True)]

    monkeypatch.setattr(contest, "_guess", guess)
    contest.read(iter([text]), 1)
    return contest


def test_two_equally_good_ways_are_told_apart_by_luck_in_fewer_than_one_of_a_hundred(monkeypatch):
    """Negative control: N = 300 contests of 200 positions at 60 % each, other draws each: the odds are at most 1 %
    over all variants and looks together, so more than 10 of 300 happen by chance with odds below 1 in 1,000."""
    drawn = np.random.Generator(np.random.PCG64(1))
    rival = WRONG["carried before the norm"]
    replaced = 0
    for _ in range(300):
        both = (drawn.random((2, 200)) < 0.6).astype(int).tolist()
        replaced += script({HONEST: both[0], rival: both[1]}, monkeypatch).result().repaired
    assert replaced <= 10


def test_a_difference_of_ten_points_is_worth_more_text(monkeypatch):
    drawn = np.random.Generator(np.random.PCG64(2))
    one = drawn.random(200)
    rival = WRONG["carried before the norm"]
    contest = script({HONEST: (one < 0.6).astype(int).tolist(), rival: (one < 0.63).astype(int).tolist()}, monkeypatch)
    found = contest.result()
    assert not found.repaired and contest.undecided(found)
    clear = script({HONEST: (one < 0.6).astype(int).tolist(), rival: (one < 0.5).astype(int).tolist()}, monkeypatch)
    assert not clear.undecided(clear.result())


def test_a_text_that_repeats_one_token_refuses_nobody():
    told = Agreement(HONEST, HONEST, 200, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), 1.0, 1.0)
    assert told.guesses
    assert not replace(told, by_step=(0.3, 0.0, 0.0), chance=0.3, odds=0.4).guesses
    assert not replace(told, by_step=(0.04, 0.0, 0.0), chance=0.01, odds=1e-4).guesses  # beyond luck, and worth nothing
    assert not replace(told, positions=0, by_step=(0.0, 0.0, 0.0), chance=0.0).guesses


def test_what_was_found_survives_being_written_down(target, texts):
    found, _ = checked(target, texts, WRONG["the state first"])
    assert Agreement.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(("hits", "trials", "chance"), [(0, 5, 0.5), (3, 5, 0.5), (7, 20, 0.2), (20, 20, 0.9)])
def test_odds_are_the_binomials_tail(hits, trials, chance):
    terms = (comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(hits, trials + 1))
    assert at_least(hits, trials, chance) == pytest.approx(sum(terms))


def test_the_sign_test_is_mcnemars_of_one_side():
    assert sign_test([1, 1, 1, 0, 2], [0, 0, 0, 1, 2]) == pytest.approx(5 / 16)
    assert sign_test([1, 0], [1, 0]) == 1.0
