"""A trace as a page: no foreign markup, fates without colour, text that can be copied."""

from __future__ import annotations

import re
from dataclasses import replace

from fakes.ui_script import PREFILL, ROUNDS, START, drafted, finish, folded
from specdec_cli.events import Finish
from specdec_cli.trace import Reply, Trace
from specdec_cli.ui.export.html import html_page

SCRIPT = Reply(START, PREFILL, ROUNDS, finish())


HOSTILE = "</pre><script>alert(1)</script>&amp;\x1b]0;owned\x07\x00\u202e\ufffe]]>"


def hostile() -> Trace:
    rounds = (drafted(0, [], 0, HOSTILE), drafted(1, [HOSTILE, HOSTILE, HOSTILE], 1, HOSTILE))
    start = replace(START, target=f"org/{HOSTILE}", rule=HOSTILE)
    end = Finish("stop", HOSTILE * 3, (), "", finish().stats)
    return Trace((Reply(start, PREFILL, rounds, end),))


def test_foreign_text_is_never_markup_in_the_page():
    page = html_page(hostile())
    assert "<script" not in page and "&lt;script&gt;" in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ufffe]", page)


def test_the_page_marks_every_fate_without_colour_and_needs_no_network():
    page = html_page(Trace((SCRIPT,)))
    assert '<del class="rejected" title="round 3: rejected, drafted by model">日本</del>' in page
    assert '<del class="discarded" title="round 3: discarded, drafted by model">␛[2J</del>' in page
    assert '<ins class="bonus" title="round 2: bonus">):</ins>' in page
    for sign in ("✗", "·", "➜", "★"):
        assert f'content: "{sign}"' in page
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"(src|href)=|url\(|@import|https?:", page)


def test_the_page_s_text_without_what_was_not_said_is_the_reply():
    page = html_page(Trace((SCRIPT,)))
    (body,) = re.findall(r'<div class="text">(.*?)</div>', page, re.S)
    kept = re.sub(r'<(\w+) class="(?:rejected|discarded|\w+ unsaid)".*?</\1>', "", body, flags=re.S)
    assert re.sub(r"<[^>]*>", "", kept) == SCRIPT.finish.text


def test_the_page_says_who_drafted_a_token():
    rounds = (
        drafted(0, [], 0, "{"),
        drafted(1, ['"', "name"], 2, '":', "grammar"),
        drafted(2, [" 1"], 1, "}", "ngram"),
    )
    start = replace(START, constraint="schema")
    end = Finish("stop", '{"name": 1}', (), "", folded(rounds, start).stats.to_dict(), complete=True)
    page = html_page(Trace((Reply(start, PREFILL, rounds, end),)))
    assert 'title="round 2: accepted, drafted by grammar"' in page
    assert 'title="round 3: accepted, drafted by ngram"' in page
    assert 'title="round 2: bonus"' in page and "held to a schema, which drafts what it forces" in page
