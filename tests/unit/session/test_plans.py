"""Each round is decided by one pure function: what was decided in real replies is decided again from a log of them."""

import json
from dataclasses import asdict, replace

import pytest

import specdec_cli
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.planning.policy import Situation, plan

PROMPTS = (
    "def parse_date(text):",
    "class Stack:",
    "import os\n\n\ndef walk(path):",
    "for i in range(10):",
    "x = [1, 2, 3]",
)
REPLIES, TOKENS = 12, 24

pytestmark = pytest.mark.slow


def read(text):
    """The situation that `asdict` and JSON wrote."""
    values = json.loads(text)
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return Situation(**{**values, **lists})


def test_situations_of_real_replies_replay_to_the_same_plans(monkeypatch):
    log = []

    def recorded(drafters, *asked, **more):
        situation = drafters.situation(*asked, **more)
        log.append((json.dumps(asdict(situation)), json.dumps(asdict(chosen := plan(situation)))))
        return chosen

    monkeypatch.setattr(Drafters, "decide", recorded)
    pair = specdec_cli.load("demo")
    sessions = pair.session(), pair.session()
    for index in range(REPLIES):
        k, drafter = ("auto", "auto") if index % 3 else (3, "auto")
        prompt = PROMPTS[index % len(PROMPTS)]
        list(sessions[index % 2].reply(prompt, raw=True, k=k, drafter=drafter, max_tokens=TOKENS, temperature=0.0))
    assert len(log) > 5 * REPLIES
    assert [json.dumps(asdict(plan(read(situation)))) for situation, _ in log] == [chosen for _, chosen in log]
    # Negative control: plans depend on what the log holds.
    dearer = [replace(read(situation), steps=tuple(100.0 for _ in read(situation).steps)) for situation, _ in log]
    assert [json.dumps(asdict(plan(one))) for one in dearer] != [chosen for _, chosen in log]
