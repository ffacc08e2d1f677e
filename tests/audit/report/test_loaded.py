"""Parts on a tiny real pair: what they measure, what they keep, and what they say where they cannot."""

import gc
import json
import time
from itertools import count

import pytest

from specdec_cli.audit.prompts import BUNDLED
from specdec_cli.audit.report import loaded
from specdec_cli.audit.report.budget import Deadline, Impossible
from specdec_cli.audit.report.loaded import LONG_TOKENS, SHORT_TOKENS, LoadedParts
from specdec_cli.engine.memory import memory_use
from specdec_cli.engine.timing import ROWS
from specdec_cli.errors import DoesNotFit
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.load import load


def soon(seconds=60.0):
    return Deadline(time.perf_counter, time.perf_counter() + seconds)


@pytest.fixture
def parts(tiny_pair, monkeypatch):
    """A loaded tiny pair; passes and replies are few and short."""
    monkeypatch.setattr(loaded, "PASSES", 2)
    monkeypatch.setattr(loaded, "REPLIES", 2)
    monkeypatch.setattr(loaded, "REPLY_TOKENS", 40)
    monkeypatch.setattr(loaded, "AUDIT_TOKENS", 8)
    target, draft = map(str, tiny_pair)
    found = LoadedParts(lambda reserve_tokens: load(Pair("tiny", target, draft)).session())
    found.load({}, soon())
    return found


def test_loading_says_what_the_models_are_and_what_they_take(tiny_pair):
    target, draft = map(str, tiny_pair)
    data = {}
    asked = []

    def opened(reserve_tokens):
        asked.append(reserve_tokens)
        return load(Pair("tiny", target, draft)).session()

    assert LoadedParts(opened).load(data, soon()) == ""
    assert asked == [LONG_TOKENS] and data["target"]["dtype"] == "float32" and data["draft"]["caches"] == ["KVCache"]
    grown = data["memory_after"]["active_bytes"] - data["memory_before"]["active_bytes"]
    assert grown >= 0.9 * (data["target"]["weight_bytes"] + data["draft"]["weight_bytes"])


def test_a_pair_too_large_for_a_long_context_is_loaded_for_a_short_one(tiny_pair):
    target, draft = map(str, tiny_pair)

    def opened(reserve_tokens):
        if reserve_tokens > SHORT_TOKENS:
            raise DoesNotFit("9 GB and 8 GB", "close something")
        return load(Pair("tiny", target, draft)).session()

    found = LoadedParts(opened)
    found.load({}, soon())
    with pytest.raises(Impossible, match="caches of 8192 tokens do not fit"):
        found.row_costs(LONG_TOKENS)({}, soon())


def test_row_costs_of_both_models_are_ready_for_json(parts):
    data = {}
    assert parts.row_costs(100)(data, soon()) == ""
    assert [[cost["rows"] for cost in data[role]] for role in ("target", "draft")] == [list(ROWS)] * 2
    assert all(cost["total_seconds"] >= cost["build_seconds"] + cost["queue_seconds"] for cost in data["target"])
    json.dumps(data)


def test_a_context_that_a_model_cannot_hold_is_named(parts):
    with pytest.raises(Impossible, match="target: its context holds 256 tokens; draft: its context holds 256 tokens"):
        parts.row_costs(SHORT_TOKENS)({}, soon())


def test_row_costs_without_time_say_how_far_they_came(parts):
    with pytest.raises(Impossible, match="target: time for 0 of 2 passes of every row count"):
        parts.row_costs(100)({}, soon(0))


def test_replies_go_on_to_their_last_token_and_memory_is_read_after_each(parts):
    session, data = parts.session, {}
    said = list(session.reply(session.chat_tokens(BUNDLED[0].text), k=0, max_tokens=8, temperature=0.0))[-1].tokens
    session.pair.tokenizer.stop_tokens = frozenset(said[2:4])
    assert parts.memory(data, soon()) == ""
    assert [reply["tokens"] for reply in data["replies"]] == [40, 40]
    assert set(data["before"]) == {"active_bytes", "cache_bytes", "peak_bytes", "wired_bytes"}


def test_replies_end_with_their_time_and_the_last_one_may_be_cut(parts):
    data = {}
    assert parts.memory(data, soon(0)) == "time for 0 of 2 whole replies" and len(data["replies"]) == 1


def test_an_audit_keeps_results_and_gaps_and_no_text(parts):
    data = {}
    assert parts.audit(data, soon()) == ""
    assert [found["result"] for found in data["findings"]] == ["identical"] * 3 * len(BUNDLED)
    assert not any(prompt.text in json.dumps(data) for prompt in BUNDLED)
    assert set(data["findings"][0]) == {
        *("prompt", "k", "result", "tokens_compared", "draft_n", "draft_n_accepted", "position", "gap", "limit")
    }


def test_without_a_draft_the_text_itself_drafts(tiny_pair, monkeypatch):
    monkeypatch.setattr(loaded, "AUDIT_TOKENS", 24)
    found = LoadedParts(lambda _: load(Pair("tiny", str(tiny_pair[0]), None), drafter="ngram").session())
    data = {}
    found.load(data, soon())
    found.audit(data, soon())
    assert "draft" not in data and {finding["k"] for finding in data["findings"]} == {1, 4, 8}
    assert sum(finding["draft_n"] for finding in data["findings"]) > 0


def test_an_audit_ends_with_its_time_and_keeps_what_it_has(parts):
    data = {}
    assert parts.audit(data, soon(0)) == f"time for 1 of {len(BUNDLED)} prompts" and len(data["findings"]) == 3


def test_a_dropped_pair_leaves_no_memory_behind(parts):
    before, data = memory_use().active_bytes, {}
    weights = sum(model.weight_bytes for _, model in parts._models())
    parts.drop(data, soon())
    gc.collect()
    assert before - memory_use().active_bytes >= 0.9 * weights
    with pytest.raises(Impossible, match="the pair is not loaded"):
        parts.drop({}, soon())


@pytest.mark.parametrize("part", ["memory", "audit"])
def test_without_a_loaded_pair_nothing_is_measured(part):
    with pytest.raises(Impossible, match="the pair is not loaded"):
        getattr(LoadedParts(lambda _: None), part)({}, soon())


def test_the_clock_is_the_given_one(tiny_pair):
    target, draft = map(str, tiny_pair)
    ticks, data = count(0, 5), {}
    LoadedParts(lambda _: load(Pair("tiny", target, draft)).session(), lambda: float(next(ticks))).load(data, soon())
    assert data["seconds"] == 5.0
