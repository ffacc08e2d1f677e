"""Fenced code in an answer: apart from its words while it grows, copied exactly, and in the colours of its tokens."""

import json
import random
import threading

import pytest

from fakes.desk import ScriptedDesk
from fakes.page import IN_BROWSER, SAID, answer_of, asked, asking, greeted
from fakes.spoken import SpokenDesk
from fakes.ui_script import drafted

pytestmark = IN_BROWSER
# Tokens that cross the fences' lines on both sides, and lose some guesses within the code.
SPOKEN = (
    drafted(0, [], 0, "Here"),
    drafted(1, [":\n\n", "``", "`"], 3, "python\ndef"),
    drafted(2, [" f", "(x", "):", " pass"], 3, "\n    return"),
    drafted(3, [" x", "\n``", "`"], 3, "\nand `f`"),
    drafted(4, [" is", "\n"], 1, "."),
)
WHOLE = "Here:\n\n```python\ndef f(x):\n    return x\n```\nand `f` is."
CODE = "def f(x):\n    return x"
LONG = "```\n" + "wide " * 80 + "\n```\n"
ODD = (
    "a\n```py\nb\n```\nc",
    "  ~~~\n  x\n    y\n  ```\n  ~~~\nz\n",
    "````md\n```\nin\n```\n````\n```not a `fence`\n```\nopen\n\n``",
    "``` ```\n\n```\n```\n```\n    ```\n```x\n```  \n",
    "1. so\n   ```sh\n   ls\n   ```\n```",
)
# (kind of line, its text) of every line of a text that comes in such pieces.
KINDS = """(async () => {
  const { Lines } = await import("/page/fences.js");
  return %s.map((pieces) => {
    const lines = new Lines(), found = [["", ""]];
    for (const piece of pieces) for (const { text, kind } of lines.read(piece)) {
      found.at(-1)[0] = kind;
      found.at(-1)[1] += text;
      if (text.endsWith("\\n")) found.push(["", ""]);
    }
    return found;
  });
})()"""
READ = "Object.getPrototypeOf(navigator).__lookupGetter__('clipboard').call(navigator).readText()"
SELECTED = """(() => {
  getSelection().selectAllChildren(document.querySelector(".answer:last-child > .text"));
  return getSelection().toString();
})()"""


@pytest.fixture
def clipboard(tab):
    """Reads the clipboard, by way of a page that may."""

    def read():
        tab.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        return tab.evaluate(READ)

    return read


def kinds(tab, *pieces):
    return tab.evaluate(KINDS % json.dumps(pieces))


def cut(text, seed):
    """The text in pieces of up to four letters."""
    draw, pieces = random.Random(seed), []
    while text:
        size = draw.randint(1, 4)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def test_code_stands_apart_and_its_tokens_keep_their_colours(tab, start):
    asked(greeted(tab, start(SpokenDesk(SPOKEN))), "Hi.")
    said = ".source > span"
    assert "".join(tab.texts(said)) == f"{CODE}\n" and answer_of(tab) == WHOLE
    assert (
        {"accepted", "correction", "bonus"} >= {one.split()[0] for one in fates_of(tab, said)} >= {"accepted", "bonus"}
    )
    assert tab.texts(".source > del") == [" pass"]
    assert "".join(tab.texts(".code > :first-child + .fence span")) == "```python\n"
    ground, beside = tab.styles(".code", "backgroundColor") + tab.styles("body", "backgroundColor")
    assert ground != beside and "mono" in tab.styles(".source", "fontFamily")[0]
    colours = dict(zip(fates_of(tab, said), tab.styles(said, "color"), strict=True))
    prose = dict(zip(fates_of(tab, f"{SAID}"), tab.styles(SAID, "color"), strict=True))
    assert colours["accepted"] == prose["accepted"] != colours["bonus"]


def fates_of(tab, selector):
    return tab.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.classList[0])")


def test_a_token_that_crosses_a_fence_is_one_token_in_two_places(tab, start):
    asked(greeted(tab, start(SpokenDesk(SPOKEN))), "Hi.")
    tab.evaluate("document.getElementById('unsaid').click()")
    stars = "[...document.querySelectorAll('.answer .bonus')].filter((one) => getComputedStyle(one, '::before').content"
    bonuses = sum(done.round.accepted == len(done.pieces) > 0 for done in SPOKEN)
    assert tab.evaluate(f"{stars}.includes('★')).length") == bonuses
    assert tab.count(".answer .rest") > 0


def test_the_whole_answer_is_selected_as_it_was_said(tab, start, clipboard):
    asked(greeted(tab, start(SpokenDesk(SPOKEN))), "Hi.")
    assert tab.evaluate(SELECTED) == WHOLE
    assert tab.evaluate("document.execCommand('copy')")
    assert clipboard() == WHOLE
    for text in ODD:
        desk = ScriptedDesk([text], steps=lambda text: cut(text, 1))
        asked(greeted(tab, start(desk)), "Hi.")
        assert answer_of(tab) == text
        assert tab.evaluate(SELECTED) == text.removesuffix("\n")  # as browsers select any text


@pytest.mark.parametrize("secure", [True, False])
def test_the_button_copies_exactly_the_code_by_keyboard_alone(tab, start, clipboard, secure):
    """Browsers have no clipboard of their own for a page that comes from another machine without TLS."""
    greeted(tab, start(SpokenDesk(SPOKEN)))
    if not secure:
        tab.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    asked(tab, "Hi.")
    tab.evaluate("document.getElementById('log').focus()")
    for _ in range(9):
        if tab.seen(":focus") == ["Copy"]:
            break
        tab.press("Tab")
    assert tab.seen(":focus") == ["Copy"] and tab.styles(":focus", "outlineStyle") == ["solid"]
    tab.press("Enter")
    tab.until("document.activeElement.textContent === 'Copied'")
    assert clipboard() == CODE
    tab.until("document.querySelector('.code button').textContent === 'Copy'")
    assert tab.complaints == []


def test_indented_code_is_copied_without_the_blanks_of_its_fence(tab, start, clipboard):
    asked(greeted(tab, start(ScriptedDesk(["1. so\n   ```sh\n   if x\n     ls\n\n fi\n   ```\n"]))), "Hi.")
    tab.evaluate("document.querySelector('.code button').click()")
    assert clipboard() == "if x\n  ls\n\nfi"


def test_an_unclosed_fence_is_an_open_block_while_it_streams(tab, start, clipboard):
    go = threading.Semaphore(0)
    pieces = ["So:\n", "``", "`p", "y\n", "a = 1", "\n", "``", "`", "\nend"]
    desk = ScriptedDesk(["".join(pieces)], steps=lambda text: pieces, between=lambda ticket: go.acquire())
    greeted(tab, start(desk))
    block = "[...document.querySelectorAll('.code > *')].map((one) => one.textContent)"
    cursor = "[...document.querySelectorAll('.text, .text *')].filter((one) => getComputedStyle(one, '::after').content"
    shown = f"{cursor}.includes('▍')).map((one) => one.classList[0])"
    try:
        go.release(5)
        asking(tab, "Hi.", tokens=4)
        assert tab.evaluate(block) == ["Copy", "```py\n", "a = 1", ""] and tab.evaluate(shown) == ["source"]
        tab.evaluate("document.querySelector('.code button').click()")
        assert clipboard() == "a = 1"
        go.release(3)
        tab.until(f"document.querySelectorAll('{SAID}').length === 8")
        assert tab.evaluate(block)[1:] == ["```py\n", "a = 1\n", "```"] and tab.evaluate(shown) == ["fence"]
    finally:
        go.release(100)
    tab.until("!document.querySelector('.writing')")
    assert tab.evaluate(block)[-1] == "```\n" and tab.evaluate(shown) == [] and answer_of(tab) == "".join(pieces)


def test_only_what_is_a_fence_makes_a_block(tab, start):
    greeted(tab, start(ScriptedDesk([])))
    told = kinds(tab, *([text] for text in ODD))
    short = ["".join(kind[:2] + " " for kind, text in lines if text).strip() for lines in told]
    assert short == [
        "te op co cl te",
        "op co co co cl te",
        "op co co co cl te op co co co",
        "te te op cl op co co cl",
        "te op co cl op",
    ]


def test_how_the_text_is_cut_into_tokens_changes_nothing(tab, start):
    greeted(tab, start(ScriptedDesk([])))
    for text in ODD:
        once, *others = kinds(tab, [text], *(cut(text, seed) for seed in range(50)))
        assert "".join(line for _, line in once) == text and all(other == once for other in others)


@pytest.mark.parametrize("width", [360, 1280])
def test_a_wide_line_of_code_scrolls_in_its_block_and_the_page_does_not(tab, start, width):
    tab.look(width, 740)
    asked(greeted(tab, start(ScriptedDesk([LONG]))), "Hi.")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("document.getElementById('log').scrollWidth") <= width
    wide, seen = tab.evaluate(
        "(({ scrollWidth, clientWidth }) => [scrollWidth, clientWidth])(document.querySelector('.source'))"
    )
    assert wide > seen
    tab.evaluate("document.querySelector('.source').focus()")
    tab.press("ArrowRight")
    tab.until("document.querySelector('.source').scrollLeft > 0")
