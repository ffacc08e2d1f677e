"""The message list, what of it is sent, thinking blocks, and transcripts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.chat import tokenizer_in
from specdec_cli.core.errors import DoesNotFit, UsageError
from specdec_cli.models.text import Thinking, ThinkingStream
from specdec_cli.session.conversation import Answer, Conversation, Turn

TAGS = Thinking("<think>", "</think>")


def letters(messages):
    """One id a character, and one for each message."""
    return [0] * sum(len(message["content"]) + 1 for message in messages)


def talked(*sizes, system=None):
    """A conversation whose turns have that many ids each."""
    turns = tuple(
        Turn(chr(97 + place) * (size // 2 - 1), Answer("." * (size - size // 2 - 1)))
        for place, size in enumerate(sizes)
    )
    return Conversation(system, turns)


def test_messages_are_system_turns_and_the_new_one_in_order():
    conversation = Conversation("be kind", (Turn("a", Answer("b", thinking="hm")),))
    assert conversation.messages("c") == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "hm", "thinking": "hm"},
        {"role": "user", "content": "c"},
    ]


def test_refuse_names_both_numbers_and_changes_nothing():
    conversation = talked(60, 60)
    with pytest.raises(DoesNotFit, match="prompt is too long: 124 tokens > 123 maximum") as caught:
        conversation.fit("abc", letters, 124, 40, "refuse")
    assert "/set overflow drop-oldest" in caught.value.hint
    assert len(conversation.fit("abc", letters, 125, 40, "refuse").ids) == 124


def test_drop_oldest_makes_room_for_an_answer_and_keeps_the_system_message():
    conversation = talked(40, 40, 40, system="s" * 9)
    fitted = conversation.fit("abc", letters, 160, 40, "drop-oldest")
    assert (fitted.left_out, len(fitted.ids)) == (2, 10 + 40 + 4)
    sent = conversation.messages("abc", fitted.left_out)
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[0]["content"] == "s" * 9
    # Room for the next turns too: one more turn of this size drops nothing.
    grown = conversation.with_turn(Turn("abc", Answer("." * 39)), fitted.left_out)
    assert grown.fit("abc", letters, 160, 40, "drop-oldest").left_out == fitted.left_out


@pytest.mark.parametrize(("limit", "max_tokens", "left_out"), [(92, 8, 0), (91, 8, 1), (111, 99, 0), (110, 99, 1)])
def test_drop_oldest_drops_only_where_the_answer_or_a_quarter_of_the_context_does_not_fit(limit, max_tokens, left_out):
    assert talked(40, 40).fit("abc", letters, limit, max_tokens, "drop-oldest").left_out == left_out


# Thinking


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


def test_a_template_that_refuses_the_messages_is_a_usage_error_with_its_reason(tmp_path):
    template = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(UsageError, match="refuses the messages system, user: System role not supported"):
        tokenizer_in(tmp_path, chat_template=template).render(Conversation("s").messages("c"))
