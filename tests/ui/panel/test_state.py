"""The state of the panel as a fold over events."""

from __future__ import annotations

import copy

from fakes.ui_script import ROUNDS, START, drafted, finish, folded
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
    state = folded(tuple(drafted(index, ["a"], 1, "b") for index in range(50)))
    assert [done.round.index for done in state.recent] == [49, 48, 47, 46]
    assert len(state.recent) == KEPT_ROUNDS
    assert state.stats.rounds == 50


def test_a_new_start_begins_anew_under_the_same_name() -> None:
    assert folded().apply(START) == PanelState(name="demo", start=START)
