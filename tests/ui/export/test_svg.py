"""A trace as a picture: valid XML, runs inside their rows."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from fakes.ui_script import PREFILL, ROUNDS, START, drafted, finish
from specdec_cli.events import Finish
from specdec_cli.fates import Fate
from specdec_cli.trace import Reply, Trace
from specdec_cli.ui.export.svg import COLUMNS, svg_picture

SCRIPT = Reply(START, PREFILL, ROUNDS, finish())


HOSTILE = "</pre><script>alert(1)</script>&amp;\x1b]0;owned\x07\x00\u202e\ufffe]]>"


def hostile() -> Trace:
    rounds = (drafted(0, [], 0, HOSTILE), drafted(1, [HOSTILE, HOSTILE, HOSTILE], 1, HOSTILE))
    start = replace(START, target=f"org/{HOSTILE}", rule=HOSTILE)
    end = Finish("stop", HOSTILE * 3, (), "", finish().stats)
    return Trace((Reply(start, PREFILL, rounds, end),))


def test_the_picture_is_valid_xml_whatever_the_text_holds():
    picture = svg_picture(hostile())
    root = ElementTree.fromstring(picture)
    assert {element.tag.rpartition("}")[2] for element in root.iter()} == {"svg", "title", "style", "rect", "text"}


def rows_of(picture: str) -> dict[float, list[tuple[float, float]]]:
    """Row -> (x, width) of each run of the text."""
    rows: dict[float, list[tuple[float, float]]] = {}
    for x, y, width in re.findall(r'<text class="\w+" x="([\d.]+)" y="(\d+)" textLength="([\d.]+)"', picture):
        rows.setdefault(float(y), []).append((float(x), float(width)))
    return rows


@pytest.mark.parametrize("piece", ["word ", "日本語", "a" * 30, "x\n", "\t|"])
def test_no_run_of_the_picture_leaves_its_row_or_covers_another(piece):
    """Also for text without a space, for wide characters and tabs."""
    rounds = [drafted(0, [], 0, piece)] + [drafted(n, [piece, "no", "never"], 1, piece) for n in range(1, 40)]
    text = "".join(done.text for done in rounds)
    picture = svg_picture(Trace((Reply(START, PREFILL, tuple(rounds), Finish("stop", text, (), "", finish().stats)),)))
    rows = rows_of(picture)
    assert len(rows) > 10
    for runs in rows.values():
        ends = [x + width for x, width in sorted(runs)]
        assert max(ends) <= 28 + (COLUMNS + 1) * 8.4 + 0.2
        assert all(x >= end - 0.2 for (x, _), end in zip(sorted(runs)[1:], ends, strict=False))


def test_the_picture_names_every_fate_in_its_legend():
    picture = svg_picture(Trace((SCRIPT, SCRIPT)))
    assert all(
        f">{glyph}{fate}</text>" in picture
        for glyph, fate in zip(
            ["", "➜", "★", "", "✗", "·"],
            (Fate.ACCEPTED, Fate.CORRECTION, Fate.BONUS, Fate.PLAIN, Fate.REJECTED, Fate.DISCARDED),
            strict=True,
        )
    )
    assert picture.count(">org/Target-1B with org/Draft</text>") == 2


def test_the_legend_names_who_drafted_and_how_much_of_it_was_accepted():
    rounds = (
        drafted(0, [], 0, "{"),
        drafted(1, ['"name', '": "'], 2, "Ada", "grammar"),
        drafted(2, [" Love", "lace"], 1, "lock", "model"),
        drafted(3, ['", "', "age"], 2, '": ', "grammar"),
    )
    text = "".join(done.text for done in rounds)
    picture = svg_picture(Trace((Reply(START, PREFILL, rounds, Finish("stop", text, (), "", finish().stats)),)))
    words = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("}text")]
    assert words[-4:] == [
        *("grammar", "drafted: what the schema or grammar forces; 4 of 4 accepted"),
        *("model", "drafted: the pair's draft; 1 of 2 accepted"),
    ]


def test_long_settings_are_folded_and_not_cut():
    start = replace(START, constraint="schema", temperature=0.75, device="metal", dtype="bfloat16", rule="block")
    picture = svg_picture(Trace((Reply(start, PREFILL, ROUNDS, finish()),)))
    words = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("}text")]
    assert "metal" in " ".join(words[1:3]) and all(len(line) <= COLUMNS + 8 for line in words[1:4])


def test_where_nobody_drafted_the_legend_names_nobody():
    rounds = (drafted(0, [], 0, "a"), drafted(1, [], 0, "b"))
    picture = svg_picture(Trace((Reply(START, PREFILL, rounds, Finish("stop", "ab", (), "", finish().stats)),)))
    assert "drafted: " not in picture
