"""Plain decoding is measured beside the rounds of whole replies: K stays, the budget holds, the figure is in time."""

import pytest

from fakes.device import DrivenPair, FakeDevice
from fakes.machine import BY_NAME
from specdec_cli.core.events import RoundDone
from specdec_cli.core.gain import Gain
from specdec_cli.core.request import Request
from specdec_cli.pairs.catalog import registry
from specdec_cli.session.load import load

CODE = "def read_lines(path):\n    with open(path) as handle:\n        return [line"
PAIR = DrivenPair(BY_NAME["M4 Pro (mlx 3852)"], 0.15, "Apple M4 Pro")


def replies(monkeypatch, count, k=4, tokens=160):
    """Replies of one conversation on a device of known costs, each as (rounds, stats)."""
    fake = FakeDevice().install_as(PAIR.chip, monkeypatch)
    loaded = load(registry().find("demo"))
    session = loaded.session(loaded.first, fake.clock)
    PAIR.drive(fake, session)
    stops = tuple((token, -1e9) for token in loaded.tokenizer.stop_tokens)
    request = Request(max_tokens=tokens, k=k, drafter="model", logit_bias=stops)
    for _ in range(count):
        *events, finish = session.reply(session.pair.text_tokens(CODE), request, raw=True)
        yield [event for event in events if isinstance(event, RoundDone)], finish.stats


def truth(stats):
    """From the device's own costs."""
    steps = [k * PAIR.step + PAIR.machine.rows(k + 1) if k else 1.0 for k in range(len(stats["rounds_at_k"]))]
    cost = sum(count * steps[k] for k, count in enumerate(stats["rounds_at_k"])) - 1
    return (stats["emitted_tokens"] - 1) / cost


@pytest.mark.slow
def test_every_round_of_a_fixed_k_drafts_k_and_measuring_stays_within_2_percent(monkeypatch):
    for rounds, stats in replies(monkeypatch, 2):
        assert all(len(done.round.draft) == 4 for done in rounds[1:-3])
        assert stats["measuring_seconds"] <= 0.02 * (stats["decode_seconds"] + stats["measuring_seconds"])
        assert stats["estimated_speedup_low"] < truth(stats) < stats["estimated_speedup_high"]


@pytest.mark.slow
def test_a_second_reply_shows_its_gain_from_round_16_on(monkeypatch):
    _, (rounds, stats) = replies(monkeypatch, 2)
    shown = [done.round.index for done in rounds if done.gain]
    assert shown == list(range(16, len(rounds)))
    assert rounds[-1].gain.speedup == pytest.approx(Gain.of_stats(stats).speedup, rel=0.1)


def test_a_short_reply_measures_nothing_and_claims_nothing(monkeypatch):
    ((rounds, stats),) = replies(monkeypatch, 1, tokens=24)
    assert Gain.of_stats(stats) is None and not any(done.gain for done in rounds)
    assert stats["measuring_seconds"] == 0 and stats["plain_step_seconds"] is None
