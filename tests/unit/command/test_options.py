"""The table of options: what every command takes, groups, SPECDEC_* as defaults, and completion in the shell."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from specdec_cli import main
from specdec_cli.command import table
from specdec_cli.command.command import grouped
from specdec_cli.command.help import listing
from specdec_cli.command.load import AnswerSettings
from specdec_cli.command.options import AnswerOptions, SamplingOptions
from specdec_cli.command.table import ROWS, Row, row_of, variables
from specdec_cli.command.values import parse_size
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import BOUNDS, flag

PACKAGE = Path(__file__).parents[3] / "specdec_cli"
FLAGS = {"temperature": "temp"} | {name: name for name in BOUNDS if name != "temperature"}


def invoke(function, *arguments, **environment):
    application = typer.Typer()
    application.command()(function)
    return CliRunner().invoke(application, arguments, env=environment)


@dataclass(frozen=True, slots=True)
class ToyOptions(AnswerOptions):
    """A group with the toy's field: its type and default."""

    toy: int = 3


def test_an_option_is_one_row_and_one_field(monkeypatch):
    """The row gives spelling, help, variable and bounds; the field arrives beside the request of the others."""
    toy = Row("-j, --toy N", "A number to print", "TOY", "It does nothing else.", low=1)
    monkeypatch.setitem(table.TABLE, "Drafting", (toy, *table.TABLE["Drafting"]))
    monkeypatch.setitem(table.ROWS, ".toy", toy)  # as it is made of TABLE at import

    @grouped
    def command(*, answer: ToyOptions, raw: bool = False) -> None:
        """The toy beside the settings of an answer."""
        typer.echo(f"{answer.toy} {AnswerSettings.read(answer, SamplingOptions()).asked.max_tokens} {raw}")

    assert invoke(command).output == "3 512 False\n"
    assert invoke(command, "--toy", "5", "-n", "9", "--raw", SPECDEC_TOY="7").output == "5 9 True\n"
    assert invoke(command, SPECDEC_TOY="7").output == "7 512 False\n" and "SPECDEC_TOY" in variables()
    assert str(invoke(command, "-j", "0").exception) == "-j 0 is below 1"
    application = typer.Typer()
    application.command()(command)
    context = typer.Context(typer.main.get_command(application), info_name="command")
    assert re.search(r"^  -j, --toy N +A number to print \(default 3\)$", listing(context), re.M)
    notes = "A number to print. It does nothing else.\n        [default: 3] [env: SPECDEC_TOY]\n"
    assert notes in listing(context, whole=True)


def commands(command):
    """A command, and those in it."""
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from commands(inner)


def test_every_option_of_every_command_comes_from_the_table_and_every_row_is_of_a_command():
    used = {row_of("", "help")}
    for each in commands(typer.main.get_command(main.app)):
        for parameter in each.params:
            row = row_of(each.name, parameter.name)
            used.add(row)
            spelled = ["/".join(names) for names in zip(parameter.opts, parameter.secondary_opts, strict=False)]
            assert row.flags == (spelled or (parameter.opts if row.flags else [])), (each.name, parameter.name)
            if "completion" not in parameter.name:  # Typer's own
                assert (parameter.envvar, parameter.help) == (row.variable, row.help)
    assert used == set(ROWS.values())


def test_a_help_is_a_line_of_table_and_what_it_adds_are_sentences():
    for row in ROWS.values():
        assert row.help[0].isupper() and row.help[-1] != "." and (row.more[-1:] or ".") == "."
        assert len(row.help) <= 47 or row.rare or row.setting, row.help


def test_the_documents_table_of_variables_is_that_of_the_options():
    text = (PACKAGE / "docs/environment.md").read_text("utf-8")
    documented = dict(re.findall(r"^\| `(SPECDEC_\w+)` \| (.+) \|$", text, re.M))
    spelled = {row.variable: "" for row in ROWS.values() if row.variable}
    for row in (row for row in ROWS.values() if row.variable and not row.of):
        spelled[row.variable] = row.name if row.setting else row.flags[-1].split("/")[0]
    assert {name: f"`{option}`" for name, option in spelled.items()}.items() <= documented.items()
    known = {*main.OTHERS, *variables()}  # of which none gets a warning
    assert documented.keys() == known and spelled.keys() == variables().keys()
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    assert set(re.findall(r"\bSPECDEC_[A-Z_]*[A-Z]\b", source)) <= known


@pytest.mark.parametrize("name", BOUNDS)
def test_every_sampling_flag_arrives_under_its_own_name_and_its_bounds_name_it(name):
    """Seven values are passed on by position: any two exchanged would show here."""
    low, high, _ = BOUNDS[name]
    value = high if name == "top_p" else (low + high) / 2
    assert SamplingOptions(**{FLAGS[name]: value}).values() == dict.fromkeys(BOUNDS) | {name: value}
    with pytest.raises(UsageError, match=f"--{flag(name)} .* is outside"):
        SamplingOptions(**{FLAGS[name]: high + 1}).values()


@pytest.fixture
def completed(specdec, monkeypatch):
    def complete(words):
        monkeypatch.setenv("_SPECDEC_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        return specdec()[1:]

    return complete


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("specdec run -p dem", ["demo", "demo-hybrid"]),
        ("specdec run --drafter n", ["ngram", "none"]),
        ("specdec chat --rule co", ["coupled"]),
        ("specdec bench --kinds code,ch", ["code,chat"]),
        ("specdec help re", ["replay"]),
        ("specdec serve --print-config c", ["codex", "claude", "continue"]),
    ],
)
def test_values_complete_in_the_shell(completed, words, found):
    assert completed(words)[0].split() == found


SET = {
    "stop_repetition": "12",
    "draft_context": "33",
    "min_p": "0.25",
    "repetition_penalty": "1.5",
    "presence_penalty": "0.5",
    "frequency_penalty": "-0.5",
    "logit_bias": "42=-5 7=2",
    "colour_answer": "false",
    "on_overflow": "drop-oldest",
    "slots": "3",
    "cache_bytes": "1000",
    "cache_disk": "2GB",
}


@pytest.mark.parametrize("source", ["config", "preset", "variable"])
def test_a_setting_that_is_no_option_comes_from_the_config_a_preset_and_its_variable(specdec, monkeypatch, source):
    assert {row.name for row in ROWS.values() if row.setting} == SET.keys()
    for name, text in SET.items():
        if source == "variable":
            monkeypatch.setenv(f"SPECDEC_{name.upper()}", text)
        else:
            key = name if source == "config" else f"presets.mine.{name}"
            assert specdec("config", "set", key, *text.split())[0] == 0
    lines = specdec("config", "show", *(["-t", "mine"] if source == "preset" else []))[1].splitlines()
    shown = {name: (value, said_by) for name, value, said_by in (line.split("\t") for line in lines[1:])}
    for name, text in SET.items():
        assert shown[name][0] == text and (name.upper() in shown[name][1]) == (source == "variable")


@pytest.mark.parametrize(
    "text, expected", [("8GB", 8_000_000_000), ("1.5 g", 1_500_000_000), ("500MB", 500_000_000), ("7", 7), ("off", 0)]
)
def test_a_size_is_read_as_people_write_it(text, expected):
    assert parse_size("--cache-disk", text) == expected


def test_a_setting_that_is_no_option_changes_the_answer(specdec):
    """A bias that nothing outweighs: every word is that token. The values in effect are in the first event."""
    specdec.config.write_text('min_p = 0.25\nlogit_bias = "42=300"\nstop_repetition = 5\n')
    _, out, _ = specdec("run", "-p", "demo", "--raw", "--json", "-n", "30", "def f(")
    start, *_, finish = map(json.loads, out.splitlines())
    assert start["sampling"]["min_p"] == 0.25 and finish["reason"] == "repetition"
