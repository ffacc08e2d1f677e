"""Memory stays within its budget, however many conversations come."""

import time
from dataclasses import replace

import pytest

from fakes.chat import BYTES, NEVER_STOP, fit_of, networks, tokenizer_in
from fakes.server import local
from fakes.serving import Client, answer, desk_of, ids, job, tiny_loaded
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.request import Request
from specdec_cli.engine import device
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.limits import HEADROOM
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot


def held(pair, requests, budget_bytes, kind_system=60):
    """(bytes accounted, bytes that mlx holds) after every request."""
    desk, system, found = desk_of(pair, cache_bytes=budget_bytes, slots=1000), ids(kind_system, 5), []
    for number in range(requests):
        answer(desk, job((*system, *ids(40 + 13 * number % 90, number)), 4, (kind_system,)))
        found.append((desk.status().cache_bytes, device.active_memory_bytes()))
    desk.close()
    return found


@pytest.mark.parametrize(
    ("kind", "requests"),
    [
        pytest.param("plain", 20, marks=pytest.mark.slow),
        pytest.param("recurrent", 40, marks=pytest.mark.full),
        *(pytest.param(kind, 300, marks=pytest.mark.full) for kind in ("plain", "window", "recurrent")),
    ],
)
def test_memory_is_flat_over_many_requests(tmp_path, kind, requests):
    """A budget of about five conversations: accounted bytes stay below, and mlx's do not grow."""
    pair = tiny_loaded(tmp_path, kind)
    budget = 5 * max(accounted for accounted, _ in held(pair, 1, 1 << 30))
    found = held(pair, requests, budget)
    half = [active for _, active in found[requests // 3 : 2 * requests // 3]]
    last = [active for _, active in found[2 * requests // 3 :]]
    print(
        f"{kind}, {requests} requests, budget {budget:,}: accounted at most {max(a for a, _ in found):,}; "
        f"mlx at most {max(half):,} in the second third, {max(last):,} in the last"
    )
    assert all(accounted <= budget for accounted, _ in found)
    assert max(last) <= max(half) + budget // 5


@pytest.mark.slow
def test_without_a_budget_it_grows(tmp_path):
    """Negative control: the same requests with a budget that nothing reaches."""
    found = held(tiny_loaded(tmp_path), 16, 1 << 40)
    assert found[-1][0] > 3 * found[3][0] and found[-1][1] > found[3][1] + 2 * found[3][0]


@pytest.mark.slow
def test_idle_models_take_no_memory(tmp_path, open_desk):
    """Weights, caches and everything learned of them go; and come back with the next job."""

    def load():
        target, draft = (CachedModel(network, "m") for network in networks("qwen3"))
        slot = Slot(target, draft)
        return LoadedPair(Pair("tiny", "t", "d"), ("t", "d"), tokenizer_in(tmp_path), slot, fit_of(slot))

    device.settle()
    before = device.active_memory_bytes()
    desk = open_desk(load, idle_seconds=0.5)
    for _ in range(2):
        answer(desk, job(ids(200), 20))
        loaded = device.active_memory_bytes() - before
        end = time.monotonic() + 5
        while (left := device.active_memory_bytes() - before) > loaded / 20 and time.monotonic() < end:
            time.sleep(0.01)
        print(f"{loaded:,} bytes with the models, {left:,} without")
        assert left < loaded / 20


@pytest.mark.parametrize("kind", ["plain", pytest.param("recurrent", marks=pytest.mark.slow)])
def test_accounted_bytes_are_those_that_mlx_holds(tmp_path, kind):
    """What twelve conversations add to mlx's memory is what the slots say, within a fifth."""
    pair = tiny_loaded(tmp_path, kind)
    held(pair, 1, 1 << 30)  # whatever is made once
    device.settle()
    before = device.active_memory_bytes()
    desk = desk_of(pair, slots=100)
    for number in range(12):
        answer(desk, job(ids(150, number), 4))
    accounted, grown = desk.status().cache_bytes, device.active_memory_bytes() - before
    desk.close()
    print(f"{kind}: accounted {accounted:,}, mlx grew by {grown:,}")
    assert 0.8 * grown <= accounted <= 1.2 * grown


def test_a_server_says_when_its_jobs_will_take_most_of_the_memory_and_how_to_get_more(tiny, open_desk):
    fit = tiny.fit.at(1536)
    small = replace(tiny, fit=replace(tiny.fit, usable_bytes=int(1.02 * fit.peak_bytes / HEADROOM)))
    desk, said = open_desk(small), []
    for tokens in (100, 1450):
        Client(desk, job(ids(tokens), 4), lambda client, event: said.append(desk.status().warning)).wait()
        said.append(None)
    assert desk.status().warning == ""
    with pytest.raises(DoesNotFit, match="are usable") as refused:
        desk.submit(job(ids(1600), 4), print)
    few, most = said[: said.index(None)], said[said.index(None) + 1 : -2]
    assert not any(few) and most and all(words.startswith("memory 9") for words in most)
    assert most[0].partition(": ")[2] in refused.value.hint and "--drafter none frees" in refused.value.hint


def test_an_answer_whose_length_nobody_asked_for_is_as_long_as_the_memory_allows(tiny, open_desk):
    """Without `max_tokens` 16,384 were counted: on a small machine every such request was a 413."""
    fit = replace(tiny.fit, usable_bytes=int(1.02 * tiny.fit.at(1280).peak_bytes / HEADROOM))
    model = Model("tiny", "t", None, tiny.tokenizer, BYTES, None, Request(k=4, logit_bias=NEVER_STOP))
    with local(model, open_desk(replace(tiny, fit=fit))) as client:
        asked = {"prompt": ids(1260)}, {"prompt": ids(1260), "n_predict": 400}, {"prompt": ids(1600)}
        replies = [client.post("/v1/completions", json=body) for body in asked]
    assert [reply.status_code for reply in replies] == [200, 413, 413]
    assert replies[0].json()["usage"]["total_tokens"] == fit.memory_tokens == 1280
