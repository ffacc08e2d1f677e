"""Estimates by hand: log speed-ups of one arm."""

from specdec_cli.bench.estimate import Estimate
from specdec_cli.bench.result import Arm, Condition, Contender, PromptId

HERE = Condition(Contender("model", "org/draft"), 0.0)


def arm(k, contender=HERE.contender):
    return Arm(contender, 0.0, k)


def estimate(k, measured, contender=HERE.contender):
    return Estimate(arm(k, contender), {PromptId("code", str(at)): value for at, value in enumerate(measured)})
