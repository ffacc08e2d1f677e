"""Masks that are computed beside the caller, once each."""

import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from specdec_cli.errors import SpecdecError
from specdec_cli.models import grammar as scouts
from specdec_cli.models.grammar import Matcher, Scout, ScoutBeside

TOKENIZER = LLTokenizer("byte")
V, END = TOKENIZER.vocab_size, TOKENIZER.eos_token


def begun(text="[a-z]{30}"):
    return LLMatcher(TOKENIZER, LLMatcher.grammar_from_regex(text), log_level=0)


class Later(Executor):
    """Runs what it was given, in order, when somebody waits for any of it."""

    def __init__(self):
        self.waiting, self.ran = [], []

    def submit(self, function, *given):
        future = Future()
        self.waiting.append((future, function, given))
        future.result = lambda timeout=None: (self.run(), Future.result(future))[1]
        return future

    def run(self):
        while self.waiting:
            future, function, given = self.waiting.pop(0)
            self.ran.append((function.__name__, *given))
            try:
                future.set_result(function(*given))
            except SpecdecError as error:
                future.set_exception(error)


@pytest.fixture
def filled(monkeypatch):
    """Rows that the library was asked for."""
    asked, fill = [], scouts.fill_next_token_bitmask
    monkeypatch.setattr(scouts, "fill_next_token_bitmask", lambda *given: asked.append(given) or fill(*given))
    return asked


def beside(later, text="[a-z]{30}"):
    return Matcher(begun(text), V, frozenset({END}), ScoutBeside(lambda: begun(text), V, later))


def test_rows_are_begun_when_their_tokens_are_known_and_waited_for_when_they_are_needed():
    """A draft's when it was judged, what is forced when it is found, the next round's first when one has ended."""
    later = Later()
    matcher = beside(later, "[a-c]{3}yes[a-z]{9}")
    assert matcher.legal([*b"abx"]) == 2 and later.waiting
    assert not later.ran, "the caller waited"
    assert (matcher.masks([*b"ab"]) == beside(Later(), "[a-c]{3}yes[a-z]{9}").masks([*b"ab"])).all()
    matcher.advance([*b"abc"])
    assert matcher.forced() == [*b"yes"]
    assert [function.__name__ for _, function, _ in later.waiting] == ["advance", "rows", "rows"]
    later.run()
    assert later.ran[-3:] == [("advance", [*b"abc"]), ("rows", []), ("rows", [*b"yes"])]


@pytest.mark.parametrize("make", [Scout, lambda *given: ScoutBeside(*given, Later())], ids=["in place", "beside"])
def test_each_row_is_computed_once_all_through_a_plain_answer(make, filled):
    """A plain round asks for the row behind its token; the next one stands there."""
    scout = make(begun, V)
    for token in b"abcdef":
        scout.rows([token])
        scout.advance([token])
    assert len(scout.rows([])) == 1 and len(filled) == 7


def test_what_was_computed_for_tokens_that_were_not_accepted_is_dropped(filled):
    scout, other = Scout(begun, V), Scout(begun, V)
    scout.rows([*b"abcd"])
    scout.advance([*b"abx"])
    other.advance([*b"abx"])
    assert (np.array(scout.rows([*b"cd"])) == np.array(other.rows([*b"cd"]))).all()
    assert len(filled) == 5 + 3 + 3


def test_a_draft_that_is_shorter_than_the_last_one_gets_as_many_rows_as_it_has_places():
    scout = Scout(begun, V)
    assert [len(scout.rows([*draft])) for draft in (b"abcd", b"ab", b"", b"ab9d", b"abcde")] == [5, 3, 1, 3, 6]


def test_the_library_s_error_shows_where_its_row_is_asked_for_and_not_before():
    def stuck():
        return LLMatcher(TOKENIZER, 'start: ("a" B | "b")\nB: /[^\\s\\S]/', log_level=0)

    later = Later()
    scout = ScoutBeside(stuck, V, later)
    scout.advance([*b"a"])
    scout.begin([])
    later.run()
    with pytest.raises(SpecdecError, match="cannot be followed any further"):
        scout.rows([])


def test_a_matcher_s_questions_do_not_wait_for_masks_that_are_being_computed():
    """Copies of a matcher share its lexer, and wait for each other: the thread has a matcher of its own."""
    slow = []

    def make():
        time.sleep(0.2)
        slow.append(time.monotonic())
        return begun()

    with ThreadPoolExecutor(1) as thread:
        matcher = Matcher(begun(), V, frozenset({END}), ScoutBeside(make, V, thread))
        assert matcher.legal([*b"abc"]) == 3
        matcher.advance([*b"abc"])
        assert not slow and matcher.forced() == []
        assert matcher.masks([]).shape == (1, -(-V // 32)) and slow
