"""Mutual learning: target and draft learn from each other, so that the target is easy to guess where it may choose.

The draft learns the target's distribution, as ever. Here the target leans to the draft's as well, on text that it
writes itself, beside likelihood on the corpus and unlikelihood of what it repeats (`loops`). Where the corpus decides,
nothing changes; where several words would do, both come to prefer the same (Zhang et al., arXiv:1706.00384).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agreement import measure
from averaging import least_step, state_of
from fitting import Log, Schedule, fit
from network import Network
from own_text import PROMPT, own_text, unlikelihood
from windows import Streams, windows


@dataclass(frozen=True, slots=True)
class Pass:
    """`steps` at `peak` of the learning rates; own text of `rows` × `width` tokens; `lean`: weight of the draft's
    distribution, `repeats`: of the target's repetitions; `window`: tokens of a row of the corpus."""

    steps: int
    peak: float
    rows: int
    width: int
    lean: float
    repeats: float
    seed: int
    window: int = 256


AGREE = Pass(120, 0.2, 96, 256, 1.0, 2.0, 90_000)
CALM = Pass(120, 0.2, 96, 256, 0.5, 4.0, 95_000)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)


class Both(nn.Module):
    """The pair as one module: `fit` trains and keeps both."""

    def __init__(self, target: Network, draft: Network) -> None:
        super().__init__()
        self.target, self.draft = target, draft


def learn_mutually(
    target: Network, draft: Network, streams: Streams, validation: np.ndarray, work: Path, log: Log
) -> None:
    """Train both in place: to agree, then to repeat less; of the way between, the least step that repeats little."""
    both = Both(target, draft).requires_grad_(True)
    fit_together("agree", both, AGREE, streams, work / "agree.pt", log)
    agreed = state_of(both)
    fit_together("calm", both, CALM, streams, work / "calmer.pt", log)
    least_step(both, agreed, target, validation, SHARES, work / "mutual.pt", log)
    both.requires_grad_(False)
    log.say(stage="validate", **measure(target, draft, validation))


def fit_together(name: str, both: Both, each: Pass, streams: Streams, checkpoint: Path, log: Log) -> None:
    """One pass, of both at once; resumes from `checkpoint`."""
    fit(name, both, Schedule(each.steps, 0.6, each.peak), _loss(both, streams, each, log), checkpoint, log)


def _loss(both: Both, streams: Streams, each: Pass, log: Log):
    """Of a step: what the target learns (corpus, draft, no repeats) and what the draft learns, on the same batches."""

    @torch.compile(dynamic=False)
    def loss(corpus: Tensor, own: Tensor, looping: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            p_corpus, p_own = (both.target(ids[:, :-1]).float() for ids in (corpus, own))
            q_corpus, q_own = (both.draft(ids[:, :-1]).float() for ids in (corpus, own))
        likelihood = F.cross_entropy(p_corpus.flatten(0, 1), corpus[:, 1:].flatten())
        p, q = p_own.log_softmax(-1), q_own.log_softmax(-1)
        fresh = torch.cat((torch.ones_like(own[:, 1:PROMPT]), 1 - looping), 1)
        lean = (_divergence(q.detach(), p) * fresh).sum() / fresh.sum()
        learned = (lesson(p_corpus.log_softmax(-1), q_corpus.log_softmax(-1)) + lesson(p, q)) / 2
        return likelihood + each.lean * lean + each.repeats * unlikelihood(p, own, looping) + learned

    def say(step: int, repetition: float) -> None:
        log.say(stage="mutual", step=step, repetition_rate=repetition)

    text = own_text(both.target, streams, each.rows, each.width, each.seed, say)

    def loss_of(step: int) -> Tensor:
        corpus = windows(streams, each.window, np.random.default_rng(each.seed + 10_000 + step))
        return loss(corpus, *text(step))

    return loss_of


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """[B, T]: KL(p ‖ q) of log-probabilities [B, T, V]."""
    return (p.exp() * (p - q)).sum(-1)


def lesson(p: Tensor, q: Tensor) -> Tensor:
    """What a draft learns of its target, of log-probabilities q and p [B, T, V]: KL, and half a cross-entropy to p's
    argmax; p gets no gradient."""
    p = p.detach()
    return _divergence(p, q).mean() + 0.5 * F.nll_loss(q.flatten(0, 1), p.argmax(-1).flatten())
