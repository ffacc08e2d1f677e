"""Guesses at every position at once are those of a head that drafts from each position by itself."""

import mlx.core as mx
import pytest

from fakes.heads import agreeing_head, cached_head, tiny_head, tiny_target
from specdec_cli.engine.heads.branches import Text, guesses
from specdec_cli.engine.heads.mtp import Recipe
from specdec_cli.engine.hidden import READ

TOKENS = [(7 * i * i + 3 * i) % 97 + 3 for i in range(24)]
STEPS = 3


def text_of(target, begin=1):
    with target.network.hidden.exposed([READ]):
        hidden = target.fresh().forward(mx.array(TOKENS[:-1])).hidden
    return Text(TOKENS, begin, dict(hidden))


def drafted(target, head, text, at):
    """What the head guesses for `at` and the tokens after it, if those before are the text's; one pass at a time."""
    cached = cached_head(target, head)
    context = list(text.context[:at])
    assert cached.hand_over(context, text.hidden[READ][: at - 1])
    step, found = cached.first(), []
    for later in range(STEPS):
        found.append(int(mx.argmax(cached.logits(step.scored))))
        step = cached.next(mx.array([text.context[at + later]]), step.carried)
    return found


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe", "qwen3"])
@pytest.mark.parametrize(
    "recipe", [Recipe(), Recipe(carries="raw"), Recipe(lag=1)], ids=["as Qwen", "raw carried", "token of its position"]
)
def test_every_position_is_guessed_as_by_itself(name, recipe):
    target = tiny_target(name)
    text = text_of(target)
    head = agreeing_head(target) if recipe == Recipe() else tiny_head(recipe=recipe)
    found = guesses(head, target.network.hidden.readout, text, text.scored(STEPS), STEPS)
    assert text.scored(STEPS) == range(2, len(TOKENS) - STEPS + 1)
    one_by_one = [drafted(target, head, text, at) for at in text.scored(STEPS)]
    assert [list(row) for row in zip(*found, strict=True)] == one_by_one


def test_a_position_sees_nothing_of_later_ones():
    """The guesses before a token stay what they are whatever comes after it."""
    target = tiny_target()
    head, text = agreeing_head(target), text_of(target)
    before = guesses(head, target.network.hidden.readout, text, text.scored(STEPS), STEPS)
    hidden = {READ: mx.concatenate([text.hidden[READ][:12], 0 * text.hidden[READ][12:]])}
    other = Text(TOKENS[:14] + [9] * 10, 1, hidden)
    after = guesses(head, target.network.hidden.readout, other, other.scored(STEPS), STEPS)
    # The guess for token t + s has read tokens up to t + s - 1 and states up to t - 2.
    assert all(before[step][:9] == after[step][:9] for step in range(STEPS))
    assert before != after


def test_a_text_too_short_to_be_guessed_has_no_guesses():
    target = tiny_target()
    text = Text(TOKENS[:3], 1, {READ: text_of(target).hidden[READ][:2]})
    assert guesses(tiny_head(), target.network.hidden.readout, text, text.scored(STEPS), STEPS) == [[], [], []]


def test_only_the_texts_own_tokens_are_scored():
    target = tiny_target()
    text = text_of(target, begin=15)
    found = guesses(agreeing_head(target), target.network.hidden.readout, text, text.scored(STEPS), STEPS)
    assert text.scored(STEPS) == range(15, 22) and {len(row) for row in found} == {7}
