"""The exports of a trace: the text is the reply's, every fate has a mark, and nothing foreign becomes markup."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.ui_script import PREFILL, ROUNDS, START, drafted, finish
from specdec_cli.events import Finish, Round, RoundDone
from specdec_cli.trace import Reply, Trace
from specdec_cli.ui.export.html import html_page
from specdec_cli.ui.export.svg import COLUMNS, svg_picture
from specdec_cli.ui.export.tokens import coloured
from specdec_cli.ui.fates import Fate

SCRIPT = Reply(START, PREFILL, ROUNDS, finish())
HOSTILE = "</pre><script>alert(1)</script>&amp;\x1b]0;owned\x07\x00\u202e\ufffe]]>"


def of_pieces(pieces: list[str], text: str) -> Reply:
    """A reply by plain decoding."""
    rounds = tuple(drafted(index, [], 0, piece) for index, piece in enumerate(pieces))
    return Reply(START, PREFILL, rounds, Finish("stop", text, (), "", finish().stats))


def said(reply: Reply) -> str:
    return "".join(token.text for token in coloured(reply) if token.said)


def test_every_token_has_its_fate_in_the_order_of_its_position():
    shown = [(token.fate.value, token.text, token.said) for token in coloured(SCRIPT)]
    assert shown[:6] == [
        ("plain", "def", True),
        ("accepted", " read", True),
        ("accepted", "_lines", True),
        ("accepted", "(", True),
        ("accepted", "path", True),
        ("bonus", "):", True),
    ]
    assert shown[6:11] == [
        ("accepted", "\n    ", True),
        ("accepted", "with", True),
        ("rejected", "日本", False),
        ("discarded", "\x1b[2J", False),
        ("correction", "\topen", True),
    ]


def test_what_was_said_is_the_text_of_the_reply():
    assert said(SCRIPT) == SCRIPT.finish.text


def test_a_character_of_several_tokens_comes_whole_with_the_last():
    tokens = coloured(of_pieces(["a", "�", "�", "�", "b"], "a日b"))
    assert [token.text for token in tokens] == ["a", "", "", "日", "b"]


def test_a_space_that_the_decoder_drops_is_not_said():
    assert [token.text for token in coloured(of_pieces([" Hello", " world"], "Hello world"))] == ["Hello", " world"]


def test_a_stop_token_is_shown_but_not_said():
    *_, last = coloured(of_pieces(["yes", "<|im_end|>"], "yes"))
    assert (last.text, last.said) == ("<|im_end|>", False)


def test_tokens_behind_a_stop_token_in_the_draft_are_not_said():
    judged = Round(1, "model", (1, 2, 3), 3, 9, (1, 2), 0.0, 0.0)
    done = RoundDone(judged, ("yes", "<end>", "more"), "!", "yes")
    reply = Reply(START, PREFILL, (done,), Finish("stop", "yes", (), "", finish().stats))
    assert [(token.text, token.said) for token in coloured(reply)] == [("yes", True), ("<end>", False), ("more", False)]


@given(st.lists(st.text(st.sampled_from("ab \n�é"), max_size=4), max_size=8), st.text(st.sampled_from("ab \né日")))
def test_whatever_the_pieces_are_the_text_is_the_reply_s_own(pieces, text):
    reply = of_pieces(pieces, text)
    if pieces:
        assert said(reply) == text


def hostile() -> Trace:
    rounds = (drafted(0, [], 0, HOSTILE), drafted(1, [HOSTILE, HOSTILE, HOSTILE], 1, HOSTILE))
    start = replace(START, target=f"org/{HOSTILE}", rule=HOSTILE)
    end = Finish("stop", HOSTILE * 3, (), "", finish().stats)
    return Trace((Reply(start, PREFILL, rounds, end),))


def test_foreign_text_is_never_markup_in_the_page():
    page = html_page(hostile())
    assert "<script" not in page and "&lt;script&gt;" in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ufffe]", page)


def test_the_picture_is_valid_xml_whatever_the_text_holds():
    picture = svg_picture(hostile())
    root = ElementTree.fromstring(picture)
    assert {element.tag.rpartition("}")[2] for element in root.iter()} == {"svg", "title", "style", "rect", "text"}


def test_the_page_marks_every_fate_without_colour_and_needs_no_network():
    page = html_page(Trace((SCRIPT,)))
    assert '<del class="rejected" title="round 2: rejected">日本</del>' in page
    assert '<del class="discarded" title="round 2: discarded">␛[2J</del>' in page
    assert '<ins class="bonus" title="round 1: bonus">):</ins>' in page
    for sign in ("✗", "·", "➜", "★"):
        assert f'content: "{sign}"' in page
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"(src|href)=|url\(|@import|https?:", page)


def test_the_page_s_text_without_what_was_not_said_is_the_reply():
    page = html_page(Trace((SCRIPT,)))
    (body,) = re.findall(r'<div class="text">(.*?)</div>', page, re.S)
    kept = re.sub(r'<(\w+) class="(?:rejected|discarded|\w+ unsaid)".*?</\1>', "", body, flags=re.S)
    assert re.sub(r"<[^>]*>", "", kept) == SCRIPT.finish.text


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
