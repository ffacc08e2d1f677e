"""Rules with one known mistake each: negative controls for every test of a law."""

from dataclasses import replace

import mlx.core as mx
import numpy as np

from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.sampling.acceptance import Coupled, DraftToken, Rejection, Verdict
from specdec_cli.engine.sampling.rejection import RejectionOdds, draw_coupled, plan_block, plan_token
from specdec_cli.engine.sampling.warps import draw, log_probs


def log(rows):
    with np.errstate(divide="ignore"):
        return mx.array(np.log(np.asarray(rows)).astype(np.float32))


class RawResidual(RejectionOdds):
    """What a rule does that forgets the residual: the next token always comes from p."""

    def residual_log(self, accepted):
        return self.log_p[accepted]


def raw_residual(plan):
    def broken(tokens, log_q, log_p):
        made = plan(tokens, log_q, log_p)
        return RawResidual(made.accept, made.weight, tokens, log_q, log_p)

    return broken


def swapped(plan):
    def broken(tokens, log_q, log_p):
        other = plan(tokens, log_p[: tokens.size], mx.concatenate([log_q, log_p[tokens.size :]]))
        return replace(plan(tokens, log_q, log_p), accept=other.accept)

    return broken


def tokens_residual_under_block(tokens, log_q, log_p):
    return replace(plan_block(tokens, log_q, log_p), weight=mx.ones(tokens.size + 1))


def tokens_odds_under_block(tokens, log_q, log_p):
    return replace(plan_block(tokens, log_q, log_p), accept=plan_token(tokens, log_q, log_p).accept)


def once_drafted(broken, plan):
    """`broken` where something was drafted, `plan` in the first round of an answer."""
    return lambda tokens, log_q, log_p: (broken if tokens.size else plan)(tokens, log_q, log_p)


class SharedNoise(Rejection):
    """Draft and residual draw with the same noise, as in vllm#54282."""

    def choose(self, logits, position, ahead):
        log_q = log_probs(logits, self._sampler.sampling)
        noise = self._sampler.noise.gumbel("residual", position, self._sampler.vocab_size)
        return DraftToken(draw(log_q, noise[None]), log_q)


class RepeatedNoise(Rejection):
    """Every draft token is drawn with the same noise."""

    def choose(self, logits, position, ahead):
        log_q = log_probs(logits, self._sampler.sampling)
        return DraftToken(draw(log_q, self._sampler.noise.gumbel("draft", 0, self._sampler.vocab_size)[None]), log_q)


class ShrinkingKey(Rejection):
    """Noise is numbered by where a round may end: where K shrinks at the end of an answer, rounds share a number."""

    def judge(self, draft, logits, position, uncommitted=NO_TOKENS):
        return super().judge(draft, logits, position + len(draft), uncommitted)


class StuckNoise(Coupled):
    """One noise for every position."""

    def judge(self, draft, logits, position, uncommitted=NO_TOKENS):
        log_p = self._sampler.for_target(logits, draft.tokens, uncommitted)
        noise = mx.repeat(
            self._sampler.noise.gumbel("target", 0, self._sampler.vocab_size)[None], len(draft) + 1, axis=0
        )
        return Verdict(*draw_coupled(draft.tokens, log_p, noise))
