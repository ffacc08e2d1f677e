"""Options that several commands share: one spelling, groups, SPECDEC_* as defaults, and completion in the shell."""

import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from specdec_cli.cli import main
from specdec_cli.cli.command import LAST, grouped
from specdec_cli.cli.options import (
    ADVANCED,
    AnswerOptions,
    DisplayOptions,
    ModelOptions,
    PairOptions,
    SamplingOptions,
    ShapeOptions,
)
from specdec_cli.errors import UsageError
from specdec_cli.request import BOUNDS, flag

PACKAGE = Path(__file__).parents[2] / "specdec_cli"
GROUPS = (PairOptions, ModelOptions, AnswerOptions, DisplayOptions, SamplingOptions, ShapeOptions)
FLAGS = {"temperature": "temp"} | {name: name for name in BOUNDS if name != "temperature"}


@dataclass(frozen=True, slots=True)
class Lengths:
    """Two options."""

    force: Annotated[bool, typer.Option("--force")] = False
    depth: Annotated[int, typer.Option("-d", envvar="TEST_DEPTH")] = 3


DEEP = Lengths(depth=9)


@grouped
def command(*, lengths: Lengths, name: Annotated[str, typer.Option()] = "x") -> None:
    """A command."""
    typer.echo(f"{lengths} {name}")


@grouped
def deep(*, lengths: Lengths = DEEP) -> None:
    """The same options with other defaults."""
    typer.echo(f"{lengths}")


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
    assert invoke(command).output == "Lengths(force=False, depth=3) x\n"
    assert invoke(command, "-d", "5", "--force", "--name", "y").output == "Lengths(force=True, depth=5) y\n"
    assert invoke(command, TEST_DEPTH="7").output == "Lengths(force=False, depth=7) x\n"
    assert invoke(deep).output == "Lengths(force=False, depth=9)\n"
    assert "force" in LAST and list(inspect.signature(command).parameters) == ["depth", "name", "force"]


@pytest.mark.parametrize(
    ("name", "max_tokens"), [("run", 512), ("chat", 2048), ("audit", 64), ("bench", None), ("check", None)]
)
def test_every_command_keeps_its_own_defaults(name, max_tokens):
    options = {parameter.name: parameter for parameter in typer.main.get_command(main.app).commands[name].params}
    assert {"target", "draft", "target_revision", "draft_revision", "offline"} <= options.keys()
    assert max_tokens is None or options["max_tokens"].default == max_tokens


def test_an_option_of_two_groups_is_spelled_the_same_and_has_one_help_line():
    seen = {}
    for group in GROUPS:
        for name, hint in get_type_hints(group, include_extras=True).items():
            info = get_args(hint)[1]
            spelling = (info.param_decls, info.envvar, info.help, info.rich_help_panel)
            assert seen.setdefault(name, spelling) == spelling
            assert info.help.endswith(".") and info.rich_help_panel in (None, ADVANCED)


def variables(command):
    for parameter in command.params:
        if isinstance(parameter.envvar, str):
            yield parameter.envvar
    for inner in getattr(command, "commands", {}).values():
        yield from variables(inner)


def test_every_variable_that_the_code_reads_is_in_the_documents_table_and_no_other():
    table = re.findall(r"^\| `(SPECDEC_\w+)` \|", (PACKAGE / "docs/environment.md").read_text("utf-8"), re.M)
    known = {*main.OTHERS, *variables(typer.main.get_command(main.app))}
    assert known == {*main.OTHERS, *main.variables()}  # of which none gets a warning
    assert sorted(table) == sorted(known)
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    assert {"SPECDEC_" + name for name in re.findall(r'\benv="([A-Z_]+)"', source)} <= known
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
