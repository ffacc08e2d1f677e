"""The settings that `doctor` shows, and no part of the token among them."""

from __future__ import annotations

import pytest
from huggingface_hub import constants

from specdec_cli.hub.client import OFFICIAL, settings

VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE")


@pytest.fixture(autouse=True)
def _nothing_set(cache, tmp_path, monkeypatch):
    for variable in (*VARIABLES, "HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "ENDPOINT", OFFICIAL)


def rows() -> dict[str, tuple[str, str]]:
    return {variable: (value, consequence) for variable, value, consequence in settings()}


def test_only_what_is_set_is_shown_and_the_token():
    assert rows() == {"HF_TOKEN": ("none", "only open models can be fetched")}


@pytest.mark.parametrize("variable", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
def test_of_a_token_only_its_source_is_shown(monkeypatch, variable):
    monkeypatch.setenv(variable, "hf_a_persons_own_token")
    assert rows()["HF_TOKEN"] == ("present", f"from {variable}; goes to {OFFICIAL} and to no other host")
    assert "hf_a_persons" not in str(rows())


def test_a_variable_that_is_set_is_shown_whole(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert rows()["HF_HOME"] == (str(tmp_path), "set in the environment")
