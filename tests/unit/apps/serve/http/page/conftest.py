"""A browser for all tests of the page, and servers that have it."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from fakes.browser import Tab, browser
from fakes.server import serving
from specdec_cli.apps.serve.page import page_files


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
def start(tooled):
    """Starts a server with the page in front of a desk, for the rest of the test."""
    with ExitStack() as stack:

        def begin(desk, model=tooled, **access):
            stack.callback(desk.close)
            return stack.enter_context(serving(model, desk, page=page_files(), **access))[0]

        yield begin
