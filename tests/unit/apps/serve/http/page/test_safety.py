"""What cannot happen to a reader of the page, in a real Chromium; and how a refusal is told."""

import pytest

from fakes.browser import IN_BROWSER, answer_of, asked, asking, greeted, slowly
from fakes.desk import ScriptedDesk
from fakes.server import serving
from specdec_cli.apps.serve.job import Busy, TooLong

pytestmark = IN_BROWSER
TAKE = "document.title='taken'"
HOSTILE = f'<img src=x onerror="{TAKE}"></script><script>{TAKE}</script>&lt;b&gt;{{{{x}}}}`${{{TAKE}}}'


def test_markup_in_an_answer_a_question_and_an_error_stays_text(tab, start):
    desk = ScriptedDesk([HOSTILE])
    greeted(tab, start(desk))
    asked(tab, "<u>Hi</u>")
    assert answer_of(tab) == HOSTILE and tab.texts(".question p") == ["<u>Hi</u>"]
    desk.refusal = TooLong(HOSTILE, "shorten")
    asked(tab, "Hi.")
    assert HOSTILE in tab.texts(".error")[0] and tab.count("article :is(img, script, u)") == 0
    assert tab.evaluate("document.title").startswith("tool") and tab.complaints == []


@pytest.mark.parametrize(
    "deed",
    [
        "fetch('http://127.0.0.1:9/').catch(() => 0)",
        "document.body.innerHTML = '<img src=x>'",
        "document.body.append(Object.assign(new Image(), { src: 'http://127.0.0.1:9/x.png' }))",
        f"document.body.setAttribute('onclick', {TAKE!r}); document.body.click()",
        "document.body.append(Object.assign(document.createElement('iframe'), { src: '/health' }))",
    ],
    ids=["fetch", "markup", "image", "handler", "frame"],
)
def test_the_policy_holds_against_the_page_itself(tab, start, deed):
    """The negative control: what the page never does is forbidden, and a test would hear of it."""
    greeted(tab, start(ScriptedDesk([])))
    assert tab.complaints == []
    tab.evaluate(f"setTimeout(() => {{ {deed} }})")
    tab.until("new Promise((done) => setTimeout(() => done(true), 100))")
    assert tab.complaints and tab.evaluate("document.title").startswith("tool")


def test_a_server_with_a_key_asks_for_it_and_the_tab_alone_keeps_it(tab, start):
    url = start(ScriptedDesk(["a"]), host="0.0.0.0", key="secret")
    tab.open(url)
    tab.until("document.activeElement.id === 'key'")
    tab.type("wrong")
    tab.press("Enter")
    tab.until("document.getElementById('refused').textContent === 'That is not its key.'")
    tab.type("secret")
    tab.press("Enter")
    tab.until("document.title.startsWith('tool') && document.activeElement.id === 'question'")
    asked(tab, "Hi.")
    assert answer_of(tab) == "a" and tab.styles("#login", "display") == ["none"]
    kept = tab.evaluate("[Object.values(sessionStorage), Object.keys(localStorage), document.cookie]")
    assert kept == [["secret"], [], ""] and not any("secret" in address for address in tab.requests)


@pytest.mark.parametrize(
    "refusal, message, hint",
    [
        (TooLong("9 tokens > 4 maximum", "x"), "9 tokens > 4 maximum", "shorten the question, or start a new chat"),
        (Busy("8 requests wait already", "later", 7), "8 requests wait already", "send it again in 7 s"),
        (
            RuntimeError("/secret"),
            "the answer failed on the server; its log says why",
            "the server's terminal says more",
        ),
    ],
    ids=["long", "busy", "broken"],
)
def test_a_refusal_is_two_lines_and_the_question_can_be_sent_again(tab, start, refusal, message, hint):
    desk = ScriptedDesk(["a"])
    desk.refusal = refusal
    asked(greeted(tab, start(desk)), "Hi.")
    assert tab.seen(".error") == [f"error: {message}\nhint: {hint}"]
    desk.refusal = None
    asked(tab, "")
    assert answer_of(tab) == "a" and tab.texts(".question p") == ["Hi.", "Hi."]


def test_a_server_that_ends_says_so_in_two_lines(tab, tooled):
    desk = ScriptedDesk(["word " * 100_000], steps=str.split, between=slowly)
    with serving(tooled, desk) as (url, _):
        asking(greeted(tab, url), "Hi.")
    desk.close()
    tab.until("document.querySelector('.error')")
    assert tab.seen(".error")[0].startswith("error: the server is shutting down\nhint: ")
    assert answer_of(tab).startswith("wordword")
    asked(tab, "Again.")
    assert tab.seen(".error")[1].startswith("error: the server does not answer\nhint: is it still running?")
