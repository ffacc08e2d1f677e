"""Two lanes over one network of every cache kind: neither's rollback touches what the other has read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.chat import networks, recorded, tokenizer_in
from specdec_cli.pairs.pair import Pair
from specdec_cli.race.race import RacePlan, race
from specdec_cli.request import Request

PROMPT = list(range(40, 60))


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "qwen3_5"])
def test_lanes_that_alternate_by_the_round_say_the_same(kind, tmp_path):
    session = recorded(*(networks(kind), tokenizer_in(tmp_path)))
    pair = replace(session.pair, pair=session.pair.pair or Pair("t", "t", None))
    plan = RacePlan(Request(max_tokens=40, k=3, drafter="model"), PROMPT, "", raw=True, turn_seconds=0.0)
    *_, finish = race(pair, plan)
    assert finish.divergence is None and finish.tokens[0] == finish.tokens[1] > 1
