"""Which pair answers: a chooser where the server may load others, and words while one of them is loaded."""

import threading

import pytest

from fakes.desk import ScriptedDesk
from fakes.page import IN_BROWSER, answer_of, asked, greeted
from specdec_cli.apps.serve.model import Switch
from specdec_cli.core.request import Request
from specdec_cli.pairs.pair import Pair, PairSpec

pytestmark = IN_BROWSER


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
    go = threading.Event()

    class Loading(ScriptedDesk):
        def events(self, ticket):
            go.wait(30)
            yield from super().events(ticket)

    desk = Loading(["late"])
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
