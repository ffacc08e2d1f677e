"""A tiny pair, and a chat of it whose screen is two strings."""

from __future__ import annotations

import pytest

from fakes.chat import chat_with, networks, only_ascii, recorded, tokenizer_in


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    return networks("qwen3"), tokenizer_in(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def opened(pair):
    return chat_with(recorded(*pair), max_tokens=8, logit_bias=only_ascii(pair[1]))
