"""One draft pass over a finished answer gives the rounds of every K; `tests/bench/test_live.py` compares real runs."""

from fakes.models import tiny_network
from specdec_cli.engine.draft_length.fixed import Fixed
from specdec_cli.engine.drafters.base import Parts
from specdec_cli.engine.drafters.ngram import make
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.engine.teacher_forcing import TeacherForced, proposals, runs


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
