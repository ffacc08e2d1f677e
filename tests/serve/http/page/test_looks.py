"""Whether everything can be seen: light and dark, narrow and wide, in a real Chromium."""

import pytest

from fakes.page import IN_BROWSER, asked, greeted
from fakes.spoken import SpokenDesk
from fakes.ui_script import ROUNDS, drafted

pytestmark = IN_BROWSER
CODE = (
    drafted(5, ["\n```", "py\n", "if"], 3, " x:"),
    drafted(6, ["\n    ", "go", "("], 1, " " + "wide()" * 60),
    drafted(7, ["\n", "```"], 2, "\n."),
)
LEAST_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
# [[ratio, what], …] of every text that is shown, on what its ancestors paint.
CONTRASTS = """(() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((part, i) => part * a + below[i] * (1 - a));
  const linear = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = (rgb) => rgb.reduce((sum, part, i) => sum + linear(part / 255) * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => node
    ? over(parse(getComputedStyle(node).backgroundColor), ground(node.parentElement)) : [255, 255, 255];
  const ratio = (node) => {
    const below = ground(node), lights = [light(below), light(over(parse(getComputedStyle(node).color), below))];
    return (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05);
  };
  const speaks = (node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
  return [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility() && speaks(node))
    .map((node) => [ratio(node), node.className || node.id || node.tagName]);
})()"""
BEYOND = """[...document.querySelectorAll("body *:not(.source > *)")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
  .map((one) => one.id || one.className)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_everything_fits_and_can_be_read(tab, start, width, scheme):
    tab.look(width, 740, scheme)
    greeted(tab, start(SpokenDesk((*ROUNDS, *CODE))))
    contrasts = tab.evaluate(CONTRASTS)
    asked(tab, "A word that cannot be broken: " + "x" * 90)
    tab.evaluate("document.getElementById('unsaid').click(); document.getElementById('settings').open = true")
    contrasts += tab.evaluate(CONTRASTS)
    assert {"accepted", "correction", "bonus", "rejected", "discarded"} <= {what for _, what in contrasts}
    assert [found for found in contrasts if found[0] < LEAST_CONTRAST] == []
    assert tab.evaluate(BEYOND) == [] and tab.evaluate("document.documentElement.scrollWidth") <= width
    paper = tab.styles("body", "backgroundColor")[0]
    assert paper == {"light": "rgb(251, 251, 249)", "dark": "rgb(20, 23, 26)"}[scheme]
    assert tab.evaluate("document.getElementById('log').clientHeight") > 150
