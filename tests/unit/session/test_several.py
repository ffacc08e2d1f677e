"""The message in which rank 0 tells what to open and what to answer; ranks themselves are in `tests/e2e`."""

import json
from dataclasses import asdict, replace

import pytest
from pydantic import TypeAdapter

from specdec_cli.core.request import Constraint, Request
from specdec_cli.measure.audit import AuditPlan
from specdec_cli.measure.prompts import bundled
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.several import Task

ASKED = Request(
    9, k=3, stop=("a", "b"), seed=7, sampling={"temperature": 0.7}, logit_bias=((5, -float("inf")), (6, 2.0)),
    constraint=Constraint("regex", "[a-z]+"), bad_words=("x",), stop_tokens=(1, 2),
)  # fmt: skip
TASKS = [
    Task("open", PairSpec(Pair("p", "t", "d", draft_context=512), "auto"), 4096, request=ASKED),
    Task("reply", prompt=(3, 1, 2), request=replace(ASKED, k="auto", seed=None), raw=True),
    Task("plain", prompt=(3,)),
    Task("sum", numbers=250),
]


def told(task):
    return TypeAdapter(Task).validate_python(json.loads(json.dumps(asdict(task))))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_what_a_rank_is_told_is_what_rank_0_does(task):
    assert told(task) == task


def test_a_rank_audits_by_the_plan_of_rank_0():
    plan = AuditPlan(list(bundled("audit")), [1, "auto"], temperature=0.5)
    assert TypeAdapter(AuditPlan).validate_python(told(Task("audit", plan=asdict(plan))).plan) == plan
