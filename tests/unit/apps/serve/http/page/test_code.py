"""Fenced code in an answer: apart from its words while it grows, copied exactly, and in the colours of its tokens."""

import json
import threading

import pytest

from fakes.browser import IN_BROWSER, SAID, answer_of, asked, asking, greeted
from fakes.desk import ScriptedDesk, spoken_desk
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


@pytest.fixture
def clipboard(tab):
    """Reads the clipboard, by way of a page that may."""

    def read():
        tab.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        return tab.evaluate(READ)

    return read


def kinds(tab, *pieces):
    return tab.evaluate(KINDS % json.dumps(pieces))


def test_code_stands_apart_and_its_tokens_keep_their_colours(tab, start):
    asked(greeted(tab, start(spoken_desk(SPOKEN))), "Hi.")
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


@pytest.mark.parametrize("secure", [True, False])
def test_the_button_copies_exactly_the_code_by_keyboard_alone(tab, start, clipboard, secure):
    """Browsers have no clipboard of their own for a page that comes from another machine without TLS."""
    greeted(tab, start(spoken_desk(SPOKEN)))
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


def test_an_unclosed_fence_is_an_open_block_while_it_streams(tab, start, clipboard):
    go = threading.Semaphore(0)
    pieces = ["So:\n", "``", "`p", "y\n", "a = 1", "\n", "``", "`", "\nend"]
    desk = ScriptedDesk(["".join(pieces)], steps=lambda text: pieces, between=lambda handle: go.acquire())
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
