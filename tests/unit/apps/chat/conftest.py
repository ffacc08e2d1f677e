"""A tiny pair, and a chat of it whose screen is two strings."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest

from fakes.chat import chat_with, networks, only_ascii, recorded, tokenizer_in
from specdec_cli.session import transcript


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    return networks("qwen3"), tokenizer_in(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def opened(pair):
    return chat_with(recorded(*pair), max_tokens=8, logit_bias=only_ascii(pair[1]))


@pytest.fixture
def full_disk(monkeypatch):
    """A context in which no transcript gets its place, for the reason of that number."""

    @contextmanager
    def full(number):
        def replace(path, target):
            raise OSError(number, os.strerror(number), str(target))

        with monkeypatch.context() as disk:
            disk.setattr(transcript.Path, "replace", replace)
            yield

    return full
