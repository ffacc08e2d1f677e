"""Stop strings, loops and thinking in an answer, however it is split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.models.text import Repetition, StopStrings, Thinking, ThinkingStream


def feed_all(stops, parts):
    watcher, shown = StopStrings(stops), ""
    for part in parts:
        text, hit = watcher.feed(part)
        shown += text
        if hit:
            return shown, True
    return shown + watcher.finish(), False


@given(
    st.lists(st.text("abc\n", max_size=6), max_size=12),
    st.lists(st.text("abc\n", min_size=1, max_size=4), max_size=3),
)
def test_shows_exactly_the_text_before_the_first_stop_however_it_is_split(parts, stops):
    shown, hit = feed_all(stops, parts)
    text = "".join(parts)
    # Independent rule: the first prefix of the text that ends with a stop string decides.
    ends = [n for n in range(len(text) + 1) if any(text[:n].endswith(stop) for stop in stops)]
    assert hit == bool(ends)
    if hit:
        longest = max(len(stop) for stop in stops if text[: ends[0]].endswith(stop))
        assert shown == text[: ends[0] - longest]
    else:
        assert shown == text


@pytest.mark.parametrize("size", range(1, 6))
def test_a_stop_string_is_found_over_any_number_of_pieces(size):
    """Of one in three pieces the first was shown: random ones nearly never have so many."""
    text = "xxabcabcdyy"
    assert feed_all(["abcd"], [text[at : at + size] for at in range(0, len(text), size)]) == ("xxabc", True)


def test_holds_back_only_what_may_become_a_stop():
    watcher = StopStrings(["\n\n", "END"])
    assert watcher.feed("one\n") == ("one", False)
    assert watcher.feed("two E") == ("\ntwo ", False)
    assert watcher.feed("NDED") == ("", True)
    assert watcher.finish() == ""


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

TAGS = Thinking("<think>", "</think>")


def pieces_of(tags, text, cuts=()):
    """(thinking, answer) of `text` fed in parts."""
    stream, at, found = ThinkingStream(tags), 0, []
    for cut in [*sorted({min(cut, len(text)) for cut in cuts}), len(text)]:
        found += stream.feed(text[at:cut])
        at = cut
    found += stream.finish()
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
    assert TAGS.split(text) == (thinking, answer)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "a", "\n", " "]), max_size=12).map("".join),
    st.lists(st.integers(0, 60)),
)
def test_thinking_does_not_depend_on_how_the_text_was_split(text, cuts):
    assert pieces_of(TAGS, text, cuts) == pieces_of(TAGS, text)
