"""`specdec help events` names every field of every event."""

import re
from dataclasses import fields
from importlib.resources import files

import pytest

from specdec_cli.core import events
from specdec_cli.core.gain import Gain
from specdec_cli.core.stats import FIGURES, GAINS

TEXT = (files("specdec_cli") / "docs" / "events.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S))
ALSO = {"round": ("logprobs", "gain", *(field.name for field in fields(events.TokenLogprob)), "speedup", "low", "high")}


def named(section):
    return set(re.findall(r"`(\w+)`", SECTIONS[section]))


@pytest.mark.parametrize("kind", [events.Start, events.Reading, events.Prefill, events.Finish, events.Failure])
def test_every_field_of_an_event_is_in_its_section(kind):
    section = "reading, prefill" if kind in (events.Reading, events.Prefill) else kind.event
    assert {field.name for field in fields(kind)} <= named(section)


def test_every_field_of_a_round_and_every_figure_is_named():
    both = {field.name for kind in (events.Round, events.RoundDone) for field in fields(kind)} - {"round"}
    assert both | set(ALSO["round"]) <= named("round")
    assert {field.name for field in fields(Gain)} >= {"speedup", "low", "high"}
    assert set(FIGURES) | {"estimated_speedup", "break_even_acceptance_rate"} <= named("finish") and len(GAINS) == 3
