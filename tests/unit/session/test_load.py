"""From names to weights: refusals before any weight is read, and what conversations of a pair share."""

from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn
import pytest

from fakes.counting import counting_folder
from fakes.device import FakeMemory
from fakes.models import TINY, other_letters, swap_two_ids, tiny_folder
from fakes.server import until
from specdec_cli.apps.tune.trainee import trainee
from specdec_cli.core.errors import DoesNotFit, NotAvailable, Refused
from specdec_cli.core.events import RoundDone
from specdec_cli.core.format import size
from specdec_cli.core.request import Request
from specdec_cli.core.safetensors import read_header
from specdec_cli.engine import device
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session import load as session_load
from specdec_cli.session import ready
from specdec_cli.session.load import beside, load, load_weights


@pytest.fixture(scope="module")
def loaded(tiny_pair):
    return load(Pair("tiny", *map(str, tiny_pair)))


@pytest.fixture
def warmed(monkeypatch, device_says):
    """What is compiled ahead on a device that fuses: (which part, of what)."""
    calls = []
    for part in ("warm_up", "warm_up_network", "warm_up_products"):
        monkeypatch.setattr(ready, part, lambda *given, part=part: calls.append((part, given)))
    device_says(fuses=True)
    return calls


@pytest.mark.parametrize(
    ("asked", "rule", "temperature", "top_k"),
    [
        (None, "greedy", 0.0, 0),
        (Request(sampling={"temperature": 0.7, "top_k": 20}), "block", 0.7, 20),
        (Request(sampling={"temperature": 0.7}, seed=3), "coupled", 0.7, 0),
    ],
)
def test_the_kernels_of_a_first_reply_are_compiled_before_the_pair_is_there(
    tiny_pair, warmed, asked, rule, temperature, top_k
):
    load(Pair("tiny", *map(str, tiny_pair)), request=asked)
    (_, (named, sampling, *rest)), *networks = warmed
    assert (named, sampling.temperature, sampling.top_k, *rest) == (
        rule,
        temperature,
        top_k,
        259,
        "float32",
        True,
        True,
    )
    assert [(part, model.name) for part, (model,) in networks] == [("warm_up_network", str(one)) for one in tiny_pair]


def test_products_of_a_packed_head_are_warmed_up_as_its_target_s_are(tmp_path, warmed):
    files = find(PairSpec(Pair("m", str(counting_folder(tmp_path / "m")), None)))
    with ready.warming(files, Request(), print):
        pass
    assert ("warm_up_products", (files.head.tensors, files.head.config, "float32")) in warmed


def test_kernels_are_compiled_while_the_tokenizer_is_read_already(tiny_pair, monkeypatch, warmed):
    """The bug: they waited for it, for a second or two."""
    of = Tokenizer.of
    monkeypatch.setattr(Tokenizer, "of", lambda checkpoint: until(lambda: warmed) or of(checkpoint))
    assert load(Pair("tiny", *map(str, tiny_pair))).tokenizer


def test_a_draft_is_loaded_only_where_the_drafter_uses_one(tiny_pair):
    pair = Pair("tiny", str(tiny_pair[0]), "no/such-draft")
    for drafter in ("ngram", "none"):
        found = load(pair, drafter=drafter)
        assert (found.draft_kind, found.names[1], found.slot().draft) == (None, None, None)
    with pytest.raises(NotAvailable):
        load(pair, drafter="model")


def test_what_does_not_fit_is_refused_before_any_weight_is_read(tiny_pair, tmp_path, device_says):
    folder = tiny_folder(tmp_path / "m", TINY)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])  # its header says how large it is
    device_says(usable_bytes=1000)
    with pytest.raises(DoesNotFit):
        load(Pair("tiny", str(folder), None), reserve_tokens=64)


def test_a_draft_that_does_not_fit_beside_its_target_is_refused(loaded, device_says):
    """Half as much again as the target takes: enough for it alone, and not for a draft that is as large."""
    alone = Fit.of(find(PairSpec(replace(loaded.pair, draft=None)))).at(64)
    room = 3 * alone.peak_bytes // 2
    device_says(usable_bytes=room)
    assert load(loaded.pair, drafter="none", reserve_tokens=64).draft_kind is None
    with pytest.raises(DoesNotFit, match=f"{loaded.pair.target} and {loaded.pair.draft} need .* usable") as refused:
        load(loaded.pair, reserve_tokens=64)
    assert "--drafter none" in refused.value.hint


def test_costs_are_kept_apart_by_models_revisions_cache_precision_and_draft_context(tiny_pair, tmp_path):
    target, draft = map(str, tiny_pair)
    store, pair = {}, Pair("tiny", target, draft)
    found, before = load(pair, costs=store), len(store)
    found.costs["x"] = {"i": 1}
    assert found.costs.get("x") == {"i": 1} and len(store) == before + 1
    assert target in found.identity and "kv full" in found.identity
    wide = str(tiny_folder(tmp_path / "wide", TINY | {"head_dim": 32}, seed=1))
    others = [
        load(Pair("tiny", target, draft, target_revision="v1")),
        load(Pair("tiny", wide, None)),
        load(Pair("tiny", wide, None), kv_bits=8),
        *(load(pair, draft_context=tokens) for tokens in (8, 33, "full")),
    ]
    assert len({found.identity, *(other.identity for other in others)}) == 1 + len(others)


def test_the_time_a_draft_took_to_load_is_what_loading_it_again_costs(tiny_pair):
    target, draft = map(str, tiny_pair)
    for pair, seconds in ((Pair("tiny", target, draft), 3.5), (Pair("tiny", target, None), 0.0)):
        assert load(pair, clock=iter([10.0, 13.5]).__next__).reload_seconds == seconds


def test_another_draft_beside_the_same_target_shares_its_weights(loaded, tmp_path):
    other = tiny_folder(tmp_path / "other", TINY, seed=9)
    second = beside(loaded, replace(loaded.pair, draft=str(other)))
    assert second.first.target is loaded.first.target and second.names == (loaded.names[0], str(other))
    wrong = tiny_folder(tmp_path / "wrong", TINY)
    (wrong / "tokenizer.json").write_bytes(other_letters((wrong / "tokenizer.json").read_bytes()))
    with pytest.raises(Refused):
        beside(loaded, replace(loaded.pair, draft=str(wrong)))


def test_a_draft_of_another_tokenizer_is_loaded_as_one_and_answers_as_the_target(loaded, tmp_path):
    """By a pair, beside a target, and told of what it lacks; an event names its kind."""
    draft = tiny_folder(tmp_path / "draft", TINY, seed=1, noise=0.02)
    text = swap_two_ids((draft / "tokenizer.json").read_bytes())
    (draft / "tokenizer.json").write_bytes(text.replace(b'"e":', b'"eee":').replace(b'"t":', b'"ttt":'))
    heard = []
    other = load(Pair("tiny", loaded.pair.target, str(draft)), tell=heard.append)
    assert other.draft_kind == beside(loaded, other.pair).draft_kind == "translated"
    assert len(heard) == 1 and "the draft's tokenizer can say only 89 % of the target's tokens" in heard[0]
    request = Request(max_tokens=24, k=3, drafter="model", ignore_eos=True)
    start, *events, finish = other.session().reply("Hello there", request)
    plain = [step.token for step in other.session().plain(other.chat_tokens("Hello there"), request)]
    assert (start.drafter, [*finish.tokens]) == ("translated", plain[: len(finish.tokens)])
    assert {event.round.drafter for event in events if isinstance(event, RoundDone)} == {"none", "translated"}
    with pytest.raises(Refused, match="has another tokenizer than its target, and --what draft trains"):
        trainee(None, PairSpec(other.pair), other, 3, 0)


def tensor_bytes(*folders):
    """By the files' own headers."""
    return sum(stored.size_bytes for f in folders for stored in read_header(f / "model.safetensors").tensors.values())


ELSEWHERE = [("metal", value) for value in (None, "", "0", "yes", "1 ")] + [("cpu", "1"), ("cuda", "1")]


@pytest.mark.parametrize(("backend", "value"), ELSEWHERE)
def test_nothing_is_wired_unless_that_is_asked_for_on_metal(tiny_pair, monkeypatch, device_says, backend, value):
    """The bug: every load and every reply wired all that fitted, and Macs panicked with that (mlx#3186)."""
    fake = FakeMemory().install(monkeypatch)
    device_says(backend=backend)
    monkeypatch.delenv("SPECDEC_WIRE", raising=False)
    if value is not None:
        monkeypatch.setenv("SPECDEC_WIRE", value)
    list(load(Pair("tiny", *map(str, tiny_pair)), reserve_tokens=4096).session().reply("hello", max_tokens=2))
    assert fake.wired_limits == []


def test_where_it_is_asked_for_the_weights_are_wired_once_all_are_read_and_nothing_is_while_others_are(
    tiny_pair, monkeypatch
):
    fake, reading, (target, draft) = FakeMemory().install(monkeypatch), [], tiny_pair
    monkeypatch.setenv("SPECDEC_WIRE", "1")
    monkeypatch.setattr(
        session_load, "load_weights", lambda *given: reading.append(fake.wired_limit) or load_weights(*given)
    )
    list(load(Pair("tiny", str(target), str(draft))).session().reply("hello", max_tokens=4))
    load(Pair("tiny", str(target), None))  # another pair, or the same one once it was dropped
    assert reading == [0, 0, 0]
    assert fake.wired_limits == [0, tensor_bytes(target, draft), 0, tensor_bytes(target)]


def test_weights_beyond_what_metal_recommends_are_not_wired_and_a_line_says_so(tiny_pair, monkeypatch):
    """mlx raises for a limit above it."""
    fake, told = FakeMemory(tensor_bytes(*tiny_pair) - 1).install(monkeypatch), []
    monkeypatch.setenv("SPECDEC_WIRE", "1")
    load(Pair("tiny", *map(str, tiny_pair)), tell=told.append)
    assert fake.wired_limits == [0, 0]
    needed = size(tensor_bytes(*tiny_pair))
    assert told == [f"SPECDEC_WIRE=1 wires nothing: weights of {needed} exceed what Metal recommends"]


@pytest.mark.parametrize(("seconds", "fastest"), [({2: 1.0, 1: 1.3}, 2), ({2: 1.5, 1: 1.3}, 1)])
def test_the_threads_of_the_blas_are_chosen_by_measuring_once_a_machine_and_size(loaded, monkeypatch, seconds, fastest):
    """What the weights weigh does not say whether the cores are free."""
    target, kept, used, now = loaded.session().slot.target, {}, [], [0.0]
    monkeypatch.setattr(session_load.blas, "thread_counts", lambda weight_bytes: (2, 1))
    monkeypatch.setattr(session_load.blas, "set_threads", used.append)

    def clock():
        now[0] += seconds[used[-1]] / 2
        return now[0]

    assert session_load.fit_threads(target, kept, True, clock) == fastest and used == [2, 1, fastest]
    assert session_load.fit_threads(target, kept, True, clock) == fastest and used[3:] == [fastest]  # kept
    assert session_load.fit_threads(target, {}, False, clock) == 1 and used[4:] == [1]  # ranks must agree


def test_loading_says_how_many_bytes_of_both_models_were_read(tiny_pair, monkeypatch):
    """`loading qc…` stood still for minutes."""
    monkeypatch.setattr(device, "SLICE_BYTES", 1 << 10)
    monkeypatch.setattr(device, "SLICE_ARRAYS", 3)
    heard = []
    load(Pair("tiny", *map(str, tiny_pair)), report=heard.append)
    whole = sum(read_checkpoint(folder, "m").loaded_bytes for folder in tiny_pair)
    done = [step.done for step in heard]
    assert {(step.of, step.unit, step.part) for step in heard} == {(whole, "bytes", "")}
    assert done == sorted(done) and done[0] == 0 and done[-1] == whole and len(set(done)) > 5


@pytest.mark.parametrize(("most", "each"), [(80, 1 << 28), (2, 1 << 28), (80, 1)])
def test_weights_are_read_in_slices_of_few_tensors_and_few_bytes(most, each, monkeypatch):
    """One evaluation of all of them would say nothing in between; too many at once stop whoever evaluates beside."""
    monkeypatch.setattr(device, "SLICE_BYTES", each)
    monkeypatch.setattr(device, "SLICE_ARRAYS", most)
    evaluated, shares, module = [], [], nn.Linear(4, 4)
    module.more = [mx.zeros(8) for _ in range(5)]
    monkeypatch.setattr(device.mx, "eval", evaluated.append)
    device.read_weights(module, shares.append)
    assert sum(map(len, evaluated)) == 7 and shares[-1] == 1.0 and shares == sorted(shares)
    assert len(evaluated) == len(shares) == {(80, 1 << 28): 1, (2, 1 << 28): 4, (80, 1): 7}[most, each]
