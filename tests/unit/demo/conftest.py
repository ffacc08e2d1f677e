"""The recipe's modules, which are scripts beside each other and need torch, without which these tests are skipped."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[2] / "recipe"


@pytest.fixture(scope="session")
def recipe():
    """Module by name. Their own imports are flat, so their folder is on the path while they are imported."""
    pytest.importorskip("torch")
    sys.path.append(str(RECIPE))
    yield import_module
    sys.path.remove(str(RECIPE))
