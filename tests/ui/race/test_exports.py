"""The picture and the page of a race: one file, harmless, and true to what was recorded."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from fakes.racing import scripted
from specdec_cli.errors import UsageError
from specdec_cli.race.events import RaceStart
from specdec_cli.ui.race.html import race_page
from specdec_cli.ui.race.svg import race_picture

FOUL = ("<script>alert(1)</script>", "\x1b[2J&amp;", "[link=x]\u202e\ufffe", "]]>日本\n\t")
FOUL_START = RaceStart("<b>demo", "<img src=x onerror=alert(1)>\x1b[2J", False, 'M9 "</style>', 0.1)


class Page(HTMLParser):
    """Open elements must be closed in order; what is inside them is counted."""

    VOID = frozenset({"meta", "input", "br", "img", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes, self.text = [], [], [], {}

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "pre" in self.open:
            self.text[self.seen.count("pre")] = self.text.get(self.seen.count("pre"), "") + data


def parsed(page):
    found = Page()
    found.feed(page)
    found.close()
    assert not found.open
    return found


@pytest.mark.parametrize("draw", [race_page, race_picture])
@pytest.mark.parametrize("start", [FOUL_START, RaceStart("demo", "def f(", True, "M9", 0.1)])
def test_nothing_is_loaded_and_nothing_foreign_acts(draw, start):
    written = draw(scripted(FOUL, start=start))
    addresses = re.findall(r"[a-z]+://[^\s\"'<)]+", written)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"\b(src|href|onerror)\s*=\s*[\"']|@import|url\((?!#)", written.replace("src=x onerror=alert", "")
    )
    assert "<script>alert" not in written and "<img" not in written
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ufffe]", written)


def test_the_page_is_well_formed_and_holds_both_texts():
    page = parsed(race_page(scripted(("def", " f", "()", ":\n"))))
    assert page.seen.count("script") == page.seen.count("main") == 1
    assert page.text[1] == page.text[2] == "def" + "def f():\n" * 8
    assert len([value for name, value in page.attributes if name == "data-at"]) == 32 + 8


def test_the_page_forbids_itself_every_request_and_stands_still_for_who_wants_that():
    page = race_page(scripted())
    assert "default-src 'none'" in page and "prefers-reduced-motion" in page and "prefers-color-scheme: dark" in page


def test_the_page_of_256_tokens_stays_small():
    assert len(race_page(scripted(rounds=64))) < 60_000


def test_the_picture_is_xml_with_the_recorded_times_and_both_palettes():
    picture = race_picture(scripted())
    root = ElementTree.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "animation-delay:0.920s" in picture  # 0.6 s before the start, then 8 rounds of 40 ms
    assert "var(" not in picture and "prefers-color-scheme: dark" in picture and "prefers-reduced-motion" in picture


def test_a_long_text_moves_up_and_its_last_row_is_in_the_window():
    picture = race_picture(scripted(("a\n", "b\n", "c\n", "d\n"), rounds=10))
    assert "translateY(-" in picture and 'transform="translate(0 -' in picture


@pytest.mark.parametrize("draw", [race_page, race_picture])
def test_a_race_that_broke_off_is_refused(draw):
    with pytest.raises(UsageError, match="broke off"):
        draw(scripted()[:-1])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_page_s_script_is_valid(tmp_path):
    script = tmp_path / "race.js"
    script.write_text(re.search(r"<script>(.*)</script>", race_page(scripted()), re.S)[1])
    subprocess.run(["node", "--check", str(script)], check=True, timeout=60)
