"""specdec replay: a trace alone is enough, in its own pace; its pictures and a race's are valid, harmless and whole."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import pytest

from fakes.racing import Clock, scripted
from fakes.ui_script import ANSWER, PREFILL, ROUNDS, START, drafted, finish, folded, script
from specdec_cli.apps.race.events import RaceStart
from specdec_cli.apps.race.screen import race_file
from specdec_cli.apps.replay.command import paced, play
from specdec_cli.apps.replay.picture import answer, trace_picture
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Event, Failure, Finish, Reading, RoundDone, to_dict
from specdec_cli.core.trace import Trace, TraceReply, read_trace
from specdec_cli.terminal.panel.answer import MEANINGS


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "answer.jsonl"
    path.write_text("".join(json.dumps(to_dict(event)) + "\n" for event in script()))
    return path


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


def never():
    return False


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


def hostile(suffix):
    rounds = (drafted(0, [], 0, HOSTILE), drafted(1, [HOSTILE, HOSTILE, HOSTILE], 1, HOSTILE))
    start = replace(START, target=f"org/{HOSTILE}", rule=HOSTILE)
    return trace_picture(
        Trace((TraceReply(start, PREFILL, rounds, Finish("stop", HOSTILE * 3, (), "", finish().stats)),)), suffix
    )


def hostile_race(suffix):
    start = RaceStart(HOSTILE, HOSTILE, False, HOSTILE, 0.1)
    return race_file(
        scripted(("<script>alert(1)</script>", "\x1b[2J&amp;", "\u202e\ufffe", "]]>日本\n\t"), start=start), suffix
    )


@pytest.mark.parametrize("draw", [hostile, hostile_race])
@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_nothing_foreign_acts_nothing_is_loaded_and_a_picture_is_xml(draw, suffix):
    written = draw(suffix)
    assert "<script" not in written and "&lt;script&gt;" in written and not LEFT_OUT.search(written)
    assert set(re.findall(r"[a-z]+://[^\s\"'<)]+", written)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(src|href)\s*=|@import|url\((?!#)", written)
    if suffix == ".svg":
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
    rows = lines_of(trace_picture(Trace((TraceReply(START, PREFILL, tuple(rounds), end),)), ".svg"))
    assert len(rows) > 10
    for row in rows:
        ends = [float(run.attrib["x"]) + float(run.attrib["textLength"]) for run in row]
        assert max(ends) <= 88 * 12.2 + 0.2
        assert all(float(run.attrib["x"]) >= end - 0.2 for run, end in zip(row[1:], ends, strict=False))


def test_a_picture_holds_the_reply_its_panel_and_what_the_marks_mean():
    text = "\n".join(
        "".join(run.text for run in row) for row in lines_of(trace_picture(Trace((SCRIPT, SCRIPT)), ".svg"))
    )
    text = text.replace("\xa0", " ")
    assert text.count("org/Target-1B with org/Draft") == 2 and text.count("╭─") == 2
    assert all(meaning in text for meaning in MEANINGS.values())


def test_without_the_tokens_that_were_not_said_the_text_is_the_reply():
    """A mark comes after the space of its word; a line break is drawn as well as made."""
    text = answer(SCRIPT)
    lost = {place for span in text.spans if "strike" in str(span.style) for place in range(span.start, span.end)}
    kept = "".join(char for place, char in enumerate(text.plain) if place not in lost)
    assert re.sub("[↳★]|↵(?=\n)", "", kept) == SCRIPT.finish.text.replace("\x1b", "␛")
    assert "with✗日本·␛[2J↳\topen" in text.plain


def test_a_race_s_picture_holds_both_texts_whole_and_the_verdict():
    race = scripted(("def", " f", "()", ":\n"), rounds=40)
    text = re.sub("<[^>]*>", "", unescape(race_file(race, ".html")))
    assert text.count(" f():") == 80 and "same text ✓" in text and "Fake M9" in text


def test_of_plain_decoding_nothing_is_coloured_and_a_shape_is_named():
    rounds = (drafted(0, [], 0, "a"), drafted(1, [], 0, "b"))
    plain = TraceReply(
        replace(START, drafter="none", k=0), PREFILL, rounds, Finish("stop", "ab", (), "", finish().stats)
    )
    assert not any(str(span.style) for span in answer(plain).spans)
    rounds = (
        drafted(0, [], 0, "{"),
        drafted(1, ['"', "name"], 2, '":', "grammar"),
        drafted(2, [" 1"], 1, "}", "ngram"),
    )
    start = replace(START, constraint="schema")
    end = Finish("stop", '{"name": 1}', (), "", folded(rounds, start).stats.to_dict(), complete=True)
    page = re.sub("<[^>]*>", "", unescape(trace_picture(Trace((TraceReply(start, PREFILL, rounds, end),)), ".html")))
    assert "held to a schema, which drafts what it forces" in page
