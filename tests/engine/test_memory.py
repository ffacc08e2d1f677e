"""What mlx keeps in memory, on a fake of Metal's allocator; what can be, on mlx itself."""

from __future__ import annotations

import pytest

from fakes.chat import chat_with, networks, only_ascii, recorded, tokenizer_in
from fakes.device import FakeDevice, TextModel
from fakes.memory import GIGABYTE, FakeMemory, MeteredModel
from specdec_cli.engine import device
from specdec_cli.engine.decode import decode
from specdec_cli.engine.device import READ_TOKENS, Residency, bound_memory
from specdec_cli.engine.draft_length.adaptive import Fixed
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.session.session import Session

TURNS = 50


@pytest.fixture
def fake(monkeypatch):
    return FakeMemory().install(monkeypatch)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return networks("qwen3"), tokenizer_in(tmp_path_factory.mktemp("tokenizer"))


def sized_as_8b_and_0_6b(session: Session, fake: FakeMemory) -> tuple[MeteredModel, MeteredModel]:
    """The pair's passes take the memory of an 8B target and a 0.6B draft in 4 bits."""
    target = MeteredModel(fake, 4_300_000_000, 36, 2048, heads=32)
    draft = MeteredModel(fake, 350_000_000, 28, 2048, heads=16)
    target.watch(session.slot.target)
    draft.watch(session.slot.draft)
    return target, draft


def fifty_turns(pair, fake) -> tuple[MeteredModel, MeteredModel]:
    session = recorded(*pair)
    models = sized_as_8b_and_0_6b(session, fake)
    chat, _, _ = chat_with(session, max_tokens=4, logit_bias=only_ascii(pair[1]))
    for number in range(TURNS):
        chat.ask(f"and turn number {number}, of many more to come?")
    return models


@pytest.mark.slow
def test_fifty_turns_keep_less_than_the_bound_and_nothing_after_a_reply(fake, pair):
    bound_memory()
    assert fake.cache_limit == int(0.05 * fake.recommended) < GIGABYTE
    target, _ = fifty_turns(pair, fake)
    largest = max(fake.sizes[buffer] for buffer in target.kv)
    assert fake.most_cached <= fake.cache_limit + largest and fake.in_cache == 0
    assert fake.active == fake.wired  # wired is what is used, all of it and nothing else


def test_a_long_reply_gives_freed_buffers_back_every_256_tokens(monkeypatch):
    clears: list[int] = []
    emitted = 0
    monkeypatch.setattr(device, "clear_cache", lambda: clears.append(emitted))
    monkeypatch.setattr(device, "backend", lambda: "metal")
    clock = FakeDevice().install(monkeypatch)
    target, draft = (TextModel(clock, [3, 1, 4, 1, 5], lambda rows: 1.0, 1) for _ in range(2))
    rule = greedy(target.vocab_size)
    drafter = ModelDrafter(draft, target.vocab_size, rule)
    for round in decode(target, drafter, rule, Fixed(8), [3], 600, frozenset(), clock.clock):
        emitted += len(round.emitted)
    # Rounds of 1, 9, 9, …: 262 tokens, then 261 more; each before its round is yielded.
    assert emitted == 600 and clears == [262 - 9, 523 - 9]


@pytest.mark.parametrize(
    ("backend", "chunks", "clears"),
    [("metal", 3, [READ_TOKENS, 5000]), ("cuda", 10, [READ_TOKENS, 5000]), ("cpu", 10, [])],
)
def test_a_prompt_is_read_in_the_devices_chunks_and_cleared_every_4096_tokens(
    pair, monkeypatch, backend, chunks, clears
):
    """The bug: each chunk of 512 gave all buffers back, which the next one allocated and wired again."""
    cleared: list[int] = []
    monkeypatch.setattr(device, "backend", lambda: backend)
    model = recorded(*pair).slot.target
    monkeypatch.setattr(device, "clear_cache", lambda: cleared.append(model.length))
    monkeypatch.setattr(model._caches, "evaluate", lambda: None)
    assert len(list(model.prefill([5] * 5001))) == chunks
    assert cleared == clears


def test_a_rest_unwires_everything_after_waiting_and_the_next_hold_wires_it_again(fake):
    fake.malloc(3 * GIGABYTE)
    fake.free(fake.malloc(GIGABYTE // 4))
    residency = Residency()
    residency.hold()
    assert fake.wired == 3.25 * GIGABYTE
    residency.release()
    assert (fake.wired, fake.in_cache, fake.synchronized) == (0, 0, 1)
    residency.hold()
    assert fake.wired == 3 * GIGABYTE


def test_a_large_mac_keeps_a_gigabyte_of_freed_buffers_at_most_and_mlxs_own_memory_limit(monkeypatch):
    """The bug: mlx's limit was lowered to the working set, above which every command buffer is waited for in vain."""
    fake = FakeMemory(recommended=96 * GIGABYTE).install(monkeypatch)
    before = fake.memory_limit
    bound_memory()
    assert (fake.cache_limit, fake.memory_limit) == (GIGABYTE, before)
