"""The two files of a registry."""

import pytest

from fakes.models_toml import PACKAGED


@pytest.fixture
def files(tmp_path):
    """(packaged, the user's); the second does not exist yet."""
    packaged = tmp_path / "packaged.toml"
    packaged.write_text(PACKAGED)
    return packaged, tmp_path / "mine" / "models.toml"
