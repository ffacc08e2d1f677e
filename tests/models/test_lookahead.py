"""Masks that are computed beside the caller, once each."""

import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest
from llguidance import LLMatcher, LLTokenizer

from specdec_cli.errors import SpecdecError
from specdec_cli.models.grammar import Matcher, ThreadedLookahead

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


def beside(later, text="[a-z]{30}"):
    return Matcher(begun(text), V, frozenset({END}), ThreadedLookahead(lambda: begun(text), V, later))


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


def test_the_library_s_error_shows_where_its_row_is_asked_for_and_not_before():
    def stuck():
        return LLMatcher(TOKENIZER, 'start: ("a" B | "b")\nB: /[^\\s\\S]/', log_level=0)

    later = Later()
    lookahead = ThreadedLookahead(stuck, V, later)
    lookahead.advance([*b"a"])
    lookahead.begin([])
    later.run()
    with pytest.raises(SpecdecError, match="cannot be followed any further"):
        lookahead.rows([])


def test_a_matcher_s_questions_do_not_wait_for_masks_that_are_being_computed():
    """Copies of a matcher share its lexer, and wait for each other: the thread has a matcher of its own."""
    slow = []

    def make():
        time.sleep(0.2)
        slow.append(time.monotonic())
        return begun()

    with ThreadPoolExecutor(1) as thread:
        matcher = Matcher(begun(), V, frozenset({END}), ThreadedLookahead(make, V, thread))
        assert matcher.legal([*b"abc"]) == 3
        matcher.advance([*b"abc"])
        assert not slow and matcher.forced() == []
        assert matcher.masks([]).shape == (1, -(-V // 32)) and slow
