"""SPECDEC_* variables: all documented, and a misspelled one is said to be."""

import re
from pathlib import Path

import pytest

from specdec_cli.cli.environment import unknown_variables, variables
from specdec_cli.cli.main import app

PACKAGE = Path(__file__).parents[2] / "specdec_cli"


def test_every_variable_that_the_code_reads_is_in_the_table_and_no_other():
    table = re.findall(r"^\| `(SPECDEC_\w+)` \|", (PACKAGE / "docs/environment.md").read_text("utf-8"), re.M)
    assert sorted(table) == sorted(variables(app))


def test_no_variable_is_read_behind_the_table_s_back():
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    assert set(re.findall(r"\bSPECDEC_[A-Z_]*[A-Z]\b", source)) <= variables(app)


def test_a_misspelled_variable_is_one_line_that_names_the_nearest(specdec, monkeypatch):
    monkeypatch.setenv("SPECDEC_PIAR", "demo")
    code, _, err = specdec("--version")
    assert (code, err) == (0, "warning: SPECDEC_PIAR is set and means nothing; the nearest: SPECDEC_PAIR\n")


@pytest.mark.parametrize("arguments", [["run", "-q"], ["run", "--json"], ["chat", "--quiet"]])
def test_silence_is_kept_where_it_was_asked_for(arguments):
    assert unknown_variables(app, arguments, {"SPECDEC_PIAR": "demo"}) == []


def test_known_ones_and_other_programs_variables_are_no_news():
    assert unknown_variables(app, ["run"], {"SPECDEC_PAIR": "demo", "SPECDEC_DEBUG": "1", "PIAR": "x"}) == []
