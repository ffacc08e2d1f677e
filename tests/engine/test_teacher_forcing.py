"""One draft pass over a finished answer gives the rounds of every K; `tests/bench/test_live.py` compares real runs."""

import time

import pytest

from fakes.heads import agreeing_head, cached_head, tiny_target
from fakes.models import tiny_network
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft_length.fixed import Fixed
from specdec_cli.engine.drafters.base import Drafter, Parts, read_together
from specdec_cli.engine.drafters.mtp import MtpDrafter
from specdec_cli.engine.drafters.ngram import make
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.engine.teacher_forcing import TeacherForced, head_runs, proposals, runs


def test_runs_count_agreements_up_to_the_first_gap_and_the_depth():
    assert runs([True, True, False, True, True, True, True], 3) == [2, 1, 0, 3, 3, 2, 1]


def test_a_draft_agrees_with_its_own_text_and_not_with_another():
    """The text is the draft's own greedy continuation, one token at a time from a cache of its own."""
    draft, prompt, answer = CachedModel(tiny_network(seed=1), "d"), [5, 6, 7], []
    for _ in range(70):  # more than a chunk
        logits = draft.logits([*prompt, *answer], draft.ids([]))
        answer.append(int(logits[-1].argmax()))
        draft.commit([*prompt, *answer], len(prompt) + len(answer) - 1)
    forced = TeacherForced(CachedModel(tiny_network(seed=1), "d"), draft.vocab_size, greedy(draft.vocab_size))
    assert list(forced.agreements(prompt, answer)) == [True] * len(answer)
    other = TeacherForced(CachedModel(tiny_network(seed=99), "d"), draft.vocab_size, greedy(draft.vocab_size))
    assert not all(other.agreements(prompt, answer))


def test_a_lookup_is_asked_at_every_token_of_the_answer():
    target = CachedModel(tiny_network(seed=1), "t")
    drafter = make(Parts(target, None, greedy(target.vocab_size), Fixed(2)))
    drafted, accepted = proposals(drafter, [1, 2, 3, 9, 1], [2, 3, 9, 4], 2)
    assert (drafted, accepted) == ([0, 2, 2, 2], [0, 2, 1, 0])


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_heads_rounds_of_every_position_are_those_it_would_draft(temperature):
    """Against one proposal after another, each from what the drafter has read by then."""
    target, k = tiny_target(), 4
    prompt = [(7 * i) % 97 + 3 for i in range(9)]
    head = cached_head(target, agreeing_head(target))
    rules = [make_rule("coupled", Sampler(Sampling(temperature), 5, prompt, target.vocab_size)) for _ in range(2)]
    plain = decode(target, Drafter(), rules[0], Fixed(0), list(prompt), 24, frozenset(), time.perf_counter)
    answer = [token for round in plain for token in round.emitted]
    found = head_runs(head, target, rules[1], prompt, answer, k)
    drafter, accepted = MtpDrafter(head.fresh(), target, rules[1]), []
    for at in range(len(answer)):
        context = [*prompt, *answer[:at]]
        target.forget()
        drafter._head.forget()
        for _ in read_together(target, drafter, context):
            pass
        guess = drafter.propose(context, k).tokens.tolist()
        right = (i for i, (ours, theirs) in enumerate(zip(guess, answer[at:], strict=False)) if ours != theirs)
        accepted.append(next(right, min(k, len(answer) - at)))
    assert found == accepted and sum(found) > 0
