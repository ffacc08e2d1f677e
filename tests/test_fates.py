"""The fate of each token of a round, and of every printed character of a reply."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.ui_script import ROUNDS, drafted
from specdec_cli.events import RoundDone
from specdec_cli.fates import Fate, FateStream, TokenStream, fates


@pytest.mark.parametrize(
    ("pieces", "accepted", "expected"),
    [
        ([], 0, ["plain"]),
        (["a", "b"], 2, ["accepted", "accepted", "bonus"]),
        (["a", "b", "c"], 1, ["accepted", "rejected", "discarded", "correction"]),
        (["a"], 0, ["rejected", "correction"]),
    ],
)
def test_every_token_has_one_fate_in_the_order_of_its_position(pieces, accepted, expected):
    found = list(fates(drafted(1, pieces, accepted, "z")))
    assert [token.fate.value for token in found] == expected
    assert [token.piece for token in found] == [*pieces, "z"]


def test_an_accepted_stop_token_leaves_no_token_of_the_targets_own():
    done = drafted(1, ["a", "b", "c"], 2, "z")
    stopped = replace(done, round=replace(done.round, emitted=done.round.draft[:2]))
    assert [token.fate.value for token in fates(stopped)] == ["accepted", "accepted", "rejected"]


def spans(rounds, tail=""):
    """(fate, text) of the whole reply, without empty shares."""
    stream = FateStream()
    found = [span for done in rounds for span in stream.round(done)] + stream.tail(tail)
    return [(fate and fate.value, text) for fate, text in found if text]


def with_text(done: RoundDone, text: str) -> RoundDone:
    return replace(done, text=text)


def test_every_printed_character_has_the_fate_of_its_token():
    assert spans(ROUNDS[:3]) == [
        (None, "def"),
        *[("accepted", piece) for piece in (" read", "_lines", "(", "path")],
        ("bonus", "):"),
        ("accepted", "\n    "),
        ("accepted", "with"),
        ("correction", "\topen"),
    ]


def test_text_held_back_for_a_stop_string_keeps_its_fate_when_it_comes_in_a_later_round():
    """The stop string "path)x" holds "path)" back, over the end of the round and in the middle of a token."""
    first = with_text(drafted(1, ["open", "(pa"], 2, "th"), "open(")
    second = with_text(drafted(2, [")", " as"], 1, " if"), "path) if")
    assert spans([first, second]) == [
        ("accepted", "open"),
        ("accepted", "("),
        ("accepted", "pa"),
        ("bonus", "th"),
        ("accepted", ")"),
        ("correction", " if"),
    ]


def test_what_is_held_until_the_end_keeps_its_fate_too():
    held = with_text(drafted(1, ["a"], 1, "bc"), "ab")
    assert spans([held], "c") == [("accepted", "a"), ("bonus", "b"), ("bonus", "c")]


def test_a_character_of_several_tokens_has_the_fate_of_the_one_that_completed_it():
    begun = with_text(drafted(1, ["x", "\ufffd"], 2, "\ufffd"), "x")
    ended = with_text(drafted(2, ["\ufffd", "y"], 1, "z"), "日z")
    assert spans([begun, ended]) == [("accepted", "x"), ("accepted", "日"), ("correction", "z")]


def test_stop_and_special_tokens_colour_nothing():
    first = with_text(drafted(0, [], 0, "<|begin|>"), "")
    assert spans([first, drafted(1, ["yes"], 1, "!"), with_text(drafted(2, [], 0, "<|end|>"), "")]) == [
        ("accepted", "yes"),
        ("bonus", "!"),
    ]


def test_a_space_that_the_decoder_drops_moves_no_colour():
    assert spans([with_text(drafted(0, [], 0, " Hello"), "Hello"), drafted(1, [" you"], 0, " world")]) == [
        (None, "Hello"),
        ("correction", " world"),
    ]


PIECES = st.lists(st.text(st.sampled_from("ab \né日"), min_size=1, max_size=4), max_size=4)


@given(st.data())
def test_exact_fates_however_much_text_was_held_back(data):
    """Every character knows its token: the text is cut into rounds at random places behind the tokens."""
    rounds, truth, text, shown, drafted_yet = [], [], "", 0, False
    for index in range(data.draw(st.integers(1, 5))):
        pieces = data.draw(PIECES)
        done = drafted(index, pieces, data.draw(st.integers(0, len(pieces))), data.draw(PIECES.filter(bool))[0])
        drafted_yet = drafted_yet or bool(pieces)
        for token in fates(done):
            if token.said:
                truth += [token.fate if drafted_yet else None] * len(token.piece)
                text += token.piece
        cut = data.draw(st.integers(shown, len(text)))
        rounds.append(replace(done, text=text[shown:cut]))
        shown = cut
    stream = FateStream()
    found = [span for done in rounds for span in stream.round(done)] + stream.tail(text[shown:])
    assert [fate for fate, share in found for _ in share] == truth


@given(st.lists(st.tuples(PIECES, st.text(st.sampled_from("ab \ufffd日é"), max_size=6)), max_size=5))
def test_the_spans_join_to_the_text_whatever_the_pieces_are(parts):
    stream = FateStream()
    for index, (pieces, text) in enumerate(parts):
        spans = stream.round(replace(drafted(index, pieces, len(pieces), ""), text=text))
        assert "".join(share for _, share in spans) == text
        assert all(fate is None or isinstance(fate, Fate) for fate, _ in spans)


def test_a_reply_is_coloured_from_its_first_draft_on():
    plain = [drafted(index, [], 0, word) for index, word in enumerate(["a", " b"])]
    after = drafted(3, [], 0, " d")
    assert spans([*plain, drafted(2, [" c"], 0, "!"), after]) == [
        (None, "a"),
        (None, " b"),
        ("correction", "!"),
        ("plain", " d"),
    ]


def tokens(rounds, tail=""):
    """(fate, piece) of every token of the reply, as they come."""
    stream = TokenStream()
    found = []
    for done in rounds:
        stream.expect(done)
        found += stream.feed(done.text)
    return [(token.fate.value, token.piece) for token in [*found, *stream.feed(tail), *stream.rest()]]


def test_what_was_drafted_and_not_said_stands_where_it_was_proposed():
    assert tokens([drafted(0, [], 0, "a"), drafted(1, ["b", "x", "y"], 1, "c"), drafted(2, ["z"], 0, "d")]) == [
        ("plain", "a"),
        ("accepted", "b"),
        ("rejected", "x"),
        ("discarded", "y"),
        ("correction", "c"),
        ("rejected", "z"),
        ("correction", "d"),
    ]


def test_a_token_that_became_no_text_never_comes_but_what_was_rejected_before_it_does():
    ended = with_text(drafted(2, ["x"], 0, "<|end|>"), "")
    assert tokens([drafted(1, ["a"], 1, "b"), ended]) == [("accepted", "a"), ("bonus", "b"), ("rejected", "x")]


def test_text_that_waits_brings_what_was_rejected_before_it_and_brings_it_once():
    held = with_text(drafted(1, ["a", "x"], 1, "bc"), "ab")
    assert tokens([held], "c") == [("accepted", "a"), ("rejected", "x"), ("correction", "b"), ("correction", "c")]


@given(st.lists(st.tuples(PIECES, st.integers(0, 4), st.text(st.sampled_from("ab \ufffd日é"), max_size=6)), max_size=5))
def test_the_said_tokens_join_to_the_text_whatever_the_pieces_are(parts):
    stream, lost = TokenStream(), []
    for index, (pieces, accepted, text) in enumerate(parts):
        done = replace(drafted(index, pieces, min(accepted, len(pieces)), "b"), text=text)
        stream.expect(done)
        found = stream.feed(text)
        assert "".join(token.piece for token in found if token.said) == text
        lost += [token for token in found if not token.said]
    drafts = [piece for pieces, accepted, _ in parts for piece in pieces[accepted:]]
    assert [token.piece for token in lost + stream.rest()] == drafts
