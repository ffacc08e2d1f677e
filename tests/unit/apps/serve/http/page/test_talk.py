"""A conversation in a real Chromium: typed, answered, stopped, gone on with, and by which pair."""

import threading
from collections import Counter

import pytest

from fakes.browser import IN_BROWSER, SAID, SHIFT, answer_of, asked, asking, greeted, slowly
from fakes.desk import ScriptedDesk, spoken_desk
from fakes.server import until
from fakes.ui_script import ROUNDS, drafted
from specdec_cli.apps.serve.model import Switch
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.core.judged import tokens_of
from specdec_cli.core.request import Request
from specdec_cli.pairs.pair import Pair, PairSpec

pytestmark = IN_BROWSER
QUESTION = "Open a file."  # its answer ends
UNSAID = ("rejected", "discarded")


def replied(pair, text):
    """(rounds, finish) as `specdec run` has them."""
    prompt = pair.message_tokens([{"role": "user", "content": text}])
    *events, finish = pair.session().reply(prompt, Request(k=4, max_tokens=400))
    return [event for event in events if event.event == "round"], finish


def test_a_question_typed_by_keyboard_alone_gets_the_answer_of_specdec_run(tab, start, pair, model):
    records = []
    url = start(Scheduler(lambda name: pair, SchedulerOptions(idle_seconds=None)), model, records=records)
    asked(greeted(tab, url, "demo"), QUESTION)
    rounds, finish = replied(pair, QUESTION)
    assert answer_of(tab) == finish.text != ""
    told = [token.kind.value for done in rounds for token in tokens_of(done) if token.said or token.kind in UNSAID]
    shown = tab.evaluate("[...document.querySelectorAll('.answer > .text > *')].map((one) => one.classList[0])")
    assert (Counter(told) - Counter(shown)).total() == 1  # the stop token is not text
    figures = dict(zip(tab.texts(".facts dt"), tab.texts(".facts dd"), strict=True))
    stats = finish.stats
    assert figures["of drafted accepted"] == f"{100 * stats['draft_acceptance_rate']:.0f} %"
    assert figures["tokens per pass"] == f"{stats['mean_acceptance_length']:.1f}"
    assert figures[f"tokens in {stats['target_passes']} passes"] == str(stats["emitted_tokens"])
    read = pair.message_tokens([{"role": "user", "content": QUESTION}])
    assert figures["prompt tokens read"] == str(len(read))
    until(lambda: records)
    # Rounded to a whole number from ten on.
    assert float(figures["tok/s"]) == pytest.approx(records[0].facts["tokens_per_second"], rel=0.06)
    assert tab.complaints == [] and all(address.startswith(url) for address in tab.requests)


def test_the_next_question_goes_on_and_a_new_chat_does_not(tab, start):
    desk = ScriptedDesk(["one", "two", "three"])
    greeted(tab, start(desk))
    asked(tab, "First?")
    asked(tab, "Second?")
    tab.evaluate("document.getElementById('fresh').click()")
    assert tab.focused == "question" and tab.count("article") == 0 and tab.count("#welcome") == 1
    asked(tab, "Third?")
    first, second, third = [len(ticket.job.prompt) for ticket in desk.jobs]
    assert second > first + len("one") and third == first
    assert tab.texts(".question p") == ["Third?"] and answer_of(tab) == "three"


def test_the_whole_page_is_worked_by_keys(tab, start):
    greeted(tab, start(spoken_desk(ROUNDS)))
    assert tab.focused == "question"
    tab.type("one")
    tab.press("Enter", SHIFT)
    tab.type("two")
    assert tab.evaluate("[document.getElementById('question').value, document.getElementById('question').rows]") == [
        "one\ntwo",
        2,
    ]
    for told in ("isComposing: true", "keyCode: 229"):  # Safari has only the number: it sent what was half written
        tab.evaluate(
            "document.getElementById('question').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', "
            f"cancelable: true, {told}}}))"
        )
    assert tab.count("article") == 0
    reached = set()
    for _ in range(9):
        tab.press("Tab")
        reached.add(tab.focused)
        assert tab.focused == "BODY" or tab.styles(":focus", "outlineStyle") == ["solid"]
    assert {"question", "send", "SUMMARY", "fresh", "log", "example", "unsaid"} <= reached


def test_what_was_rejected_is_shown_on_demand_and_is_no_part_of_the_text(tab, start):
    asked(greeted(tab, start(spoken_desk(ROUNDS))), "Hi.")
    whole = "".join(done.text for done in ROUNDS)
    assert answer_of(tab) == whole and set(tab.styles("del", "display")) == {"none"}
    while tab.focused != "unsaid":
        tab.press("Tab")
    tab.press(" ")
    lost = [token for done in ROUNDS for token in tokens_of(done) if not token.said]
    assert tab.evaluate("[...document.querySelectorAll('.answer del')].map((one) => one.className)") == [
        token.kind.value for token in lost
    ]
    assert set(tab.styles("del", "textDecorationLine")) == {"line-through"}
    assert set(tab.styles("del", "display")) == {"inline"} and answer_of(tab) == whole
    assert tab.styles(f"{SAID}.accepted", "textDecorationLine")[0] == "underline"


def test_escape_stops_the_answer_on_the_server_within_a_round(tab, start):
    desk = ScriptedDesk(["word " * 100_000], steps=str.split, between=slowly)
    asking(greeted(tab, start(desk)), "Hi.")
    tab.press("Escape")
    tab.until("document.querySelector('.note')")
    until(lambda: desk.running is None)
    assert desk.jobs[0].cancelled and desk.passes < 5000
    assert tab.texts(".note") == ["Stopped: the text above is partial."] and tab.focused == "question"
    assert tab.styles("#send", "display") != ["none"] and tab.styles("#stop", "display") == ["none"]


def test_thinking_is_folded_and_shows_its_tokens_when_opened(tab, start, thinking):
    rounds = (drafted(0, [], 0, "Let"), drafted(1, [" me"], 1, "\n</think>\n\nYes"))
    asked(greeted(tab, start(spoken_desk(rounds), thinking)), "Hi.")
    assert answer_of(tab) == "Yes" and "Let me" not in tab.seen(".answer")[0]
    tab.evaluate("document.querySelector('.thinking summary').focus()")
    tab.press("Enter")
    tab.until("document.querySelector('.thinking').open")
    assert "Let me" in tab.seen(".answer")[0]


def test_prose_looks_as_its_markdown_says_in_the_colours_of_its_tokens(tab, start):
    rounds = (
        drafted(0, [], 0, "# To"),
        drafted(1, ["p\n- *", "*bo", "ld*"], 3, "* `c*"),
        drafted(2, ["d*` *e", "m* a_b_c"], 2, " 2*3*4\n| a | *b* |\nend **open"),
    )
    asked(greeted(tab, start(spoken_desk(rounds))), "Hi.")
    assert answer_of(tab) == "".join(done.text for done in rounds)
    looks = {
        "heading": "Top\n",
        "bullet": "-",
        "strong": "bold",
        "verbatim": "c*d*",
        "em": "em",
        "cells": "| a | *b* |\n",
    }
    assert {name: "".join(tab.texts(f"{SAID}.{name}")) for name in looks} == looks
    assert set(tab.styles(f"{SAID}.mark", "display")) == {"none"}
    assert tab.seen(".answer > .text")[0].split("\n")[3] == "end **open"  # what is not closed is text
    assert tab.styles(f"{SAID}.strong.accepted", "fontWeight")[0] == "700"


def test_a_chat_is_kept_in_the_browser_only_if_its_reader_says_so(tab, start):
    desk = ScriptedDesk(["one", "two", "three"])
    url = start(desk)
    asked(greeted(tab, url), "First?")
    greeted(tab, url)
    assert tab.count("article") == 0
    tab.evaluate("document.getElementById('keep').click()")
    asked(tab, "Second?")
    greeted(tab, url)
    assert (tab.texts(".question p"), answer_of(tab)) == (["Second?"], "two")
    asked(tab, "Third?")
    first, second, third = [len(ticket.job.prompt) for ticket in desk.jobs]
    assert third > second + len("two") > first
    tab.evaluate("document.getElementById('fresh').click()")
    tab.evaluate("document.getElementById('keep').click()")
    greeted(tab, url)
    assert tab.count("article") == 0 and tab.evaluate("localStorage.length") == 0


def test_a_whole_answer_is_asked_for_again_in_its_place(tab, start):
    desk = ScriptedDesk(["zero", "one", "two"])
    asked(asked(greeted(tab, start(desk)), "First?"), "Second?")
    assert tab.evaluate("[...document.querySelectorAll('.retry')].map((one) => one.offsetParent !== null)") == [0, 1]
    tab.evaluate("document.querySelector('.answer:last-child .retry').click()")
    tab.until(f"[...document.querySelectorAll('{SAID}')].map((one) => one.textContent).join('') === 'two'")
    assert tab.texts(".question p") == ["First?", "Second?"]
    assert desk.jobs[2].job.prompt == desk.jobs[1].job.prompt


@pytest.fixture
def switch(tool_folders):
    """Another pair that is here, and one whose files are gone."""
    pairs = {"other": Pair("other", str(tool_folders[0]), None), "gone": Pair("gone", "/no/such/folder", None)}
    return Switch(lambda: {name: PairSpec(pair) for name, pair in pairs.items()}, lambda spec: Request(k=0), 2)


def choose(tab, letter):
    """By keyboard alone, from the field."""
    for _ in range(12):
        if tab.focused == "model":
            break
        tab.press("Tab")
    assert tab.focused == "model" and tab.styles(":focus", "outlineStyle") == ["solid"]
    tab.press(letter)
    tab.evaluate("document.getElementById('question').focus()")


def test_the_chosen_pair_is_asked_and_says_who_it_is(tab, start, switch):
    desk = ScriptedDesk(["one", "two"])
    greeted(tab, start(desk, switch=switch))
    assert tab.texts("#model option") == ["tool", "other", "gone"] and tab.seen("#choice")[0].startswith("Model")
    asked(tab, "First?")
    choose(tab, "o")
    assert tab.evaluate("document.title") == "other · specdec" and "other" not in tab.seen("#models")[0]
    asked(tab, "Second?")
    assert [ticket.job.pair for ticket in desk.jobs] == ["", "other"]
    assert tab.texts(".answer h2") == ["tool", "other"] and answer_of(tab) == "two" and tab.complaints == []


def test_the_page_says_that_a_pair_is_loaded_until_the_first_event(tab, start, switch):
    go, desk = threading.Event(), ScriptedDesk(["late"])
    say = desk.events
    desk.events = lambda handle: (go.wait(30), say(handle))[1]
    greeted(tab, start(desk, switch=switch))
    choose(tab, "o")
    tab.type("Hi.")
    tab.press("Enter")
    tab.until("document.querySelector('.loading')")
    assert tab.seen(".answer .loading") == ["loading other …"] and tab.texts("[role=status]") == ["loading other …"]
    assert tab.evaluate("getComputedStyle(document.querySelector('.answer > .text'), '::before').content") == "none"
    go.set()
    tab.until("!document.querySelector('.writing')")
    assert tab.count(".loading") == 0 and answer_of(tab) == "late"
