"""The table of options: what every command takes, groups, SPECDEC_* as defaults, and completion in the shell."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from specdec_cli.cli import main, table
from specdec_cli.cli.command import grouped
from specdec_cli.cli.help import listing
from specdec_cli.cli.load import AnswerSettings
from specdec_cli.cli.options import AnswerOptions, ModelOptions, SamplingOptions
from specdec_cli.cli.table import ROWS, Row, row_of, variables
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import BOUNDS, flag

PACKAGE = Path(__file__).parents[3] / "specdec_cli"
FLAGS = {"temperature": "temp"} | {name: name for name in BOUNDS if name != "temperature"}


@dataclass(frozen=True, slots=True)
class Kept:
    """Two options."""

    force: bool = False
    slots: int = 3


MANY = Kept(slots=9)


@grouped
def command(*, kept: Kept, system: str = "x") -> None:
    """A command."""
    typer.echo(f"{kept} {system}")


@grouped
def deep(*, kept: Kept = MANY) -> None:
    """The same options with other defaults."""
    typer.echo(f"{kept}")


def invoke(function, *arguments, **environment):
    application = typer.Typer()
    application.command()(function)
    return CliRunner().invoke(application, arguments, env=environment)


def read(kind, *arguments, **environment):
    @grouped
    def command(*, values: kind) -> None:
        typer.echo(repr(values))

    return invoke(command, *arguments, **environment)


def test_a_group_becomes_its_fields_and_comes_back_as_one_value():
    assert invoke(command).output == "Kept(force=False, slots=3) x\n"
    assert invoke(command, "--slots", "5", "--force", "-s", "y").output == "Kept(force=True, slots=5) y\n"
    assert invoke(command, SPECDEC_SLOTS="7").output == "Kept(force=False, slots=7) x\n"
    assert invoke(deep).output == "Kept(force=False, slots=9)\n"


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
    def command(*, answer: ToyOptions) -> None:
        """The toy beside the settings of an answer."""
        typer.echo(f"{answer.toy} {AnswerSettings.read(answer, SamplingOptions()).asked.max_tokens}")

    assert invoke(command).output == "3 512\n"
    assert invoke(command, "--toy", "5", "-n", "9", SPECDEC_TOY="7").output == "5 9\n"
    assert invoke(command, SPECDEC_TOY="7").output == "7 512\n" and "SPECDEC_TOY" in variables()
    assert str(invoke(command, "-j", "0").exception) == "-j 0 is below 1"
    application = typer.Typer()
    application.command()(command)
    context = typer.Context(typer.main.get_command(application), info_name="command")
    assert re.search(r"^  -j, --toy N +A number to print \(default 3\)$", listing(context), re.M)
    notes = "A number to print. It does nothing else.\n        [default: 3] [env: SPECDEC_TOY]\n"
    assert notes in listing(context, whole=True)


@pytest.mark.parametrize(
    ("name", "max_tokens"), [("run", 512), ("chat", 2048), ("audit", 64), ("bench", None), ("check", None)]
)
def test_every_command_keeps_its_own_defaults(name, max_tokens):
    options = {parameter.name: parameter for parameter in typer.main.get_command(main.app).commands[name].params}
    assert {"target", "draft", "target_revision", "draft_revision", "offline"} <= options.keys()
    assert max_tokens is None or options["max_tokens"].default == max_tokens


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
        assert len(row.help) <= 47 or row.rare, row.help


def test_the_documents_table_of_variables_is_that_of_the_options():
    text = (PACKAGE / "docs/environment.md").read_text("utf-8")
    documented = dict(re.findall(r"^\| `(SPECDEC_\w+)` \| (.+) \|$", text, re.M))
    spelled = {row.variable: row.flags[-1].split("/")[0] for row in ROWS.values() if row.variable}
    assert {name: f"`{option}`" for name, option in spelled.items()}.items() <= documented.items()
    known = {*main.OTHERS, *variables()}  # of which none gets a warning
    assert documented.keys() == known and spelled.keys() == variables().keys()
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    assert set(re.findall(r"\bSPECDEC_[A-Z_]*[A-Z]\b", source)) <= known


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("SPECDEC_PAIR", "tiny", "pair='tiny'"),
        ("SPECDEC_KV_BITS", "8", "kv_bits=8"),
        ("SPECDEC_DRAFTER", "ngram", "drafter='ngram'"),
    ],
)
def test_the_environment_gives_a_default_and_a_flag_wins(name, value, field):
    assert field in read(ModelOptions, **{name: value}).output
    assert field not in read(ModelOptions, "-p", "p", "--drafter", "none", "--kv-bits", "2", **{name: value}).output


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
