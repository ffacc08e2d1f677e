"""A trace as a picture: valid XML, runs inside their rows."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from fakes.ui_script import PREFILL, ROUNDS, START, drafted, finish
from specdec_cli.events import Finish
from specdec_cli.trace import Reply, Trace
from specdec_cli.ui.export.svg import COLUMNS, svg_picture
from specdec_cli.ui.fates import Fate

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
