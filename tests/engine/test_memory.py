"""What mlx keeps in memory, on a fake of Metal's allocator; what can be, on mlx itself."""

from __future__ import annotations

import pytest

from fakes.chat import networks, recorded, tokenizer_in
from fakes.memory import GIGABYTE, FakeMemory
from specdec_cli.engine import device
from specdec_cli.engine.device import READ_TOKENS, Residency


@pytest.fixture
def fake(monkeypatch):
    return FakeMemory().install(monkeypatch)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return networks("qwen3"), tokenizer_in(tmp_path_factory.mktemp("tokenizer"))


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
