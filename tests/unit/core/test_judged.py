"""What became of each token of a round, and of every printed character of a reply."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.ui_script import drafted
from specdec_cli.core.judged import TokenStream, tokens_of


@pytest.mark.parametrize(
    ("pieces", "accepted", "expected"),
    [
        ([], 0, ["plain"]),
        (["a", "b"], 2, ["accepted", "accepted", "bonus"]),
        (["a", "b", "c"], 1, ["accepted", "rejected", "discarded", "correction"]),
        (["a"], 0, ["rejected", "correction"]),
    ],
)
def test_every_token_is_of_one_kind_in_the_order_of_its_position(pieces, accepted, expected):
    found = list(tokens_of(drafted(1, pieces, accepted, "z")))
    assert [token.kind.value for token in found] == expected
    assert [token.piece for token in found] == [*pieces, "z"]


@pytest.mark.parametrize("emitted", [1, 2])
def test_an_accepted_stop_token_leaves_no_token_of_the_targets_own_and_what_follows_it_is_not_said(emitted):
    done = drafted(1, ["a", "b", "c"], 2, "z")
    stopped = list(tokens_of(replace(done, round=replace(done.round, emitted=done.round.draft[:emitted]))))
    assert [token.kind.value for token in stopped] == ["accepted", "accepted", "rejected"]
    assert [token.said for token in stopped] == [True, emitted > 1, False]


def fed(rounds, *texts):
    """The tokens of the whole reply, as its text comes: one text a round, and the tail."""
    stream, found = TokenStream(), []
    for done, text in zip(rounds, texts, strict=False):
        stream.expect(done)
        found += stream.feed(text)
    return [*found, *stream.feed("".join(texts[len(rounds) :])), *stream.rest()]


PIECES = st.lists(st.text(st.sampled_from("ab \né日"), min_size=1, max_size=4), max_size=4)


@settings(max_examples=40)
@given(st.data())
def test_exact_kinds_however_much_text_was_held_back(data):
    """Every character knows its token: the text is cut into rounds at random places behind the tokens."""
    rounds, cuts, truth, text = [], [0], [], ""
    for index in range(data.draw(st.integers(1, 5))):
        pieces = data.draw(PIECES)
        done = drafted(index, pieces, data.draw(st.integers(0, len(pieces))), data.draw(PIECES.filter(bool))[0])
        said = [token for token in tokens_of(done) if token.said]
        truth += [token.kind for token in said for _ in token.piece]
        text += "".join(token.piece for token in said)
        rounds.append(done)
        cuts.append(data.draw(st.integers(cuts[-1], len(text))))
    found = fed(rounds, *(text[start:end] for start, end in pairwise([*cuts, len(text)])))
    assert [token.kind for token in found if token.said for _ in token.piece] == truth


def tokens(rounds, tail=""):
    """(kind, piece) of every token of the reply, as they come."""
    return [(token.kind.value, token.piece) for token in fed(rounds, *(done.text for done in rounds), tail)]


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


@settings(max_examples=40)
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


def test_text_is_that_of_the_token_that_completed_it_and_what_no_token_completed_is_plain():
    """A character of two tokens comes with the second; the last one began another, for which the tail has U+FFFD."""
    done = replace(drafted(0, ["a", "\ufffd", "\ufffd"], 3, "\ufffd"), text="a日", texts=("a", "", "日", ""))
    assert tokens([done], "\ufffd") == [("accepted", "a"), ("accepted", "日"), ("plain", "\ufffd")]


def test_text_that_is_told_apart_on_the_way_moves_no_kind():
    """A server leaves out the tags of a thinking, and what is a call."""
    stream = TokenStream()
    stream.expect(drafted(0, ["<think>", "\n", "so"], 2, "</think>"))
    stream.expect(drafted(1, ["\n", "yes"], 1, "no"))
    found = [*stream.feed("\n"), *stream.feed("no"), *stream.rest()]
    assert [(token.kind.value, token.piece) for token in found] == [
        ("accepted", "\n"),
        ("rejected", "so"),
        ("rejected", "yes"),
        ("correction", "no"),
    ]
