"""What mlx keeps in memory, on a fake of Metal's allocator; what can be, on mlx itself."""

from __future__ import annotations

import pytest

from fakes.chat import networks, recorded, tokenizer_in
from fakes.memory import GIGABYTE, FakeMemory
from specdec_cli.engine import device
from specdec_cli.engine.device import READ_TOKENS
from specdec_cli.engine.model import CachedModel


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
    """The bug: each chunk of 512 gave all buffers back, which the next one allocated again."""
    cleared: list[int] = []
    monkeypatch.setattr(device, "backend", lambda: backend)
    model = recorded(*pair).slot.target
    monkeypatch.setattr(device, "clear_cache", lambda: cleared.append(model.length))
    monkeypatch.setattr(model._caches, "evaluate", lambda: None)
    assert len(list(model.prefill([5] * 5001))) == chunks
    assert cleared == clears


def test_the_weights_bytes_are_wired_and_nothing_else_is_there_when_they_are(fake, monkeypatch):
    """The bug: all that fitted was wired, caches and scratch too: the setting that Macs panicked with (mlx#3186)."""
    monkeypatch.setenv("SPECDEC_WIRE", "1")
    assert device.wire(0) and device.wire(3 * GIGABYTE)
    assert fake.asked == ["settle", "clear", 0, "settle", "clear", 3 * GIGABYTE]


@pytest.mark.parametrize(("asked", "reads"), [("1", 0), ("0", 1)])
def test_a_wired_draft_is_not_dropped_as_caches_would_be_wired_in_its_place(fake, monkeypatch, asked, reads):
    monkeypatch.setenv("SPECDEC_WIRE", asked)
    network, read = networks("qwen3")[1], []
    model = CachedModel(network, "draft", reread=lambda: read.append(1) or network.parameters())
    model.forward(model.ids([5, 6]))
    model.release()
    assert len(read) == reads and model.length == 0
