"""What every test of a screen leaves behind."""

from __future__ import annotations

import pytest

from specdec_cli.terminal.suspension import held


@pytest.fixture(autouse=True)
def _nothing_is_held():
    """A display that a test leaves open would keep the signals' handlers, for whichever test comes next."""
    yield
    for one in list(held):
        one.release()
