"""Adaptive K on simulated machines: never much slower than plain decoding, near the best K chosen with hindsight.

Ratios are seconds of the other over seconds of `-k auto`, start-up, exploration and the draft's reading of a 64-token
prompt included, summed over SEEDS. Every play is seeded, so a failure is a change and never chance.
"""

import json
from functools import cache

import pytest

from fakes.machine import BY_NAME, CODE, HOSTILE, MACHINES, PROSE, play
from specdec_cli.core.events import Round
from specdec_cli.core.kinds import PREDICTED
from specdec_cli.engine.planning.costs import FORGET_TOKENS
from specdec_cli.engine.planning.history import History, PredictionLength
from specdec_cli.engine.planning.policy import Plan, Situation, plan

SEEDS = range(4)

# One on which drafting never pays, one on which it does; the others take seconds each.
QUICK = ("M1 Pro", "M4 Pro (mlx 3852)")
EACH = [machine if machine.name in QUICK else pytest.param(machine, marks=pytest.mark.full) for machine in MACHINES]
machines = pytest.mark.parametrize("machine", EACH, ids=lambda machine: machine.name)


def adaptive(machine, text, tokens, seed, prompt=64, length=None):
    length = length or History()
    length.begin(tokens, prompt)
    return play(machine, text, length, tokens, seed, prompt)


@cache
def fixed_seconds(name, text, k, tokens, seed, prompt=64):
    return play(BY_NAME[name], text, k, tokens, seed, prompt).seconds


def against_plain(machine, text, tokens, prompt=64):
    plain = sum(fixed_seconds(machine.name, text, 0, tokens, seed) for seed in SEEDS)
    return plain / sum(adaptive(machine, text, tokens, seed, prompt).seconds for seed in SEEDS)


# The hardest, and one of Apple's, in every run.
@pytest.mark.parametrize(
    "machine",
    [
        one if one.name in ("CPU, inflated pair", "M4 Pro (mlx 3852)") else pytest.param(one, marks=pytest.mark.slow)
        for one in MACHINES
    ],
    ids=lambda machine: machine.name,
)
def test_replies_that_follow_one_another_gain_nearly_what_the_best_k_would(machine):
    """Six of 500 tokens: what was right until then may be wrong throughout, and right again. Means of six such chats:
    how soon a draft that guessed nothing for 500 tokens is tried again is chance."""
    texts, seeds = (CODE, CODE, HOSTILE, CODE, PROSE, HOSTILE), range(0, 600, 100)
    took, best = [0.0] * len(texts), [0.0] * len(texts)
    for seed in seeds:
        history = History()
        for index, text in enumerate(texts):
            best[index] += min(play(machine, text, k, 500, seed + index).seconds for k in range(9))
            took[index] += adaptive(machine, text, 500, seed + index, length=history).seconds
    assert min(one / other for one, other in zip(best, took, strict=True)) >= 0.94


def test_what_was_measured_of_drafting_is_forgotten_in_rounds_of_shared_passes_too():
    """Their time tells nothing of a reply's own costs; their tokens count. The bug: it was kept for ever."""
    history = History()
    for index in range(12):
        history.observe(Round(index, "model", (1, 2), 1, 7, (1, 7), 0.2, 0.2))
    dear, shared = history.costs.round_steps(), Round(0, "none", (), 0, 7, (7,), 0.0, 9.0, batch_size=2)
    for _ in range(FORGET_TOKENS - 1):
        history.observe(shared)
    assert history.costs.round_steps() == dear
    history.observe(shared)
    assert history.costs.round_steps() == History().costs.round_steps() != dear
    drafted = Round(0, "model", (1, 2), 2, 7, (1, 2, 7), 9.0, 9.0, batch_size=2)
    judged = history.acceptance.judged
    history.observe(drafted)
    assert history.acceptance.judged > judged and history.costs.round_steps() == History().costs.round_steps()


@pytest.mark.parametrize("told", ["in this process", "by an earlier process"])
def test_whatever_was_measured_once_drafting_is_tried_again_where_it_pays(told):
    """Control: before it is forgotten, nothing is drafted. The bug: one slow round, and no draft for ever."""
    machine, history = BY_NAME["M4 Pro (mlx 3852)"], History()
    for index in range(12):
        history.observe(Round(index, "none", (), 0, 7, (7,), 0.0, 0.02), True, True)
        history.observe(Round(index, "model", (1, 2), 0, 7, (7,), 0.2, 0.2))
    if told == "by an earlier process":
        history = History(kept=json.loads(json.dumps(history.to_dict(0.0))))
    ks = adaptive(machine, CODE, 2000, 1, length=history).ks
    started = next(index for index, k in enumerate(ks) if k)
    assert FORGET_TOKENS <= started < FORGET_TOKENS + 600  # what it lost, over its share of the tokens
    assert sum(map(bool, ks[started:])) > 0.9 * len(ks[started:])


def test_a_plain_step_that_was_measured_on_a_busy_machine_is_measured_anew_where_drafts_lose(monkeypatch):
    """Control: without that it drafts to the end. The bug: 0.59 of plain decoding, and no plain round to tell it."""
    machine = BY_NAME["M1 Pro"]

    def drafted_rounds():
        history = History()
        for index in range(6):
            history.observe(Round(index, "none", (), 0, 7, (7,), 0.0, 5 * machine.plain_seconds), True, True)
        return [*map(bool, adaptive(machine, CODE, 1000, 1, length=history).ks)]

    now = drafted_rounds()
    assert sum(now[:20]) > 10 and sum(now[2 * FORGET_TOKENS :]) < 20
    monkeypatch.setattr("specdec_cli.engine.planning.costs.RoundCosts.plain_is_stale", False)
    assert sum(drafted_rounds()[-100:]) > 90


@machines
def test_hostile_text_costs_four_percent_in_256_tokens_at_most(machine):
    assert against_plain(machine, HOSTILE, 256) >= 0.96


def test_a_second_reply_starts_where_the_first_ended():
    machine, length = BY_NAME["M4 Pro (mlx 3852)"], History()
    first = adaptive(machine, CODE, 500, 1, length=length).ks
    second = adaptive(machine, CODE, 500, 2, length=length).ks
    assert first[0] == 0 and min(second[1:6]) >= 1
    hostile = adaptive(machine, HOSTILE, 500, 3, length=length).ks
    assert sum(map(bool, hostile[100:])) < 20


@pytest.mark.parametrize("told", [True, False])
def test_what_the_draft_reads_anew_is_not_taken_for_the_cost_of_drafting(told):
    """A draft that holds all it may reads the end of the context once more, in one round's own time.

    A round that does not say so is the control: drafting seems dear.
    """
    length, emitted = History(), (1, 2, 3)
    length.begin(10_000, 64, 64, 5000)
    for index in range(40):
        chosen = plan(length.situation(Situation(16, network="model")))
        length.follow(chosen)
        k = chosen.k
        read = 64 if k and index % 3 else 0
        seconds, said = 0.1 * k + read * 0.02, read if told else 0
        done = Round(index, "model", (1,) * k, min(k, 2), 3, emitted[: k + 1], seconds, 1.0, draft_read_tokens=said)
        length.observe(done, queued=True, followed=True)
    assert (length.costs.draft_seconds(2) < 0.25) == told


def test_a_second_process_starts_from_the_costs_of_the_first():
    machine, first = BY_NAME["M4 Pro (mlx 3852)"], History()
    adaptive(machine, CODE, 1000, 1, length=first)
    written = json.loads(json.dumps(first.to_dict(now_seconds=1e9)))
    second = History(kept=written)
    assert second.acceptance.habit == pytest.approx(first.acceptance.habit)
    for k in range(1, 4):
        known = second.costs.round_steps()[k]
        assert known == pytest.approx(k * machine.draft_step + machine.rows(k + 1), rel=0.08)
    assert min(adaptive(machine, CODE, 100, 2, length=second).ks[1:6]) >= 1  # it drafts from the second round on
    with pytest.raises(KeyError):
        History(kept={"at": 1e9})


@pytest.mark.parametrize(("plain_seconds", "goes_on"), [(1.0, True), (0.1, False)])
def test_a_prediction_right_in_part_is_judged_where_no_round_was_plain(plain_seconds, goes_on):
    """Of passes that cost nothing, a prediction that is wrong throughout would never rest."""
    length = PredictionLength()
    length.observe(Round(0, PREDICTED.name, (1,) * 16, 5, 9, (1,) * 6, 0.0, 1.5), plain_seconds)
    assert (length.k_of(8) > 0) == goes_on


def test_a_released_draft_has_all_of_the_context_to_read_again():
    """Its memory was given back, and with it all that it had read."""
    history = History()
    history.begin(100, unread_tokens=0, context_tokens=500)
    assert history.situation(Situation(8)).unread == 0
    history.follow(Plan(release=True))
    found = history.situation(Situation(8))
    assert found.unread == 500 and found.reading > 0


def test_until_it_is_measured_the_draft_reads_as_fast_as_the_targets_reading_foretells():
    history = History()
    history.begin(100, unread_tokens=64)
    assumed, plain = history.situation(Situation(8)).reading, history.costs.plain_seconds()
    history.expect_reading(2 * assumed / 64 * plain)
    assert history.situation(Situation(8)).reading == pytest.approx(2 * assumed)
    history.costs.observe_reading(64, 3 * assumed * plain)
    assert history.situation(Situation(8)).reading == pytest.approx(3 * assumed)


class Watched(History):
    """That tells the K which it follows."""

    def follow(self, plan):
        self.k = plan.k
        super().follow(plan)


@pytest.mark.parametrize("tokens", [40, 512])
def test_kernels_that_the_first_drafted_round_compiles_are_not_taken_for_the_cost_of_drafting(tokens):
    """That round at twice its time took a reply of 512 tokens from 1.56 to 1.45 of plain decoding: K stayed near 1."""
    machine, took = BY_NAME["M4 Pro (mlx 3852)"], {}
    for slow in (1.0, 3.0):
        seconds = 0.0
        for seed in range(12):
            history, drafted = Watched(), []
            history.begin(tokens, 64)

            def compiled(index, _, __, slow=slow, drafted=drafted, history=history):
                first = history.k > 0 and not drafted
                drafted.append(1) if first else None
                return slow if first else 1.0

            seconds += play(machine, CODE, history, tokens, seed, disturbed=compiled).seconds
        took[slow] = seconds
    own_time = 12 * 2.0 * machine.plain_seconds * 2.5  # of these rounds themselves, at most
    assert took[3.0] - own_time < 1.03 * took[1.0]
