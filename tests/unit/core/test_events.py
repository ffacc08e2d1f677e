"""Events: each survives JSON, the document names every field, and a trace is read again, or refused by its line."""

import json
import re
from dataclasses import fields
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.ui_script import PREFILL, ROUNDS, START, finish, script
from specdec_cli.core import events
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Failure, Finish, Prefill, Round, RoundDone, Start, from_dict, to_dict
from specdec_cli.core.gain import Gain
from specdec_cli.core.stats import FIGURES, GAINS
from specdec_cli.core.trace import read_trace

seconds = st.floats(0, 1e6)
ids = st.lists(st.integers(0, 2**31), max_size=5).map(tuple)
rounds = st.builds(
    Round,
    index=st.integers(0),
    drafter=st.sampled_from(["model", "none"]),
    draft=ids,
    accepted=st.integers(0, 5),
    next=st.integers(0),
    emitted=ids,
    draft_seconds=seconds,
    verify_seconds=seconds,
    draft_prefill_seconds=seconds,
)
EVENTS = st.one_of(
    st.builds(
        Start,
        target=st.text(),
        draft=st.none() | st.text(),
        drafter=st.text(),
        rule=st.text(),
        k=st.integers(0, 16) | st.just("auto"),
        temperature=st.floats(0, 2),
        seed=st.none() | st.integers(),
        prompt_tokens=st.integers(0),
        max_tokens=st.integers(1),
        dtype=st.text(),
        device=st.sampled_from(["metal", "cuda", "cpu"]),
        caches=st.dictionaries(st.text(), st.lists(st.text(), max_size=2).map(tuple), max_size=2),
    ),
    st.builds(
        Prefill, prompt_tokens=st.integers(0), cached_tokens=st.integers(0), seconds=seconds, disk_tokens=st.integers(0)
    ),
    st.builds(
        RoundDone, round=rounds, pieces=st.lists(st.text(), max_size=4).map(tuple), next_piece=st.text(), text=st.text()
    ),
    st.builds(
        Finish,
        reason=st.sampled_from(["stop", "length", "interrupted"]),
        text=st.text(),
        tokens=ids,
        text_tail=st.text(),
        stats=st.dictionaries(st.text(), st.none() | st.integers(), max_size=3),
    ),
    st.builds(Failure, message=st.text(), hint=st.text(), exit_code=st.integers(1, 5)),
)


@settings(max_examples=20)
@given(EVENTS)
def test_every_event_survives_json(event):
    assert from_dict(json.loads(json.dumps(to_dict(event)))) == event


def test_a_round_names_its_rejected_and_discarded_tokens():
    round = Round(0, "model", (11, 42, 7, 9), 2, 13, (11, 42, 13), 0.0, 0.0)
    assert (round.rejected, round.discarded) == (7, (9,))
    full = Round(0, "model", (11, 42), 2, 13, (11, 42, 13), 0.0, 0.0)
    assert (full.rejected, full.discarded) == (None, ())


@pytest.mark.parametrize("values", [{}, {"event": "round"}, {"event": "riddle"}, {"event": "prefill", "seconds": 1.0}])
def test_what_is_no_event_is_an_error(values):
    with pytest.raises(ValueError, match=r"not a specdec event|Field required"):
        from_dict(values)


# `specdec help events` names every field of every event.


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


# Traces: what is whole, what was cut short, what is damaged, what is something else.


def lines(events):
    return [json.dumps(to_dict(event)) for event in events]


@pytest.fixture
def written(tmp_path):
    """Writes lines to a file and gives its path."""

    def write(rows, end="\n"):
        file = tmp_path / "trace.jsonl"
        file.write_text("\n".join(rows) + end)
        return file

    return write


def test_what_was_recorded_comes_back_event_for_event(written):
    recorded = script()
    trace = read_trace(written(lines(recorded)))
    # Through JSON, a tuple inside the free-form figures is a list.
    assert lines(trace.replies[0].events()) == lines(recorded)
    assert not trace.cut_short


def test_a_trace_without_a_finish_plays_as_an_interrupted_reply(written):
    trace = read_trace(written(lines([START, PREFILL, *ROUNDS])))
    *_, last = trace.replies[0].events()
    assert trace.cut_short
    assert isinstance(last, Finish) and last.reason == "interrupted"
    assert last.text == "".join(done.text for done in ROUNDS)
    assert last.stats["draft_n"] == finish().stats["draft_n"] and last.stats["tokens_per_second"] > 0


def test_a_last_line_that_was_never_completed_is_left_out(written):
    rows = lines([START, PREFILL, *ROUNDS])
    trace = read_trace(written([*rows[:-1], rows[-1][:40]], end=""))
    assert trace.cut_short and trace.replies[0].rounds == ROUNDS[:-1]


def changed(event, **values):
    return json.dumps(to_dict(event) | values)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (changed(ROUNDS[1], accepted=5), "round event: 5 accepted of 4 drafted tokens"),
        (changed(ROUNDS[1], pieces=["a"]), "round event: 1 pieces for 4 drafted tokens"),
        (changed(ROUNDS[1], verify_seconds=None), "round event, verify_seconds"),
        (changed(finish(), stats=finish().stats | {"target_passes": None}), "finish event: target_passes is null"),
        (changed(finish(), stats=finish().stats | {"acceptance_per_position": ["x"]}), "acceptance_per_position"),
        (changed(START, schema=2), "trace schema 2, but this specdec reads 1"),
    ],
)
def test_a_damaged_line_is_named_by_its_number(tmp_path, row, told):
    file = tmp_path / "damaged"
    rows = [*lines([START, PREFILL]), row, *lines(ROUNDS)]
    file.write_text("\n".join(rows) + "\n", errors="surrogateescape")
    with pytest.raises(UsageError) as caught:
        read_trace(file)
    assert f"{file}, line 3" in caught.value.message and told in caught.value.message
    assert "specdec run --trace" in caught.value.hint
