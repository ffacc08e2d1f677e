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


def test_without_settings_everything_is_in_its_usual_place(cache):
    shown = rows()
    assert shown["HF_ENDPOINT"] == (OFFICIAL, "not set: the usual place")
    assert shown["HF_HUB_CACHE"] == (str(cache), "not set: inside HF_HOME")
    assert shown["HF_TOKEN"] == ("none", "only open models can be fetched")
    assert set(shown) == {"HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN"}


@pytest.mark.parametrize("variable", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
def test_of_a_token_only_its_source_is_shown(monkeypatch, variable):
    monkeypatch.setenv(variable, "hf_a_persons_own_token")
    assert rows()["HF_TOKEN"] == ("present", f"from {variable}; goes to {OFFICIAL} and to no other host")
    assert "hf_a_persons" not in str(rows())
