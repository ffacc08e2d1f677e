"""Which token each part of a text is from, where pieces and text disagree."""

from specdec_cli.fates import Alignment


def shares(pieces, *texts):
    """The shares of the texts, keyed by the place of their token."""
    alignment = Alignment()
    alignment.expect(enumerate(pieces))
    return [share for text in texts for share in alignment.feed(text)]


def test_pieces_that_join_to_the_text_get_their_own_part():
    assert shares(["def", " f", "("], "def f(") == [(0, "def"), (1, " f"), (2, "(")]
    assert shares(["def", " f", "("], "de", "f f", "(") == [(0, "de"), (0, "f"), (1, " f"), (2, "(")]


def test_a_token_without_text_is_never_named():
    assert shares(["a", "<end>", "b"], "ab") == [(0, "a"), (2, "b")]


def test_text_without_a_piece_goes_to_the_token_it_waited_for():
    assert shares(["a", "\ufffd", "\ufffd", "b"], "a日b") == [(0, "a"), (1, ""), (2, "日"), (3, "b")]
    assert shares(["\ufffd"] * 4, "日") == [(0, ""), (1, ""), (2, "日")]  # the fourth belongs to a later character


def test_text_after_the_last_token_is_the_last_tokens_and_before_any_token_nobodys():
    assert shares(["a"], "a", "!") == [(0, "a"), (0, "!")]
    assert shares([], "?") == [(None, "?")]
