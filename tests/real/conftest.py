"""The released models, each fetched, converted and loaded once; without them the tier is skipped, with the reason."""

from __future__ import annotations

import pytest

import specdec_cli as specdec
from fakes.command import Command
from real import released


@pytest.fixture(scope="session")
def gemma():
    return released.had(released.gemma)


@pytest.fixture(scope="session")
def qwen():
    return released.had(released.qwen)


@pytest.fixture(scope="module")
def gemma_pair(gemma):
    """Gemma in float32, drafted for by itself in 4 bits."""
    return specdec.load(target=str(gemma), draft=str(released.four_bits(gemma)))


@pytest.fixture(scope="module")
def qwen_pair(qwen):
    """Qwen in float32, drafted for by itself in 4 bits."""
    return specdec.load(target=str(qwen), draft=str(released.four_bits(qwen)))


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    return Command(tmp_path, monkeypatch, capsys)
