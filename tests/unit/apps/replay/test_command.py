"""specdec replay: a trace alone is enough, in its own pace; its pictures and a race's are valid, harmless and whole."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from fakes.racing import Clock, scripted
from fakes.ui_script import ANSWER, PREFILL, ROUNDS, START, drafted, finish, script
from specdec_cli.apps.race.events import RaceStart
from specdec_cli.apps.race.screen import race_picture
from specdec_cli.apps.replay.command import paced, play
from specdec_cli.apps.replay.picture import answer, trace_picture
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Event, Failure, Finish, Reading, RoundDone, to_dict
from specdec_cli.core.trace import Trace, TraceReply, read_trace
from specdec_cli.terminal.panel.answer import GUESSED, OWN
from specdec_cli.terminal.panel.rounds import round_rows


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "answer.jsonl"
    path.write_text("".join(json.dumps(to_dict(event)) + "\n" for event in script()))
    return path


def test_a_picture_is_written_and_nothing_is_played(specdec, trace, tmp_path):
    svg = tmp_path / "a.svg"
    assert specdec("replay", trace, "--svg", svg) == (0, "", f"wrote {svg}\n")
    assert svg.read_text().startswith("<svg")


def test_a_trace_that_breaks_off_is_played_as_far_as_it_goes_and_said_to(specdec, trace):
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:4]))
    shown = "".join(event.text for event in script()[:4] if isinstance(event, RoundDone))
    code, out, err = specdec("replay", trace)
    assert (code, out.rstrip("\n")) == (0, shown.rstrip("\n"))
    assert err.splitlines()[-1] == f"{trace} ends before its last reply does"


def test_an_error_between_replies_is_skipped_and_alone_is_no_trace(specdec, trace):
    error = json.dumps(to_dict(Failure("unknown command /nosuch", "/help lists them", 2))) + "\n"
    reply = trace.read_text()
    trace.write_text(error + reply + error + reply)
    assert [one.end for one in read_trace(trace).replies] == [script()[-1]] * 2
    trace.write_text(error)
    assert specdec.refused("replay", trace)[1].startswith(f"{trace} holds no trace")


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


def never():
    return False


class Recorder:
    """Keeps what it is shown, and when."""

    def __init__(self, clock: Clock) -> None:
        self.shown: list[tuple[Event, float]] = []
        self._clock = clock

    def __call__(self, event: Event) -> None:
        self.shown.append((event, self._clock()))


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_events_come_when_their_work_was_done_divided_by_the_speed(speed):
    clock = Clock()
    recorder = Recorder(clock)
    assert play(script(), recorder, paced(speed, never, clock, clock.sleep))
    assert [event for event, _ in recorder.shown] == script()
    times = [when * speed for _, when in recorder.shown]
    # Prefill 0.4 s, a plain round 9.4 ms, the drafting ones 2.1 ms more.
    assert times == pytest.approx([0, 0.4, 0.4094, 0.4209, 0.4324, 0.4439, 0.4554, 0.4554])


def test_a_cancelled_wait_ends_the_replay_within_a_slice():
    clock = Clock()
    recorder = Recorder(clock)
    assert not play(script(), recorder, paced(0.001, lambda: clock.now > 1.0, clock, clock.sleep))
    assert clock.now < 1.2 and len(recorder.shown) == 1


@pytest.mark.parametrize("more", [(), ("--plain",)])
def test_rounds_are_lines_on_stderr_and_stdout_is_the_answer(specdec, trace, more):
    summary, (code, out, err) = specdec("replay", trace)[2], specdec("replay", trace, "--rounds", *more)
    assert (code, out, len(err.removesuffix(summary).splitlines())) == (0, ANSWER + "\n", 5)
    assert specdec("replay", trace, "--rounds", "-q", *more) == (0, out, err.removesuffix(summary))


HOSTILE = "</pre><script>alert(1)</script>&amp;\x1b]0;owned\x07\x00\u202e\ufffe]]>[link=x]{0}"
SCRIPT = TraceReply(START, PREFILL, ROUNDS, finish())
LEFT_OUT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ufffe]")


def hostile():
    rounds = (drafted(0, [], 0, HOSTILE), drafted(1, [HOSTILE, HOSTILE, HOSTILE], 1, HOSTILE))
    start = replace(START, target=f"org/{HOSTILE}", rule=HOSTILE)
    return trace_picture(
        Trace((TraceReply(start, PREFILL, rounds, Finish("stop", HOSTILE * 3, (), "", finish().stats)),)), HOSTILE
    )


def hostile_race():
    start = RaceStart(HOSTILE, HOSTILE, False, HOSTILE, 0.1)
    return race_picture(
        scripted(("<script>alert(1)</script>", "\x1b[2J&amp;", "\u202e\ufffe", "]]>日本\n\t"), start=start)
    )


@pytest.mark.parametrize("draw", [hostile, hostile_race])
def test_nothing_foreign_acts_nothing_is_loaded_and_a_picture_is_xml(draw):
    written = draw()
    assert "<script" not in written and "&lt;script&gt;" in written and not LEFT_OUT.search(written)
    assert set(re.findall(r"[a-z]+://[^\s\"'<)]+", written)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(src|href)\s*=|@import|url\((?!#)", written)
    ElementTree.fromstring(written)


def lines_of(picture):
    """The rows of a picture: its runs of text by height."""
    rows = {}
    for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"):
        if "textLength" in element.attrib:
            rows.setdefault(float(element.attrib["y"]), []).append(element)
    return [rows[y] for y in sorted(rows)]


@pytest.mark.parametrize("piece", ["word ", "日本語", "a" * 30, "\t|"])
def test_no_run_leaves_its_row_or_covers_another(piece):
    """rich gives a wide character the room of a narrow one."""
    rounds = [drafted(0, [], 0, piece)] + [drafted(n, [piece, "no", "never"], 1, piece) for n in range(1, 40)]
    end = Finish("stop", "".join(done.text for done in rounds), (), "", finish().stats)
    rows = lines_of(trace_picture(Trace((TraceReply(START, PREFILL, tuple(rounds), end),)), ""))
    assert len(rows) > 10
    for row in rows:
        ends = [float(run.attrib["x"]) + float(run.attrib["textLength"]) for run in row]
        assert max(ends) <= 88 * 12.2 + 0.2
        assert all(float(run.attrib["x"]) >= end - 0.2 for run, end in zip(row[1:], ends, strict=False))


def test_a_picture_keeps_its_spaces_where_a_viewer_trims_them():
    """The bug: librsvg trims no-break spaces, too, so words and columns stuck together."""
    named = {"xml": "http://www.w3.org/XML/1998/namespace"}
    written = ElementTree.fromstring(hostile()).find(".//*[@xml:space='preserve']", named)
    assert written is not None and "".join(written.itertext()).strip()


def text_of(written):
    return "\n".join("".join(run.text for run in row) for row in lines_of(written)).replace("\xa0", " ")


def test_a_picture_holds_the_reply_each_of_its_rounds_and_its_panel():
    text = "".join(text_of(trace_picture(Trace((SCRIPT, SCRIPT)), "mine")).split())
    assert text.count("╭─mine") == 2 and text.count("✗rejected") == 2
    for row in round_rows(ROUNDS, START, 88):
        assert text.count("".join(row.plain.split())) == 2


def test_the_text_is_the_reply_in_the_colours_of_its_tokens():
    rows = answer(SCRIPT, 10_000)
    assert "\n".join(row.plain for row in rows) == ANSWER.expandtabs()
    kinds = {str(span.style) for row in rows for span in row.spans}
    assert {GUESSED, OWN} <= kinds and not any("strike" in kind for kind in kinds)


def test_a_race_s_picture_holds_both_texts_whole_and_the_verdict():
    race = scripted(("def", " f", "()", ":\n"), rounds=40)
    text = text_of(race_picture(race))
    assert text.count(" f():") == 80 and "same text ✓" in text and "Fake M9" in text


def test_of_plain_decoding_nothing_is_coloured():
    rounds = (drafted(0, [], 0, "a"), drafted(1, [], 0, "b"))
    plain = TraceReply(
        replace(START, drafter="none", k=0), PREFILL, rounds, Finish("stop", "ab", (), "", finish().stats)
    )
    assert not any(str(span.style) for row in answer(plain, 80) for span in row.spans)
