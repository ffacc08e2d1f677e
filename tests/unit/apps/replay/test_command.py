"""`specdec replay`: a trace alone is enough, every figure is the recorded one, and the pace is that of its seconds."""

from __future__ import annotations

import json

import pytest

from fakes.ui_script import ANSWER, script
from specdec_cli.apps.replay.command import paced, play
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Event, Failure, Reading, RoundDone, to_dict
from specdec_cli.core.trace import read_trace


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "answer.jsonl"
    path.write_text("".join(json.dumps(to_dict(event)) + "\n" for event in script()))
    return path


def test_into_a_pipe_the_answer_is_on_stdout_at_once(specdec, trace, monkeypatch):
    monkeypatch.setattr("specdec_cli.session.load.load_spec", None)
    code, out, err = specdec("replay", trace)
    assert (code, out) == (0, ANSWER + "\n") and "tokens in" in err
    assert specdec("replay", trace, "-q") == (0, out, "")


def test_pictures_and_pages_are_written_beside_each_other_and_nothing_is_played(specdec, trace, tmp_path):
    svg, page = tmp_path / "a.svg", tmp_path / "a.html"
    code, out, err = specdec("replay", trace, "--svg", svg, "--html", page)
    assert (code, out, err) == (0, "", f"wrote {svg}\nwrote {page}\n")
    assert svg.read_text().startswith("<svg") and "<html" in page.read_text()


def test_a_trace_that_breaks_off_is_played_as_far_as_it_goes_and_said_to(specdec, trace):
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:4]))
    shown = "".join(event.text for event in script()[:4] if isinstance(event, RoundDone))
    code, out, err = specdec("replay", trace)
    assert (code, out.rstrip("\n")) == (0, shown.rstrip("\n"))
    assert err.splitlines()[-1] == f"{trace} ends before its last reply does"


WRONG = (None, True, -5, 1e999, 10**30, "x", ["start"], {"a": 1}, [[1]])
KINDS = {event.event: event for event in (Failure("m", "h", 1), Reading("target", 4, 9), *script())}


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_another_type_is_refused_with_its_name_and_no_event_fails_otherwise(trace, kind):
    values, refused = to_dict(KINDS[kind]), []
    head = [] if kind == "start" else [to_dict(KINDS["start"])]
    for name, value in values.items():
        for wrong in WRONG:
            changed = [values | {name: wrong}, values | {name: {**value, "a": wrong}}] if name == "stats" else []
            for one in changed or [values | {name: wrong}]:
                trace.write_text("".join(json.dumps(event) + "\n" for event in (*head, one)))
                try:
                    read_trace(trace)
                except UsageError as error:
                    assert f"{trace}, line {len(head) + 1}" in error.message and error.hint
                    refused.append(name)
    assert {*refused} >= {*values} - {"sampling", "stats", "complete", "unenforced"}


@pytest.mark.parametrize("text", ["", "not json\n", '{"event": "round"}\n'])
def test_a_file_that_is_no_trace_is_refused_with_its_name(specdec, trace, text):
    trace.write_text(text)
    code, message, _ = specdec.refused("replay", trace)
    assert code == 2 and str(trace) in message
    code, _, err = specdec("replay", "\x1b[2Jtrace")
    assert code == 2 and "\x1b" not in err


def never():
    return False


class Clock:
    """Time passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Recorder:
    """Keeps what it is shown, and when."""

    def __init__(self, clock: Clock) -> None:
        self.shown: list[tuple[Event, float]] = []
        self._clock = clock

    def handle(self, event: Event) -> None:
        self.shown.append((event, self._clock()))

    def close(self) -> None: ...


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_events_come_when_their_work_was_done_divided_by_the_speed(speed):
    clock = Clock()
    recorder = Recorder(clock)
    assert play(script(), recorder, paced(speed, never, clock, clock.sleep))
    assert [event for event, _ in recorder.shown] == script()
    times = [(when - 100.0) * speed for _, when in recorder.shown]
    # Prefill 0.4 s, a plain round 9.4 ms, the drafting ones 2.1 ms more.
    assert times == pytest.approx([0, 0.4, 0.4094, 0.4209, 0.4324, 0.4439, 0.4554, 0.4554])


def test_a_cancelled_wait_ends_the_replay_within_a_slice():
    clock = Clock()
    recorder = Recorder(clock)
    assert not play(script(), recorder, paced(0.001, lambda: clock.now > 101.0, clock, clock.sleep))
    assert clock.now < 101.2 and len(recorder.shown) == 1


ROUNDS = """\
  1                                           – def                plain  9.4 ms
  2  ✓␣read ✓_lines ✓( ✓path                  ★ ):                4 of 4   12 ms
  3  ✓↵␣␣␣␣ ✓with ✗日本 ·␛[2J                 ↳ ⇥open             2 of 4   12 ms
  4  ✓( ✓path ✓) ✗↵                           ↳ ␣as               3 of 4   12 ms
  5  ✗␣f ·:                                   ↳ ␣handle           0 of 2   12 ms
"""


@pytest.mark.parametrize("more", [(), ("--plain",)])
def test_rounds_are_lines_on_stderr_and_stdout_is_the_answer(specdec, trace, more):
    summary = specdec("replay", trace)[2]
    assert specdec("replay", trace, "--rounds", *more) == (0, ANSWER + "\n", ROUNDS + summary)
    assert specdec("replay", trace, "--rounds", "-q", *more) == (0, ANSWER + "\n", ROUNDS)
