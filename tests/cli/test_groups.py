"""Groups of options: Typer sees every field, and the command gets them back as one frozen value."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from specdec_cli.cli.groups import LAST, grouped
from specdec_cli.cli.main import app


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


def run(function, *arguments, **environment):
    application = typer.Typer()
    application.command()(function)
    return CliRunner().invoke(application, arguments, env=environment).output.strip()


def test_a_group_becomes_its_fields_and_comes_back_as_one_value():
    assert run(command) == "Lengths(force=False, depth=3) x"
    assert run(command, "-d", "5", "--force", "--name", "y") == "Lengths(force=True, depth=5) y"
    assert run(command, TEST_DEPTH="7") == "Lengths(force=False, depth=7) x"


def test_an_instance_as_default_gives_the_defaults_of_this_command():
    assert run(deep) == "Lengths(force=False, depth=9)"
    assert run(deep, "-d", "5") == "Lengths(force=False, depth=5)"


def test_what_is_listed_last_comes_after_the_command_s_own_options():
    assert "force" in LAST
    assert list(inspect.signature(command).parameters) == ["depth", "name", "force"]


@pytest.mark.parametrize(
    ("name", "max_tokens"), [("run", 512), ("chat", 2048), ("audit", 64), ("bench", None), ("check", None)]
)
def test_every_command_keeps_its_own_defaults(name, max_tokens):
    options = {parameter.name: parameter for parameter in typer.main.get_command(app).commands[name].params}
    assert {"target", "draft", "target_revision", "draft_revision", "offline"} <= options.keys()
    assert max_tokens is None or options["max_tokens"].default == max_tokens
