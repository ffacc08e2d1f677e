"""Whole replies of the demo pair on a device that blocks the host as Metal does: their tokens, seconds and panel."""

import pytest

from fakes.device import DrivenPair, FakeDevice
from fakes.machine import BY_NAME
from laws.pairs import rounds_of
from specdec_cli.core.events import RoundDone
from specdec_cli.core.gain import Gain
from specdec_cli.core.request import Request
from specdec_cli.engine.timing import plain_step_seconds
from specdec_cli.pairs.catalog import registry
from specdec_cli.session.load import load
from specdec_cli.session.meter import GainMeter
from specdec_cli.session.session import Reply

CODE = "def read_lines(path):\n    with open(path) as handle:\n        return [line"
M1, M4 = BY_NAME["M1 Pro"], BY_NAME["M4 Pro (mlx 3852)"]
PAIRS = [
    DrivenPair(machine, step, chip)
    for machine, chip in ((M1, "Apple M1 Pro"), (M4, "Apple M4 Pro"))
    for step in (0.07, 0.15, 0.3)
]
NEVER = -1e9


def driven(fake, pair):
    """The demo pair as a conversation on `fake`."""
    loaded = load(registry().find("demo"))
    session = loaded.session(loaded.first, fake.clock)
    pair.drive(fake, session)
    return session


def reply(session, k, tokens=40, drafter="model", ends=True, text=CODE):
    stops = () if ends else tuple((token, NEVER) for token in session.pair.tokenizer.stop_tokens)
    request = Request(max_tokens=tokens, k=k, drafter=drafter, logit_bias=stops)
    return list(session.reply(session.pair.text_tokens(text), request, raw=True, measures_last=True))


def noted(measure, calls):
    """`measure`, each of whose calls is noted."""

    def instead(*given):
        calls.append(given)
        return measure(*given)

    return instead


def plain_steps(pair, rounds):
    """Plain steps that the passes of `rounds` take, the first of which follows the prompt and is not counted."""
    cost = [len(r.draft) * pair.step + pair.machine.rows(len(r.draft) + 1) if r.draft else 1.0 for r in rounds[1:]]
    return sum(cost)


SHOWN = [pytest.param(pair, marks=[pytest.mark.full] * (place != 2)) for place, pair in enumerate(PAIRS)]


@pytest.mark.slow
@pytest.mark.parametrize("pair", SHOWN, ids=[f"{pair.chip[6:]} {pair.step}" for pair in PAIRS])
def test_every_round_bills_the_draft_and_its_verification_what_they_took(monkeypatch, pair):
    fake, measured = FakeDevice().install_as(pair.chip, monkeypatch), []
    monkeypatch.setattr(GainMeter, "_measure", noted(GainMeter._measure, measured))
    *events, finish = reply(driven(fake, pair), 4, 128, ends=False)
    rounds, plain = rounds_of(events), pair.machine.plain_seconds
    assert sum(len(round.draft) == 4 for round in rounds) > 15
    begun = 0
    for round in (round for round in rounds[1:] if round.draft):
        k = len(round.draft)
        draft, verify = k * pair.step * plain, pair.target(k + 1)
        if round.draft_seconds + round.verify_seconds == pytest.approx(draft + verify - pair.step * plain, rel=0.01):
            begun += 1
            continue
        assert round.draft_seconds == pytest.approx(draft, rel=0.05)
        assert round.verify_seconds == pytest.approx(verify, rel=0.05)
    # A draft step that was queued when plain steps were measured ran with them, and is in their time.
    assert begun <= len(measured) - 1, "each but the last was amid the reply"
    measuring = finish.stats["measuring_seconds"] / plain
    truth = (finish.stats["emitted_tokens"] - 1) / (plain_steps(pair, rounds) + measuring)
    assert finish.stats["estimated_speedup"] == pytest.approx(truth, rel=0.05)
    assert finish.stats["estimated_speedup_low"] < truth < finish.stats["estimated_speedup_high"]
    assert finish.stats["measuring_seconds"] <= 0.021 * finish.stats["decode_seconds"]


@pytest.mark.slow
def test_a_clock_read_after_the_verification_is_queued_bills_it_to_the_draft(monkeypatch):
    """Negative control: with the order of before, the same rounds are billed otherwise."""
    pair = PAIRS[3]
    fake = FakeDevice().install_as(pair.chip, monkeypatch)
    session, wait = driven(fake, pair), fake.wait

    def late(*arrays):
        fake.queue()
        wait(*arrays)

    monkeypatch.setattr("specdec_cli.engine.device.wait", late)
    timed = rounds_of(reply(session, 4))[1]
    assert timed.draft_seconds > 4 * pair.step * M4.plain_seconds + 0.5 * pair.target(5)


LOOKUPS = 4 * "x = read(path)\ny = parse(x)\n"


def looked_up(fake, pair, k="auto"):
    """(rounds that looked tokens up, finish) of a reply without a draft model; the text has many matches."""
    *events, finish = reply(driven(fake, pair), k, 128, "ngram", ends=False, text=LOOKUPS)
    return [round for round in rounds_of(events) if round.draft], finish


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS[::3], ids=lambda pair: pair.chip[6:])
def test_a_lookup_is_billed_its_whole_verification_and_never_makes_a_reply_slower(monkeypatch, pair):
    """The bug: it seemed to cost less than half a plain step, so tokens were looked up at every match."""
    fixed, _ = looked_up(FakeDevice().install_as(pair.chip, monkeypatch), pair, 4)
    assert len(fixed) > 10
    for round in fixed:
        assert round.draft_seconds == pytest.approx(0.0, abs=0.05 * M4.plain_seconds)
        assert round.verify_seconds == pytest.approx(pair.target(len(round.draft) + 1), rel=0.05)
    _, finish = looked_up(FakeDevice().install_as(pair.chip, monkeypatch), pair)
    plain = pair.machine.plain_seconds * finish.stats["emitted_tokens"]
    assert plain / finish.stats["decode_seconds"] >= 0.97


@pytest.mark.parametrize("ahead", [True, False], ids=["runs ahead", "waits"])
def test_each_plain_step_that_is_measured_has_its_own_seconds_where_a_full_queue_blocks_the_host(monkeypatch, ahead):
    """The bug: on a CPU, too, a deep target fills the queue. Of four steps the first took two, and the last nothing."""
    pair = PAIRS[0]
    fake = FakeDevice().install(monkeypatch, ahead)
    session = driven(fake, pair)
    context = session.pair.text_tokens(CODE)
    list(session.slot.target.prefill(context))
    rule = Reply(session.pair, session.slot, context, Request()).rule()
    seconds = plain_step_seconds(session.slot.target, rule, context, 4, fake.clock)
    assert seconds == pytest.approx([pair.target(1)] * 4, rel=0.05)


# Plain decoding is measured beside the rounds of whole replies: K stays, the budget holds, the figure is in time.

MEASURED = DrivenPair(M4, 0.15, "Apple M4 Pro")


def replies(monkeypatch, count, tokens=160):
    """Replies of one conversation, each as (rounds, stats)."""
    session = driven(FakeDevice().install_as(MEASURED.chip, monkeypatch), MEASURED)
    for _ in range(count):
        *events, finish = reply(session, 4, tokens, ends=False)
        yield [event for event in events if isinstance(event, RoundDone)], finish.stats


def truth(stats):
    """From the device's own costs."""
    steps = [k * MEASURED.step + M4.rows(k + 1) if k else 1.0 for k in range(len(stats["rounds_at_k"]))]
    cost = sum(count * steps[k] for k, count in enumerate(stats["rounds_at_k"])) - 1
    return (stats["emitted_tokens"] - 1) / cost


@pytest.mark.slow
def test_every_round_of_a_fixed_k_drafts_k_within_the_budget_and_a_second_reply_shows_its_gain_from_round_16_on(
    monkeypatch,
):
    for number, (rounds, stats) in enumerate(replies(monkeypatch, 2)):
        assert all(len(done.round.draft) == 4 for done in rounds[1:-3])
        assert stats["measuring_seconds"] <= 0.02 * (stats["decode_seconds"] + stats["measuring_seconds"])
        assert stats["estimated_speedup_low"] < truth(stats) < stats["estimated_speedup_high"]
        if number:
            shown = [done.round.index for done in rounds if done.gain]
            assert shown == list(range(16, len(rounds)))
            assert rounds[-1].gain.speedup == pytest.approx(Gain.of_stats(stats).speedup, rel=0.1)


def test_a_short_reply_measures_nothing_and_claims_nothing(monkeypatch):
    ((rounds, stats),) = replies(monkeypatch, 1, tokens=24)
    assert Gain.of_stats(stats) is None and not any(done.gain for done in rounds)
    assert stats["measuring_seconds"] == 0 and stats["plain_step_seconds"] is None


@pytest.mark.parametrize("measures_last", [False, True])
def test_after_the_last_token_nothing_is_computed_unless_somebody_has_time_for_it(monkeypatch, measures_last):
    """Scripts waited for five plain steps after each answer."""
    fake, asked = FakeDevice().install_as(MEASURED.chip, monkeypatch), Request(max_tokens=96, k=4)
    events = driven(fake, MEASURED).reply("def f(", asked, raw=True, measures_last=measures_last)
    *_, last, end = ((event, fake.clock()) for event in events)
    assert (last[0].event, end[0].event) == ("round", "finish")
    assert (end[1] - last[1] > 4 * MEASURED.machine.plain_seconds) is measures_last
