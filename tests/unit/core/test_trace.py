"""Reading a trace: what is whole, what was cut short, what is damaged, what is something else."""

import json

import pytest

from fakes.ui_script import PREFILL, ROUNDS, START, finish, script
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Finish, to_dict
from specdec_cli.core.trace import read_trace


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
        ('{"event": "round", "ind', "is not JSON"),
        ('{"a": 1}', "not a specdec event: the line names none"),
        ('{"event": "round"}', "round event, index: Field required"),
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


def test_rounds_without_a_start_are_refused(written):
    with pytest.raises(UsageError, match="line 1: round where a start event is expected"):
        read_trace(written(lines(ROUNDS)))
    with pytest.raises(UsageError, match="line 9: round where a start event is expected"):
        read_trace(written(lines([*script(), *ROUNDS])))


def test_foreign_files_are_refused_at_their_first_line(tmp_path):
    file = tmp_path / "foreign"
    for content in (b"\x89PNG\r\n\x1a\n", b"just words", b'{"specdec": "bench"}', b"{\n"):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="line 1"):
            read_trace(file)
