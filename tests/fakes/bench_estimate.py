"""Estimates by hand: log speed-ups of one arm, predicted and measured."""

from specdec_cli.bench.estimate import Estimate
from specdec_cli.bench.result import Arm, Condition, Contender, PromptId

HERE = Condition(Contender("model", "org/draft"), 0.0)


def arm(k, contender=HERE.contender):
    return Arm(contender, 0.0, k)


def logs(values):
    return {PromptId("code", str(at)): value for at, value in enumerate(values)}


def estimate(k, predicted, measured=(), contender=HERE.contender):
    made = logs(predicted)
    return Estimate(arm(k, contender), made, logs(measured), relative=made)
