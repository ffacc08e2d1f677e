"""Desks over tiny networks."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest

from fakes.serving import desk_of, tiny_loaded


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A pair whose caches are plain."""
    return tiny_loaded(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def open_desk():
    """Opens a desk of a pair, or of what loads it, for the rest of the test."""
    with ExitStack() as stack:
        yield lambda pair, **options: stack.enter_context(closing(desk_of(pair, **options)))
