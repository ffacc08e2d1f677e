import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_cli.core.events import SCHEMA, Failure, Finish, Prefill, Round, RoundDone, Start, from_dict, to_dict

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
events = st.one_of(
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


@settings(max_examples=40)
@given(events)
def test_every_event_survives_json(event):
    assert from_dict(json.loads(json.dumps(to_dict(event)))) == event


def test_a_round_is_one_flat_object():
    round = Round(3, "model", (11, 42, 7, 9), 2, 13, (11, 42, 13), 0.004, 0.021)
    assert to_dict(RoundDone(round, ("def", " add", "(", "x"), " sum", "def add sum")) == {
        "event": "round",
        "index": 3,
        "drafter": "model",
        "draft": (11, 42, 7, 9),
        "accepted": 2,
        "next": 13,
        "emitted": (11, 42, 13),
        "draft_seconds": 0.004,
        "verify_seconds": 0.021,
        "draft_prefill_seconds": 0.0,
        "why": "",
        "draft_read_tokens": 0,
        "pieces": ("def", " add", "(", "x"),
        "next_piece": " sum",
        "text": "def add sum",
    }


def test_a_round_names_its_rejected_and_discarded_tokens():
    round = Round(0, "model", (11, 42, 7, 9), 2, 13, (11, 42, 13), 0.0, 0.0)
    assert (round.rejected, round.discarded) == (7, (9,))
    full = Round(0, "model", (11, 42), 2, 13, (11, 42, 13), 0.0, 0.0)
    assert (full.rejected, full.discarded) == (None, ())


def test_the_start_event_carries_the_schema():
    start = Start("t", None, "none", "greedy", 0, 0.0, None, 1, 2, "float32", "cpu", {})
    assert to_dict(start)["schema"] == SCHEMA == 1


@pytest.mark.parametrize("values", [{}, {"event": "round"}, {"event": "riddle"}, {"event": "prefill", "seconds": 1.0}])
def test_what_is_no_event_is_an_error(values):
    with pytest.raises(ValueError, match=r"not a specdec event|Field required"):
        from_dict(values)
