"""`specdec check` as a person types it: the verdict, and how little it fetches."""

from __future__ import annotations

import json
import re

import pytest

from fakes.models import TINY
from fakes.world import BIG, ODD, SMALL

pytestmark = pytest.mark.slow


def test_check_of_a_pair_that_is_not_here_fetches_only_small_files(world):
    done = world("check", "tiny")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:11] == [
        "pair            tiny",
        "target          org/big",
        "draft           org/small",
        "tokenizers      identical: all 259 ids agree",
        "template        yes",
        "stops at        <|endoftext|> <|im_end|>",
        "target caches   KVCache",
        "draft caches    KVCache",
        "target context  256 tokens (max_position_embeddings)",
        "draft context   256 tokens (max_position_embeddings)",
        "break-even      not even full acceptance pays, at typical costs of K 3",
    ]
    assert re.search(r"\n *memory +weights +caches at 256 +sum", done.out)
    assert done.out.splitlines()[-1] == "runs        specdec run -p tiny 'your prompt'"
    assert world.weight_bytes_sent() == 0 and world.hub.fetched()["tokenizer.json"] > 0


def test_check_as_json_refuses_other_ids_with_exit_4_and_names_the_first(world):
    done = world("check", "odd", "--json")
    found = json.loads(done.out)
    assert (done.code, found["exit_code"], found["verdict"]) == (4, 4, "refused")
    reason = found["tokenizers"].pop("reason")
    assert re.fullmatch(r"id 40 is 'F' in the target and 'FFF' in the draft, and .*", reason)
    assert round(found["tokenizers"].pop("share"), 2) == 0.42
    assert found["tokenizers"] == {"status": "incompatible", "first_difference": 40}
    assert found["obstacles"][0]["message"] == f"tokenizers of org/big and org/odd differ: {reason}"
    assert {model["name"] for model in found["memory"]["models"]} == {BIG, ODD}
    assert world.weight_bytes_sent() == 0


def test_check_of_a_context_that_does_not_fit_exits_5_and_says_which_would(world, folders):
    config = {**TINY, "max_position_embeddings": 2_000_000_000}
    for name in (BIG, SMALL):
        files = {path.name: path.read_bytes() for path in folders[name].iterdir()}
        world.hub.commit(name, files | {"config.json": json.dumps(config).encode()})
    done = world("check", "tiny", "--max-context", "1000000000")
    assert done.code == 5
    assert re.search(
        r"refused     org/big and org/small need [\d.]+ GB at 1000000000 tokens of\s+context; [\d.]+ .B", done.out
    )
    assert re.search(r"hint        a smaller context fits: --max-context \d+; --force loads it\s+anyway", done.out)
