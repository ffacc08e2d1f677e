"""Whatever is printed fits the terminal, and nothing that it names acts on it; pages can be read anywhere."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from importlib.resources import files

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style

from fakes.bench import sample_result
from golden.test_screens import audit, pairs
from specdec_cli.apps.bench.report import reports
from specdec_cli.apps.bench.screen import print_bench
from specdec_cli.apps.chat.screen import as_markdown, print_chats
from specdec_cli.core.judged import TokenKind
from specdec_cli.measure.divergence import Divergence, Token
from specdec_cli.pairs.pair import Pair, PairRow
from specdec_cli.system.machine import MachineState
from specdec_cli.terminal import export
from specdec_cli.terminal.display import print_columns, print_line, print_question
from specdec_cli.terminal.html import Markup, element, fill, joined, markup
from specdec_cli.terminal.panel.answer import ANSWER_STYLES
from specdec_cli.terminal.panel.rounds import STYLES
from specdec_cli.terminal.summary import columns
from specdec_cli.terminal.terminal import make_console

EVIL = "a\x1b]0;title\x07\x9b2J\x1b[2Jname"
RESULT = sample_result(budget_seconds=120.0)
SETTINGS = replace(RESULT.settings, pair=EVIL, target=f"org/{EVIL}", prompts=EVIL)
MACHINE = replace(RESULT.environment, chip=EVIL, before=MachineState(EVIL, None, EVIL, None))
HOSTILE = replace(RESULT, settings=SETTINGS, environment=MACHINE)
LONG = Pair(f"rather-long-{EVIL}", "mlx-community/" + "t" * 45, "org/" + "d" * 40 + EVIL, source="yours")
ROWS = (
    PairRow(LONG, 4_340_000_000, True, True, True),
    PairRow(replace(LONG, source="packaged", note=EVIL), None, False, False, False, estimated_bytes=41_000_000_000),
)


SCREENS = {
    "a bench": lambda out: print_bench(make_console(out, plain=False), HOSTILE, reports(HOSTILE)),
    "an audit": audit((EVIL, Divergence(0, Token(1, EVIL), Token(2, "\x9b"), 9.0, 0.5), 4), change=-0.5, given=None),
    "pairs": pairs(*ROWS, every=True),
    "a line": lambda out: print_line(out, EVIL),
    "columns": lambda out: print_columns(out, [("chip", "Apple M4", "fast"), ("path", EVIL, "")]),
    "a table": lambda out: make_console(out, plain=True).print(columns([("path", EVIL, "x")])),
    "chats": lambda out: print_chats(out, [("1", "03 Jan 2021", EVIL, "1", EVIL)]),
    "a chat": lambda out: out.write(as_markdown(EVIL, EVIL, [(EVIL, EVIL)])),
    "a question": lambda out: print_question(out, EVIL),
}


@pytest.mark.parametrize("width", [60, 76, 80, 120, 200])
@pytest.mark.parametrize("screen", SCREENS)
def test_no_line_is_wider_than_the_terminal_and_no_control_code_reaches_it(monkeypatch, screen, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    SCREENS[screen](out)
    text = out.getvalue()
    assert "name" in text and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), ascii(text)
    assert max(map(cell_len, text.splitlines())) <= width
    assert screen != "an audit" or "…" not in text  # at 60 columns its figures were "7.6…" and "2.8e…"


LEAST_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
INKS = ("ink", "soft", "green", "red", "grey", "amber", "cyan", "violet")
LIGHT, DARK = (files("specdec_cli.terminal") / "pages" / "palette.css").read_text().split("@media")


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("css", [LIGHT, DARK], ids=["light", "dark"])
def test_every_ink_can_be_read_on_paper_and_on_cards(css):
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", css))
    found = {(ink, on): contrast(colours[ink], colours[on]) for ink in INKS for on in ("paper", "card")}
    assert {pair: ratio for pair, ratio in found.items() if ratio < LEAST_CONTRAST} == {}


def test_black_on_white_has_the_contrast_that_the_standard_says():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("styles", [ANSWER_STYLES, STYLES], ids=["answer", "rounds"])
@pytest.mark.parametrize("background", ["#ffffff", "#000000"])
def test_every_word_of_an_answer_can_be_read_on_white_and_on_black(styles, background):
    """Amber on white had 2.9. A word that is dim would have less than its colour."""
    found = {key: Style.parse(style) for key, style in styles.items()}
    assert all(style.color.number >= 16 and not style.dim for style in found.values())
    ratios = {key: contrast(style.color.get_truecolor().hex, background) for key, style in found.items()}
    assert {key: ratio for key, ratio in ratios.items() if ratio < LEAST_CONTRAST} == {}


@pytest.mark.parametrize("screen", ["a bench that says don't", "an audit with a near-tie"])
def test_no_yellow_is_bold_which_many_terminals_draw_in_a_bright_one_that_white_swallows(monkeypatch, screen):
    out, slow = io.StringIO(), sample_result("M1 Pro", budget_seconds=120.0)
    console = Console(file=out, force_terminal=True, color_system="standard", width=80)
    monkeypatch.setattr("specdec_cli.apps.audit.screen.make_console", lambda *_, **__: console)
    if screen.startswith("an audit"):
        audit(("near", Divergence(2, Token(1, "a"), Token(2, "b"), 0.25, 0.5), 4))(out)
    else:
        print_bench(console, slow, reports(slow))
    assert "\x1b[33m" in out.getvalue() and "\x1b[1;33m" not in out.getvalue()


def test_a_picture_is_black_and_every_fate_has_a_style():
    assert export.THEME.background_color.hex == "#000000" and ANSWER_STYLES.keys() == set(TokenKind)


def test_text_is_escaped_and_markup_is_not():
    assert markup('<a> & "b"') == "&lt;a&gt; &amp; &quot;b&quot;"
    assert markup(Markup("<b>")) == "<b>"


@pytest.mark.parametrize("char", ["\x00", "\x1b", "\x9b", "\u202e", "\ud800", "\ufffe"])
def test_what_no_page_may_hold_becomes_a_replacement_character(char):
    assert markup(f"a{char}b") == "a\ufffdb"


def test_an_element_escapes_its_text_and_its_attributes():
    assert element("p", "<", class_='"x"', aria_label="a&b") == '<p class="&quot;x&quot;" aria-label="a&amp;b">&lt;</p>'
    assert joined([element("i"), element("b")], "\n") == "<i></i>\n<b></b>"


def test_a_value_that_names_another_is_not_filled_again():
    assert "{{legend}}" in fill("serve/chat", {"legend": "{{legend}}"})


def test_a_missing_value_is_an_error():
    with pytest.raises(KeyError):
        fill("bench", {})
