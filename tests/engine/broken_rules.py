"""Rules with one known mistake each: negative controls for every test of a law."""

from dataclasses import replace

import mlx.core as mx
import numpy as np

from specdec_cli.engine.rules import Plan, plan_block, plan_token


def log(rows):
    with np.errstate(divide="ignore"):
        return mx.array(np.log(np.asarray(rows)).astype(np.float32))


class RawResidual(Plan):
    """What a rule does that forgets the residual: the next token always comes from p."""

    def residual_log(self, stood):
        return self.log_p[stood]


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
