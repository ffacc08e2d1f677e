"""Tables of pairs at width 80: filtered, and the default marked."""

import io

import pytest

from specdec_cli.pairs.pair import Pair
from specdec_cli.ui.pairs import PairRow, print_json, print_line, print_pairs


@pytest.fixture(autouse=True)
def _width_80(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def drawn(*rows):
    out = io.StringIO()
    print_pairs(out, rows)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_the_whole_table():
    one = Pair("fast", "mlx-community/Big", "mlx-community/Small", 4, source="packaged", verified=True)
    other = Pair("mine", "org/Alone", None, source="yours")
    assert drawn(PairRow(one, 4_340_000_000, True, True, True), PairRow(other, None, False, None, False)) == (
        "pair        size  here  fits     K  source    Hub\n"
        "fast *    4.3 GB  yes   yes      4  packaged\n"
        "  Big + Small\n"
        "mine           –  no    ?     auto  yours     unverified\n"
        "  org/Alone, no draft\n"
        "* the default pair: it answers when none is named\n"
        "ids without an organisation are mlx-community/…\n"
        "1 of 2 not yet verified against the Hub: specdec pairs --online"
    )


def test_long_ids_take_two_lines_instead_of_being_broken():
    pair = Pair("long", "org/" + "a" * 50, "org/" + "b" * 50, verified=True)
    assert drawn(PairRow(pair, 1, True, True, False)).splitlines()[2:] == [
        "  org/" + "a" * 50,
        "  + org/" + "b" * 50,
    ]


def test_names_and_lines_are_filtered():
    pair = Pair("a\x1b[2Jb", "org/\x1b]0;x\x07c", None)
    assert "\x1b" not in drawn(PairRow(pair, None, False, None, False))
    out = io.StringIO()
    print_line(out, "a\x1b[31mb")
    assert out.getvalue() == "ab\n"


def test_json_is_one_object():
    out = io.StringIO()
    print_json(out, {"name": "é\x1b"})
    assert out.getvalue() == '{\n "name": "\\u00e9\\u001b"\n}\n'
