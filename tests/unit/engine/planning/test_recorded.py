"""What a released pair's draft says along its target's own answers (`tests/benchmarks/record_answers.py`)."""

import json
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "fakes/recorded/answers.jsonl"
ANSWERS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def rates(drafter, kinds, positions=6):
    """P(a draft's token i is accepted | those before it were), i = 1 …, over all answers of `kinds`."""
    found = []
    for depth in range(positions):
        judged = accepted = 0
        for answer in (one for one in ANSWERS if one["kind"] in kinds):
            hits = [a == b for a, b in zip(answer[drafter], answer["answer"], strict=True)]
            judged_here = [hits[i + depth] for i in range(len(hits) - depth) if all(hits[i : i + depth])]
            judged, accepted = judged + len(judged_here), accepted + sum(judged_here)
        found.append(accepted / judged)
    return found


@pytest.mark.parametrize("kinds", [("code",), ("edit",), ("prose", "chat")], ids=", ".join)
def test_a_token_behind_accepted_ones_is_accepted_as_often_as_the_first(kinds):
    """So one rate for all positions loses nothing against a rate for each."""
    first, *later = rates("draft", kinds)
    assert all(first - 0.03 < rate < first + 0.15 for rate in later)


def test_the_pairs_own_draft_is_right_more_often_than_a_stranger_and_most_on_edits():
    kinds = ("code", "edit", "prose", "chat")
    own, other = ({kind: rates(name, (kind,), 1)[0] for kind in kinds} for name in ("draft", "stranger"))
    assert all(own[kind] > other[kind] for kind in kinds) and max(own, key=own.get) == "edit"
    assert min(own, key=own.get) == "prose" and own["code"] > 0.85 > 0.8 > own["chat"]
