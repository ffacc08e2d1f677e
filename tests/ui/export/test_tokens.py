"""The exports of a trace: the text is the reply's, every fate has a mark, and nothing foreign becomes markup."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fakes.ui_script import PREFILL, ROUNDS, START, drafted, finish
from specdec_cli.events import Finish, Round, RoundDone
from specdec_cli.trace import Reply
from specdec_cli.ui.export.tokens import coloured

SCRIPT = Reply(START, PREFILL, ROUNDS, finish())


def of_pieces(pieces: list[str], text: str) -> Reply:
    """A reply by plain decoding."""
    rounds = tuple(drafted(index, [], 0, piece) for index, piece in enumerate(pieces))
    return Reply(START, PREFILL, rounds, Finish("stop", text, (), "", finish().stats))


def said(reply: Reply) -> str:
    return "".join(token.text for token in coloured(reply) if token.said)


def test_every_token_has_its_fate_in_the_order_of_its_position():
    shown = [(token.fate.value, token.text, token.said) for token in coloured(SCRIPT)]
    assert shown[:6] == [
        ("plain", "def", True),
        ("accepted", " read", True),
        ("accepted", "_lines", True),
        ("accepted", "(", True),
        ("accepted", "path", True),
        ("bonus", "):", True),
    ]
    assert shown[6:11] == [
        ("accepted", "\n    ", True),
        ("accepted", "with", True),
        ("rejected", "日本", False),
        ("discarded", "\x1b[2J", False),
        ("correction", "\topen", True),
    ]


def test_what_was_said_is_the_text_of_the_reply():
    assert said(SCRIPT) == SCRIPT.finish.text


def test_a_character_of_several_tokens_comes_whole_with_the_last():
    tokens = coloured(of_pieces(["a", "�", "�", "�", "b"], "a日b"))
    assert [token.text for token in tokens] == ["a", "", "", "日", "b"]


def test_a_space_that_the_decoder_drops_is_not_said():
    assert [token.text for token in coloured(of_pieces([" Hello", " world"], "Hello world"))] == ["Hello", " world"]


def test_a_stop_token_is_shown_but_not_said():
    *_, last = coloured(of_pieces(["yes", "<|im_end|>"], "yes"))
    assert (last.text, last.said) == ("<|im_end|>", False)


def test_tokens_behind_a_stop_token_in_the_draft_are_not_said():
    judged = Round(1, "model", (1, 2, 3), 3, 9, (1, 2), 0.0, 0.0)
    done = RoundDone(judged, ("yes", "<end>", "more"), "!", "yes")
    reply = Reply(START, PREFILL, (done,), Finish("stop", "yes", (), "", finish().stats))
    assert [(token.text, token.said) for token in coloured(reply)] == [("yes", True), ("<end>", False), ("more", False)]


@given(st.lists(st.text(st.sampled_from("ab \n�é"), max_size=4), max_size=8), st.text(st.sampled_from("ab \né日")))
def test_whatever_the_pieces_are_the_text_is_the_reply_s_own(pieces, text):
    reply = of_pieces(pieces, text)
    if pieces:
        assert said(reply) == text
