"""How near the target and the draft came to choosing otherwise: what another processor's rounding could turn.

Used while recording only, hence it may look inside: every choice is an argmax or a comparison with a uniform number.
"""

from __future__ import annotations

from contextlib import contextmanager
from unittest.mock import patch

import mlx.core as mx
import numpy as np

from specdec_cli.engine.sampling import acceptance, rejection, sampler

RULES = (acceptance.Greedy, acceptance.Coupled, acceptance.Rejection)


def _gaps(scores):
    """Of each row the best score less the second best, in nats."""
    rows = np.array(scores.astype(mx.float32)).reshape(-1, scores.shape[-1])
    second, first = np.partition(rows, -2, axis=-1)[:, -2:].T
    return list(first - second)


class Margins:
    """`target` and `draft`: the smallest gap so far of a choice that decided anything; infinite without one."""

    def __init__(self):
        self.target = self.draft = np.inf
        self._made, self._drafted = [], []

    def drawing(self, original, gaps):
        def made(*arguments):
            self._made.append(gaps(*arguments))
            return original(*arguments)

        return made

    def choosing(self, original):
        def choose(rule, *arguments):
            self._made.clear()
            choice = original(rule, *arguments)
            self._drafted.append(self._made[-1][-1])
            return choice

        return choose

    def judging(self, original):
        def judge(rule, draft, *arguments):
            self._made.clear()
            verdict = original(rule, draft, *arguments)
            # What follows the first rejection decides nothing, but under block a later test may still pass.
            decided = len(draft) + 1 if rule.name == "block" else int(verdict.accepted) + 1
            self.target = min([self.target, *(gap for gaps in self._made for gap in gaps[:decided])])
            aligned = len(self._drafted) == len(draft)  # otherwise some tokens were forced, not chosen
            self.draft = min([self.draft, *(self._drafted[:decided] if aligned else self._drafted)])
            self._drafted.clear()
            return verdict

        return judge


@contextmanager
def measured():
    """The margins of all replies inside."""
    found, module = Margins(), {"best_tokens": _gaps, "draw": lambda log_p, noise: _gaps(log_p + noise)}
    places = [(acceptance, "best_tokens"), (acceptance, "draw"), (sampler, "draw"), (rejection, "draw")]
    patches = [patch.object(at, name, found.drawing(getattr(at, name), module[name])) for at, name in places]
    for name in ("_passed_before", "_passed_at"):

        def odds(uniform, accept):
            return list(np.abs(np.log(np.array(uniform)) - np.log(np.array(accept) + 1e-30)))

        patches.append(patch.object(rejection, name, found.drawing(getattr(rejection, name), odds)))
    for rule in RULES:
        patches.append(patch.object(rule, "choose", found.choosing(rule.choose)))
        patches.append(patch.object(rule, "judge", found.judging(rule.judge)))
    for each in patches:
        each.start()
    try:
        yield found
    finally:
        for each in reversed(patches):
            each.stop()
