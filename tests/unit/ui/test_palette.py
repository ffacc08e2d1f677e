"""Every ink of the pages can be read on paper and on cards, light and dark."""

import re
from importlib.resources import files

import pytest

LEAST_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
INKS = ("ink", "soft", "green", "red", "grey", "amber", "cyan", "violet")
LIGHT, DARK = (files("specdec_cli.ui") / "pages" / "palette.css").read_text().split("@media")


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
