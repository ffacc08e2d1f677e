"""Acceptance of a draft in a text that is known already.

Law: at temperature 0 and under `coupled` the target's text does not depend on the draft (up to rounding), and a draft
token is accepted iff it is the text's own. Teacher forcing: while a draft is right it has read the target's own text,
so acceptance of its next token depends on the position alone. One draft pass over a finished answer gives the rounds of
every K.
Letters: K drafted tokens, T tokens read at once, V the target's vocabulary size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.drafters.base import Drafter, Verified
from specdec_cli.engine.drafters.model import ModelDrafter
from specdec_cli.engine.heads.branches import Text, outputs
from specdec_cli.engine.heads.cached import CachedHead
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule

# T: logits of that many positions are held at once.
CHUNK_TOKENS = 64


class TeacherForced(ModelDrafter):
    """The draft model, reading a text instead of writing one."""

    def agreements(self, prompt: Sequence[int], answer: Sequence[int]) -> Iterator[bool]:
        """For each token of `answer`: would the draft, having read everything before it, have chosen the same?"""
        deque(self.prefill(prompt), maxlen=0)
        for at in range(0, len(answer), CHUNK_TOKENS):
            chunk, context = answer[at : at + CHUNK_TOKENS], [*prompt, *answer[:at]]
            logits = self._draft.logits(context, self._draft.ids(chunk[:-1]))
            chosen = []
            for row, token in enumerate(chunk):
                choice = self._rule.choose(self._fit(logits[row : row + 1]), len(context) + row, ())
                chosen.append(choice.token)
                self._rule.commit([token])
            for ours, token in zip(device.to_list(mx.concatenate(chosen)), chunk, strict=True):
                yield ours == token
        whole = [*prompt, *answer]
        self._draft.commit(whole, len(whole) - 1)


def head_runs(
    head: CachedHead, target: CachedModel, rule: AcceptanceRule, prompt: Sequence[int], answer: Sequence[int], k: int
) -> list[int]:
    """[t] = how many of the `k` tokens that `head` would draft at token t of `answer` are the answer's own in a row.

    What it carries from token to token depends on where a draft begins, so each position is drafted from by itself, all
    of them side by side.
    """
    whole, cached, head = [*prompt, *answer], target.fresh(), head.fresh()
    hidden = mx.concatenate([chunk.hidden[head.head.recipe.reads] for chunk in cached.prefill(whole)])
    text = Text(whole, len(prompt), {head.head.recipe.reads: hidden})
    scored, found = text.scored(1), [0] * (len(whole) - len(text.scored(1)) - len(prompt))
    steps = outputs(head.head.module, head.head.readout, text, scored, k)
    head.see(prompt)
    for row, at in enumerate(scored):
        head.see(whole[at - 1 : at])
        following = [mx.array([token], dtype=mx.int32) for token in whole[at : at + k]]
        logits = (head.logits(states[row : row + 1]) for states in steps)
        pairs = enumerate(zip(logits, following, strict=False))
        choices = [rule.choose(scores, at + step, following[:step]).token for step, (scores, _) in pairs]
        guesses = device.to_list(mx.concatenate(choices))
        agreements = [ours == theirs for ours, theirs in zip(guesses, whole[at : at + k], strict=True)]
        found.append(runs(agreements, k)[0])
        rule.commit(whole[at : at + 1])
    return found


def runs(agreements: Sequence[bool], deepest: int) -> list[int]:
    """[t] = how many tokens from t on agree without a gap, at most `deepest`."""
    found, following = [0] * len(agreements), 0
    for at in reversed(range(len(agreements))):
        following = min(following + 1, deepest) if agreements[at] else 0
        found[at] = following
    return found


def proposals(
    drafter: Drafter, prompt: Sequence[int], answer: Sequence[int], deepest: int
) -> tuple[list[int], list[int]]:
    """(drafted, accepted) of a round that begins at each token of `answer`, for a drafter that proposes at no cost."""
    drafted, accepted, context = [], [], list(prompt)
    for at, token in enumerate(answer):
        guess = device.to_list(drafter.propose(context, deepest).tokens)
        agreeing = 0
        for ours, theirs in zip(guess, answer[at:], strict=False):
            if ours != theirs:
                break
            agreeing += 1
        drafted.append(len(guess))
        accepted.append(agreeing)
        context.append(token)
        drafter.commit(Verified(context))
    return drafted, accepted
