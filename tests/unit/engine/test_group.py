"""What ranks agree on and how they find that they do not, by ranks that are values in one process."""

import mlx.core as mx
import pytest

from specdec_cli.core.errors import SpecdecError
from specdec_cli.engine.group import MARK, Group, Ranks
from specdec_cli.engine.planning.policy import Situation


class Both:
    """Rank `number` of two, for a Group; `total` is what a sum of its values comes to."""

    def __init__(self, number, total, monkeypatch):
        self.rank, self.size = lambda: number, lambda: 2
        monkeypatch.setattr(mx.distributed, "all_sum", lambda values, group: total(values))


def group(number, total, monkeypatch):
    return Group(Both(number, total, monkeypatch))


@pytest.mark.parametrize("number", [0, 1])
def test_every_rank_has_the_choices_of_rank_0(number, monkeypatch):
    def with_other(values):
        return values + mx.array([0, 0, MARK] if number == 0 else [7, -5, MARK])

    agreed = group(number, with_other, monkeypatch).agreed
    assert agreed(mx.array([7, -5] if number == 0 else [8, 9])).tolist() == [7, -5]


def test_a_sum_with_what_does_not_belong_to_it_gives_no_token(monkeypatch):
    """mlx reads an embedding out of bounds: rank 0 was ended by signal 11."""
    garbled = group(0, lambda values: values + 1_000_000_007, monkeypatch)
    assert garbled.agreed(mx.array([3, 4], mx.uint32)).tolist() == [3, 4]


@pytest.mark.parametrize("number", [0, 1])
def test_every_rank_hears_what_each_one_holds_beyond_32_bits(number, monkeypatch):
    held = [7 * 10**9 + 5, (1 << 20) - 1]
    parts = [part * (at != number) for at in (0, 1) for part in divmod(held[at], 1 << 20)]
    assert group(number, lambda own: own + mx.array(parts), monkeypatch).gather(held[number]) == tuple(held)


def messages(monkeypatch, context, act):
    """What rank 0 of such a context sends by `act`."""
    sent = []

    def total(values):
        sent.append(values.tolist())
        return mx.concatenate([values[:-1], 2 * values[-1:]])  # the other rank says the same of its tokens

    act(Ranks(group(0, total, monkeypatch), context, lambda: False))
    return sent


def decide(ranks):
    ranks.plan(Situation(most=0))


ACTS = {"the same": ([5, 6, 7], decide), "earlier": ([5, 9, 7], decide), "longer": ([5, 6, 7, 7], decide)}
ACTS["the end"] = ([5, 6, 7], lambda ranks: ranks.agrees(False))
ACTS["before a plan"] = ([5, 6, 7], lambda ranks: ranks.cancelled())


@pytest.mark.parametrize("other", ACTS)
def test_messages_tell_every_token_and_the_end_apart_and_have_one_shape(other, monkeypatch):
    """Only the last token and the length were compared, and not at the end, whose message was shorter."""
    (own,), (theirs,) = (messages(monkeypatch, *ACTS[name]) for name in ("the same", other))
    assert len(own) == len(theirs)
    assert (own[-1] == theirs[-1]) == (other == "the same")


def test_a_digest_goes_on_where_the_last_message_ended(monkeypatch):
    context = [5, 6]

    def twice(ranks):
        decide(ranks)
        context.extend([7, 8])
        decide(ranks)

    assert messages(monkeypatch, context, twice)[1] == messages(monkeypatch, [5, 6, 7, 8], decide)[0]


def test_the_end_of_a_reply_is_refused_where_contexts_differ(monkeypatch):
    ranks = Ranks(group(0, lambda values: values + 1, monkeypatch), [5, 6], lambda: False)
    with pytest.raises(SpecdecError, match="different tokens after 2 tokens"):
        ranks.agrees(True)


def test_what_is_another_on_a_rank_is_named_with_both_values(monkeypatch):
    other = group(1, lambda values: values, monkeypatch)
    monkeypatch.setattr(other, "share", lambda text: '{"a": "1", "b": "2"}')
    other.require_same({"b": "2", "a": "1"}, "hint")
    for here, says in (({"a": "1"}, "b is missing on"), ({"a": "1", "b": "3"}, "b is 3 on")):
        with pytest.raises(SpecdecError, match=f"{says} rank 1, and 2 on rank 0"):
            other.require_same(here, "hint")
