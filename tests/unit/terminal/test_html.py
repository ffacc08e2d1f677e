"""Pages from templates: what is escaped, what is not, and what a picture needs."""

import pytest

from specdec_cli.terminal.html import Markup, element, fill, joined, markup


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
