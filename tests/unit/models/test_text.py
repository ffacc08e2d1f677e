"""Loops and thinking in an answer, however it is split; stop strings are in `unit/session/test_writer`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.models.text import Repetition, Thinking, ThinkingCount, ThinkingStream


def first_found(ids, tokens):
    """Tokens fed when the loop was found, None without one."""
    watch = Repetition(tokens)
    return next((place for place, token in enumerate(ids, 1) if watch.feed(token)), None)


def by_definition(ids, tokens):
    for end in range(tokens, len(ids) + 1):
        last = ids[end - tokens : end]
        if any(last[p:] == last[:-p] for p in range(1, tokens // 2 + 1)):
            return end
    return None


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(2, 12))
def test_a_loop_is_found_at_the_token_the_definition_says(ids, tokens):
    assert first_found(ids, tokens) == by_definition(ids, tokens)


def test_nothing_is_watched_for_at_0():
    assert first_found([1] * 500, 0) is None


# Thinking

TAGS, CALL = Thinking("<think>", "</think>"), "<call>"


def pieces_of(tags, text, cuts=(), call="", short=False):
    """(thinking, answer) of `text` fed in parts."""
    stream, at, found = ThinkingStream(tags, call), 0, []
    for cut in [*sorted({min(cut, len(text)) for cut in cuts}), len(text)]:
        found += stream.feed(text[at:cut])
        at = cut
    found += stream.finish(short)
    assert all(text for _, text in found)
    return tuple("".join(part for kind, part in found if kind == wanted) for wanted in (True, False))


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<think>\nhm, well\n</think>\n\nYes.", "hm, well", "Yes."),
        ("<think>\n\n</think>\n\nYes.", "", "Yes."),
        ("Yes, <think> is a tag </think>.", "", "Yes, <think> is a tag </think>."),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("<thi", "", "<thi"),
        ("<think>a </thin b", "a </thin b", ""),
    ],
)
def test_thinking_is_told_from_the_answer(text, thinking, answer):
    assert TAGS.split(text) == (thinking, answer) == pieces_of(TAGS, text, range(len(text)))
    assert {pieces_of(TAGS, text, [cut]) for cut in range(len(text))} == {(thinking, answer)}


# (what comes, its thinking, its answer, how many of its letters are thought)
IN_THOUGHT = [
    ("<think>I run it.\n<call>{}</call>", "I run it.", "\n<call>{}</call>", len("<think>I run it.\n<call")),
    ("<think><call>{}", "", "<call>{}", len("<think><call")),
    ("<think>as <call> says</think>Yes.", "as <call> says", "Yes.", len("<think>as <call> says</think>")),
    ("<think>as <cal", "as <cal", "", len("<think>as <cal")),
    ("<call>{}</call>", "", "<call>{}</call>", 0),
]


@pytest.mark.parametrize(("text", "thinking", "answer", "tokens"), IN_THOUGHT)
def test_a_call_may_end_the_thinking_and_its_mark_be_quoted_there(text, thinking, answer, tokens):
    """Models leave out the tag before a call, which was thought then: the agent waited for nothing."""
    for cut in range(len(text)):
        assert pieces_of(TAGS, text, [cut], CALL) == (thinking, answer)
    count = ThinkingCount(TAGS, CALL)
    count.feed(text)
    assert count.tokens == tokens


def test_an_answer_that_is_cut_in_its_thinking_calls_nothing():
    for text, *_ in IN_THOUGHT[:2]:
        assert pieces_of(TAGS, text, (), CALL, short=True) == (text.removeprefix("<think>"), "")
        count = ThinkingCount(TAGS, CALL)
        count.feed(text)
        count.finish(cut=True)
        assert count.tokens == len(text)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", CALL, "<", "a", "\n", " "]), max_size=12).map("".join),
    st.lists(st.integers(0, 60)),
    st.booleans(),
)
def test_thinking_does_not_depend_on_how_the_text_was_split(text, cuts, short):
    for call in ("", CALL):
        assert pieces_of(TAGS, text, cuts, call, short) == pieces_of(TAGS, text, (), call, short)
