"""SPECDEC_* variables: every one that the code reads is documented, and no other."""

import re
from pathlib import Path

import typer

from specdec_cli.cli.main import app

PACKAGE = Path(__file__).parents[2] / "specdec_cli"
# Read outside the options; every other variable sets the default of an option.
OTHERS = {"SPECDEC_API_KEY", "SPECDEC_BLAS", "SPECDEC_DEBUG", "SPECDEC_MODELS"}


def variables(command):
    for parameter in command.params:
        if isinstance(parameter.envvar, str):
            yield parameter.envvar
    for inner in getattr(command, "commands", {}).values():
        yield from variables(inner)


def test_every_variable_that_the_code_reads_is_in_the_table_and_no_other():
    table = re.findall(r"^\| `(SPECDEC_\w+)` \|", (PACKAGE / "docs/environment.md").read_text("utf-8"), re.M)
    read = {*OTHERS, *variables(typer.main.get_command(app))}
    assert sorted(table) == sorted(read)
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    assert set(re.findall(r"\bSPECDEC_[A-Z_]*[A-Z]\b", source)) <= read
