"""From options to a loaded pair: which pair, which drafter, and what is said meanwhile."""

import json
from dataclasses import replace

import pytest

from specdec_cli.command.load import introduce_demo, load_session, specify
from specdec_cli.command.options import ModelOptions
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.pairs.pair import DEMO

LINE = "demo pair: it completes Python and knows nothing else; a real one: specdec pull\n"


@pytest.fixture
def models(tiny_pair):
    target, draft = map(str, tiny_pair)
    return ModelOptions(target=target, draft=draft)


def test_a_pair_by_name_and_by_its_models(models):
    assert specify(ModelOptions(pair="demo")).pair.name == "demo"
    found = specify(models).pair
    assert (found.target, found.draft) == (models.target, models.draft)


@pytest.mark.parametrize(
    ("term", "begins"),
    [("xterm", "\x1b[?2026h\x1b[?25l\x1b[?7lloading ./nobody…\x1b[K\r\x1b[?7h"), ("dumb", "loading ./nobody…\n")],
)
def test_a_terminal_says_what_is_loaded_before_the_pair_is_resolved(specdec, capsys, monkeypatch, term, begins):
    """The bug: it came after seconds of imports, and of reading tokenizers to find a draft."""
    monkeypatch.setenv("TERM", term)
    for command in (["run", "-p", "./nobody", "hi"], ["audit", "-p", "./nobody"], ["bench", "-p", "./nobody"]):
        with monkeypatch.context() as terminal:
            terminal.setattr("specdec_cli.terminal.terminal.is_terminal", lambda stream: True)
            _, out, err = specdec(*command)
        assert out == "" and err.startswith(begins), err
    assert specdec("run", "-p", "./nobody", "hi")[2].startswith("error:")  # no terminal, no word


def test_how_much_the_draft_reads_is_the_options_else_the_pairs(models):
    assert specify(models).pair.draft_context == 1024
    for value, meant in (("64", 64), ("full", "full")):
        found = specify(replace(models, draft_context=value))
        assert found.pair.draft_context == meant
        session = load_session(found, replace(models, draft_context=value), reserve_tokens=64, shown=False)
        assert session.slot.draft.recent == (None if value == "full" else 64)


@pytest.mark.parametrize(
    ("drafter", "ks", "expected"),
    [(None, (), "auto"), ("ngram", (), "ngram"), ("ngram", (0,), "none"), ("ngram", (0, 4), "ngram")],
)
def test_the_drafter_is_the_options_and_nobody_where_every_k_is_0(models, drafter, ks, expected):
    options = ModelOptions(target=models.target, draft=models.draft, drafter=drafter)
    assert specify(options, ks).drafter == expected


def test_a_pair_must_fit_unless_force_is_given(models, monkeypatch):
    """A device of a megabyte: 50 million tokens of context fit nowhere."""
    monkeypatch.setattr("specdec_cli.engine.device.usable_bytes", lambda: 1_000_000)
    quiet = {"reserve_tokens": 50_000_000, "shown": False, "remember_costs": False}
    with pytest.raises(DoesNotFit, match="are usable"):
        load_session(specify(models), models, **quiet)
    forced = ModelOptions(target=models.target, draft=models.draft, force=True)
    assert load_session(specify(forced), forced, **quiet).pair.names == (models.target, models.draft)


@pytest.mark.parametrize("spelled", ["./target", "absolute"])
def test_a_folder_in_place_of_a_pairs_name_is_a_target(specdec, tiny_pair, monkeypatch, spelled):
    """`run -p ./model` and `check ./model` knew no pair of that name."""
    monkeypatch.chdir(tiny_pair[0].parent)
    name = str(tiny_pair[0]) if spelled == "absolute" else spelled
    code, out, _ = specdec("run", "-p", name, "--draft", tiny_pair[1], "-n", "2", "--raw", "--json", "hi")
    start = json.loads(out.splitlines()[0])
    assert (code, start["target"], start["draft"]) == (0, name, str(tiny_pair[1]))
    assert specdec("check", name, "--json") == specdec("check", "--target", name, "--json")


def test_a_pair_of_that_name_comes_before_a_folder(tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert specify(ModelOptions(pair="demo")).pair.target == "specdec:demo/target"


def test_the_demo_is_introduced_in_one_line_where_stderr_may_hold_more_than_errors(capsys):
    for name, shown in (("another", True), (DEMO, False), (DEMO, True)):
        introduce_demo(name, shown=shown, plain=True)
    assert capsys.readouterr().err == LINE


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "race"])
def test_a_command_says_what_the_demo_is_before_the_answer_and_quiet_says_nothing(specdec, command):
    words = (command, "-p", "demo", "-n", "4", "Why is the sky blue?")
    assert specdec(*words)[2].startswith(LINE)
    assert specdec(*words, "-q")[2] == ""
