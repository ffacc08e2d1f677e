"""A browser for all tests of the page, and servers that have it."""

from __future__ import annotations

from functools import partial

import pytest

from fakes.browser import Tab, browser
from fakes.server import serving


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as pipe:
        yield pipe


@pytest.fixture
def tab(pipe):
    tab = Tab(pipe)
    tab.look(1280)
    yield tab
    tab.close()


@pytest.fixture
def start(start):
    """Starts a server that listens in front of a desk, for the rest of the test: its URL."""
    return partial(start, how=serving)
