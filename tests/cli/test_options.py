"""Options that several commands share: one spelling, bounds, and SPECDEC_* as defaults."""

import json
from typing import Annotated, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from fakes.ui_script import script
from specdec_cli.cli import options as shared
from specdec_cli.cli.groups import grouped
from specdec_cli.cli.options import ADVANCED, AnswerOptions, DisplayOptions, ModelOptions, PairOptions, option
from specdec_cli.errors import UsageError
from specdec_cli.events import Failure
from specdec_cli.kinds import DRAFTERS

GROUPS = (PairOptions, ModelOptions, AnswerOptions, DisplayOptions)


def infos(group):
    """Name -> what Typer was given, of a group's fields."""
    hints = get_type_hints(group, include_extras=True)
    return {name: get_args(hint)[1] for name, hint in hints.items() if get_args(hint)[1:]}


def run(kind, *arguments, **environment):
    @grouped
    def command(*, values: kind) -> None:
        typer.echo(repr(values))

    application = typer.Typer()
    application.command()(command)
    return CliRunner().invoke(application, arguments, env=environment)


def test_an_option_of_two_groups_is_spelled_the_same():
    seen = {}
    for group in GROUPS:
        for name, info in infos(group).items():
            spelling = (info.param_decls, info.envvar, info.help, info.rich_help_panel)
            assert seen.setdefault(name, spelling) == spelling


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_every_option_has_a_help_line_and_its_environment_variable_is_specdecs(group):
    for info in infos(group).values():
        assert info.help.endswith(".") and info.envvar in (None, f"SPECDEC_{(info.envvar or '')[8:]}")
        assert info.rich_help_panel in (None, ADVANCED)


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("SPECDEC_PAIR", "tiny", "pair='tiny'"),
        ("SPECDEC_TARGET", "org/t", "target='org/t'"),
        ("SPECDEC_DRAFT", "org/d", "draft='org/d'"),
        ("SPECDEC_DRAFTER", "ngram", "drafter='ngram'"),
        ("SPECDEC_KV_BITS", "8", "kv_bits=8"),
        ("SPECDEC_OFFLINE", "1", "offline=True"),
    ],
)
def test_the_environment_gives_a_default_and_a_flag_wins(name, value, field):
    assert field in run(ModelOptions, **{name: value}).output
    flags = ("-p", "p", "--target", "t", "--draft", "d", "--drafter", "none", "--kv-bits", "2", "--offline")
    assert name == "SPECDEC_OFFLINE" or field not in run(ModelOptions, *flags, **{name: value}).output


@pytest.mark.parametrize(
    ("group", "arguments", "message"),
    [
        (AnswerOptions, ("-n", "0"), "-n 0 is below 1"),
        (AnswerOptions, ("--max-context", "0"), "--max-context 0 is below 1"),
        (ModelOptions, ("--kv-bits", "3"), "--kv-bits 3 is none of 2, 4, 8"),
    ],
)
def test_a_value_out_of_bounds_is_a_usage_error(group, arguments, message):
    error = run(group, *arguments).exception
    assert isinstance(error, UsageError) and error.message == message


def test_stops_are_repeatable():
    assert "stop=['a', 'b']" in run(AnswerOptions, "--stop", "a", "--stop", "b").output


def test_the_help_names_every_drafter():
    assert all(name in shared.WHO_DRAFTS for name in DRAFTERS)


def test_an_advanced_option_is_in_the_advanced_panel():
    def command(value: Annotated[int, option("--value", advanced=True, help="A value.")] = 1) -> None:
        """A command."""

    application = typer.Typer()
    application.command()(command)
    assert ADVANCED in CliRunner().invoke(application, ["--help"]).output


@pytest.mark.parametrize(
    ("quiet", "json", "notices"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_notices_are_left_out_where_stderr_holds_errors_only(quiet, json, notices):
    assert DisplayOptions(quiet=quiet, json=json).notices is notices


def test_the_display_of_json_writes_the_trace_too(tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    with DisplayOptions(json=True, trace=trace).open("tiny") as display:
        display.handle(Failure("gone", "pull it", 3))
    out = capsys.readouterr().out
    assert json.loads(out)["exit_code"] == 3 and trace.read_text() == out


def test_verbose_says_what_a_round_costs(capsys):
    with DisplayOptions(verbose=True).open("tiny") as display:
        for event in script():
            display.handle(event)
    assert "a round costs 1.0 plain steps" in capsys.readouterr().err
