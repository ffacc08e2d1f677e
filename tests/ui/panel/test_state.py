"""The state of the panel as a fold over events."""

from __future__ import annotations

import copy
from dataclasses import replace

from fakes.ui_script import ROUNDS, START, drafted, finish, folded
from specdec_cli.gain import Gain
from specdec_cli.ui.panel.state import KEPT_ROUNDS, PanelState


def test_applying_an_event_changes_no_earlier_state() -> None:
    states = [PanelState(name="demo")]
    for event in (START, *ROUNDS, finish()):
        states.append(states[-1].apply(event))
    again = [PanelState(name="demo")]
    for before, event in zip(states, (START, *ROUNDS, finish()), strict=False):
        kept = copy.deepcopy(before)
        again.append(before.apply(event))
        assert before == kept
    assert again == states


def test_only_the_rounds_that_are_drawn_are_kept() -> None:
    state = folded(tuple(drafted(index, ["a"], 1, "b") for index in range(100)))
    assert [done.round.index for done in state.recent] == list(range(100 - KEPT_ROUNDS, 100))
    assert state.stats.rounds == 100
    assert state.tokens_per_pass == (0, 0, 100)


def test_a_round_is_shown_for_as_long_as_it_takes_to_read() -> None:
    state = PanelState().apply(START, 0.0)
    shown = []
    for index in range(20):
        state = state.apply(drafted(index, ["a"], 1, "b"), index / 8)
        shown.append(state.shown.round.index)
    assert shown == [index - index % 4 for index in range(20)]


def test_a_slow_reply_shows_every_round() -> None:
    state = PanelState().apply(START, 0.0)
    for index in range(5):
        state = state.apply(drafted(index, ["a"], 1, "b"), 0.5 * index)
        assert state.shown.round.index == index


def test_the_gain_is_the_newest_rounds_and_at_the_end_the_finished_one() -> None:
    early, late = Gain(1.4, 1.1, 1.7, 0.35), Gain(1.2, 1.1, 1.3, 0.4)
    state = folded((replace(ROUNDS[0], gain=early), replace(ROUNDS[1], gain=late)))
    assert state.gain == late
    assert folded().gain is None
    ends = ("", "_low", "_high")
    names = [f"{name}{end}" for name in ("estimated_speedup", "break_even_acceptance_rate") for end in ends]
    measured = dict(zip(names, (1.3, 1.2, 1.4, 0.38, 0.3, 0.5), strict=True))
    ended = state.apply(replace(finish(), stats={**finish().stats, **measured}))
    assert ended.gain == Gain(1.3, 1.2, 1.4, 0.38, 0.3, 0.5)
    measured["estimated_speedup_low"] = None
    assert state.apply(replace(finish(), stats={**finish().stats, **measured})).gain is None


def test_a_new_start_begins_anew_under_the_same_name() -> None:
    assert folded().apply(START) == PanelState(name="demo", start=START)
