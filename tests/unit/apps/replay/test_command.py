"""`specdec replay`: a trace alone is enough, and every figure is the recorded one."""

import json

import pytest

from fakes.ui_script import ANSWER, PREFILL, START, drafted, script
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import Failure, Finish, Reading, RoundDone, to_dict
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


def test_of_113_rounds_every_word_is_in_the_record(specdec, tmp_path):
    """The bug: the panel showed one round in ten, and nothing else showed a word that was not said."""
    done = [drafted(n, [f" yes{n}", f" no{n}", f" lost{n}"], 1, f" own{n}") for n in range(113)]
    end = Finish("stop", "".join(each.text for each in done), (), "", {})
    trace = tmp_path / "long.jsonl"
    trace.write_text("".join(json.dumps(to_dict(event)) + "\n" for event in (START, PREFILL, *done, end)))
    code, out, err = specdec("replay", trace, "--rounds", "--speed", "inf")
    assert (code, out) == (0, end.text + "\n")
    assert [" ".join(line.split()) for line in err.splitlines()][:-1] == [
        f"{n + 1} ✓␣yes{n} ✗␣no{n} ·␣lost{n} ↳ ␣own{n} 1 of 3 12 ms" for n in range(113)
    ]


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--speed", "0"), "--speed 0.0 is not above 0"),
        (("--speed", "nan"), "--speed nan is not above 0"),
        (("--svg", "/nowhere/a.svg"), "--svg /nowhere/a.svg cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_two_lines(specdec, trace, more, message):
    assert specdec.refused("replay", trace, *more)[:2] == (2, message)


@pytest.mark.parametrize("name", [["start"], [], {"a": 1}, None, True, 5, 1.5, "", "none"], ids=str)
def test_an_event_without_a_name_is_refused_with_its_line(specdec, trace, name):
    """A list failed as unexpected: unhashable."""
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join([lines[0], json.dumps({**json.loads(lines[1]), "event": name}), *lines[2:]]))
    code, message, hint = specdec.refused("replay", trace)
    assert code == 2 and message.startswith(f"{trace}, line 2: not a specdec event: ") and hint


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
