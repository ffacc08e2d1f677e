"""specdec run: its prompt, events and shapes in this process, its screen on a real pseudo-terminal."""

import io
import json
import sys

import pytest
from jsonschema import validate

from fakes.device import MEMORY, SCREEN, FailingDevice
from fakes.terminal import Terminal
from fakes.ui_script import script
from specdec_cli.apps.run.command import show_events
from specdec_cli.command.options import ShapeOptions
from specdec_cli.command.prompt import read_prompt
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.events import Failure
from specdec_cli.core.request import Constraint


def run_on(home, *arguments, **environment):
    return Terminal(home, "run", "--raw", *arguments, **environment)


@pytest.mark.slow
def test_the_final_screen_holds_the_answer_one_panel_and_the_summary(tmp_path, specdec):
    code, text = run_on(tmp_path, "-n", "30", "def read_lines(path):\n").end()
    answer = specdec("run", "--raw", "-n", "30", "-q", "def read_lines(path):\n")[1]
    # The panel's terminal folds long lines at words; nothing else may differ.
    assert code == 0 and "".join(answer.split()) in "".join(text.split())
    assert text.count("╭─ demo · ") == 1
    assert text.count("demo pair") == 1
    assert "tokens in" in text and "✓ accepted" in text and "stopped at --max-tokens 30" in text
    assert "loading" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "more"), [({"NO_COLOR": "1"}, ()), ({"TERM": "dumb"}, ()), ({}, ("--plain",))], ids=str
)
def test_no_color_gets_no_colour_and_dumb_terminals_and_plain_no_control_code(tmp_path, environment, more):
    screen = run_on(tmp_path, "-n", "12", *more, "def f(", **environment)
    code, text = screen.end()
    colours = [f"\x1b[{n}m".encode() for n in range(30, 38)] + [b"\x1b[38;", b";3", b"\x1b[1;3"]
    assert code == 0 and "tokens in" in text and not [c for c in colours if c in screen.raw]
    assert "NO_COLOR" in environment or b"\x1b" not in screen.raw


# Without a terminal


@pytest.mark.parametrize(
    ("data", "argument", "expected"),
    [(b"", "b", "file\nb"), (b"a\n", "b", "a\n\nfile\nb"), ("é🙂".encode(), None, "é🙂\nfile")],
)
def test_stdin_comes_first_then_the_file_then_the_prompt(monkeypatch, tmp_path, data, argument, expected):
    path = tmp_path / "prompt.txt"
    path.write_text("file")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert read_prompt(argument, path) == expected


def failing(events, error):
    yield from events
    raise error


def test_a_failure_after_the_start_is_shown_and_raised_and_one_before_it_is_only_raised():
    error = DoesNotFit("too long", "shorten it")
    for events, shown in ((script()[:3], [*script()[:3], Failure("too long", "shorten it", 5)]), ([], [])):
        found = []
        with pytest.raises(DoesNotFit):
            show_events(failing(events, error), found.append)
        assert found == shown


@pytest.mark.parametrize(("message", "code"), [(MEMORY, 5), (SCREEN, 1)])
def test_a_failure_of_the_device_is_two_lines_an_event_and_its_exit_code(specdec, monkeypatch, message, code):
    FailingDevice(8, message).install(monkeypatch)
    found, _, err = specdec("run", "-p", "demo", "-q", "-n", "8", "def")  # what was said before is on stdout
    error, hint = err.splitlines()
    assert found == code and error.startswith("error: ") and hint.startswith("hint: ")
    assert "Command buffer execution failed" in error and "-k 0" in hint
    FailingDevice(8, message).install(monkeypatch)
    found, out, _ = specdec("run", "-p", "demo", "--json", "-n", "8", "def")
    last = json.loads(out.splitlines()[-1])
    assert (found, last["event"], last["exit_code"]) == (code, "error", code)


def test_a_prediction_outweighs_the_drafter_that_a_pair_names(specdec, tmp_path):
    """The demo pair names its draft, so README's own example was refused."""
    (tmp_path / "text").write_text("def f(): pass")
    arguments = ("run", "--raw", "-p", "demo", "-n", "2", "--json", "--predict", tmp_path / "text", "def f")
    code, out, _ = specdec(*arguments)
    assert (code, json.loads(out.splitlines()[0])["drafter"]) == (0, "auto")
    assert json.loads(specdec(*arguments, "-k", "0")[1].splitlines()[0])["drafter"] == "none"


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "sizes": {"type": "array", "items": {"type": "integer"}, "maxItems": 4},
    },
    "required": ["name", "sizes"],
    "additionalProperties": False,
}
TEXT = json.dumps(SCHEMA)
RUN = ("run", "--raw", "-p", "demo", "import json\n")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "s.json").write_text("\ufeff" + TEXT, "utf-8")
    (tmp_path / "g.lark").write_text('start: "yes" | "no"\n')
    (tmp_path / "latin1").write_bytes(b'{"title": "\xe9"}')
    return tmp_path


def test_the_three_are_read_from_where_they_are(files):
    assert ShapeOptions(schema=str(files / "s.json")).constraint() == Constraint("schema", TEXT)
    assert ShapeOptions(regex="a+").constraint() == Constraint("regex", "a+")
    assert ShapeOptions(grammar=files / "g.lark").constraint() == Constraint("grammar", 'start: "yes" | "no"\n')
    assert ShapeOptions().constraint() is None


@pytest.mark.parametrize("shape", [("--schema", "s.json"), ("--schema", TEXT)], ids=["file", "text"])
def test_the_answer_is_json_of_the_schema(specdec, files, monkeypatch, shape):
    monkeypatch.chdir(files)
    code, out, err = specdec(*RUN, *shape, "-k", "4", "--temp", "0.8", "--seed", "3")
    assert code == 0 and "incomplete" not in err
    validate(json.loads(out), SCHEMA)
