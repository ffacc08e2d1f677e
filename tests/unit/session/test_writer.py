"""Rounds to text: however tokens and rounds split it, the same answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.models import TINY, byte_tokenizer
from specdec_cli.core.events import Round, TokenLogprob
from specdec_cli.core.stats import Stats
from specdec_cli.models.text import StopStrings
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.session.text import Writer


@pytest.fixture(scope="module")
def tokenizer(tiny_pair):
    return Tokenizer.load(tiny_pair[0], "tiny", TINY)


def written(tokenizer, ids, sizes=(), stop=()):
    """(texts of the rounds, the finish) of `ids` emitted in rounds of these sizes, the rest one by one."""
    writer, rounds, at = Writer(tokenizer.stream(), StopStrings(stop), tokenizer, ends=tokenizer.stop_tokens), [], 0
    sizes = iter(sizes)
    while at < len(ids) and not writer.stopped:
        emitted = tuple(ids[at : at + next(sizes, 1)])
        at += len(emitted)
        rounds.append(writer.write(Round(len(rounds), "model", emitted, len(emitted), 3, emitted, 0.0, 0.0)))
    return rounds, writer.finish("length", Stats())


def test_characters_split_over_tokens_and_rounds_come_out_whole(tokenizer):
    """Four bytes of an emoji, one token each, spread over rounds; a lone lead byte at the end shows as U+FFFD."""
    ids = tokenizer.encode("é🙂")
    lead = ids[2]
    writer = Writer(tokenizer.stream(), StopStrings(()), tokenizer)
    rounds = [writer.write(Round(i, "model", (t,), 1, t, (t,), 0.0, 0.0)) for i, t in enumerate([*ids, lead])]
    assert [done.text for done in rounds] == ["", "é", "", "", "", "🙂", ""]
    assert [done.texts for done in rounds] == [(done.text,) for done in rounds]
    finish = writer.finish("length", Stats())
    assert (finish.text_tail, finish.text) == ("\ufffd", "é🙂\ufffd")


TEXTS = st.text(st.sampled_from("abé🙂\n "), max_size=12)


@given(text=TEXTS, sizes=st.lists(st.integers(1, 9), max_size=8), stop=st.lists(TEXTS.filter(bool), max_size=2))
def test_rounds_and_tail_join_to_the_text_before_the_first_stop_string(tokenizer, text, sizes, stop):
    rounds, finish = written(tokenizer, tokenizer.encode(text), sizes, tuple(stop))
    # The string that is complete first ends the text; of those that end together the longest.
    ends = [(at, len(text[:at])) for at in range(1, len(text) + 1) if any(text[:at].endswith(word) for word in stop)]
    expected = text
    if ends:
        seen = text[: ends[0][0]]
        expected = seen[: len(seen) - max(len(word) for word in stop if seen.endswith(word))]
    assert finish.text == expected
    assert "".join(done.text for done in rounds) + finish.text_tail == finish.text


@pytest.mark.parametrize("size", range(1, 6))
def test_a_stop_string_is_found_over_any_number_of_rounds(tokenizer, size):
    """Of one in three pieces the first was shown: random ones nearly never have so many."""
    rounds, finish = written(tokenizer, tokenizer.encode("xxabcabcdyy"), [size] * 11, ("abcd",))
    assert finish.text == "".join(done.text for done in rounds) + finish.text_tail == "xxabc"


@given(st.lists(st.integers(3, 258), max_size=20), st.lists(st.integers(1, 6), max_size=8))
def test_bytes_that_are_no_text_come_out_as_the_tokenizer_says_them(tokenizer, ids, sizes):
    rounds, finish = written(tokenizer, ids, sizes)
    assert finish.text == byte_tokenizer().decode(ids, skip_special_tokens=False)
    assert finish.tokens == tuple(ids)
    assert "".join(done.text for done in rounds) + finish.text_tail == finish.text


def test_a_stop_token_ends_it_inside_a_round_and_is_no_text(tokenizer):
    a, b = tokenizer.encode("ab")
    rounds, finish = written(tokenizer, [a, 2, b, b], [4])
    assert (finish.text, finish.tokens, rounds[-1].round.emitted) == ("a", (a,), (a, 2))
    assert rounds[-1].texts == ("a", "")


def test_a_round_is_cut_after_the_token_that_completed_a_stop_string(tokenizer):
    ids = tokenizer.encode("abcd")
    writer = Writer(tokenizer.stream(), StopStrings(("bc",)), tokenizer)
    scores = tuple(TokenLogprob(token, -1.0, ()) for token in ids)
    done = writer.write(Round(0, "model", tuple(ids), 4, 3, tuple(ids), 0.0, 0.0, logprobs=scores))
    assert (done.text, done.round.emitted, done.round.logprobs) == ("a", tuple(ids[:3]), scores[:3])
    assert done.texts == ("a", "b", "c")  # what a stop string cuts off, too
    assert len(done.pieces) == 4 and writer.stopped  # the draft is shown whole


@pytest.mark.parametrize("held", ["b", "bc"])
def test_the_beginning_of_a_stop_string_is_held_back_and_comes_as_the_tail(tokenizer, held):
    rounds, finish = written(tokenizer, tokenizer.encode("a" + held), stop=("bcd",))
    assert "".join(done.text for done in rounds) == "a" and finish.text_tail == held


@pytest.mark.parametrize(("least", "text"), [(2, "ab"), (3, "abXcd"), (4, "abXcd")])
def test_a_stop_string_that_ends_exactly_at_the_least_is_text(tokenizer, least, text):
    writer = Writer(tokenizer.stream(), StopStrings(("X",)), tokenizer, least=least)
    for number, token in enumerate(tokenizer.encode("abXcd")):
        if not writer.stopped:
            writer.write(Round(number, "none", (), 0, token, (token,), 0.0, 0.0))
    assert writer.finish("length", Stats()).text == text
