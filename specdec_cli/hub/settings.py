"""Lists the settings that decide where models come from and go to. Law: a token is never shown, only its source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from specdec_cli.hub.cache import cache_folder
from specdec_cli.hub.client import OFFICIAL, endpoint

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def settings() -> Iterator[tuple[str, str, str]]:
    """(variable, effective value, what it means). No network call, and no part of the token."""
    from huggingface_hub import constants

    mirror = endpoint() != OFFICIAL
    meaning = "not the official Hub: what it lists is believed" if mirror else _origin("HF_ENDPOINT")
    yield "HF_ENDPOINT", endpoint(), meaning
    yield "HF_HOME", constants.HF_HOME, _origin("HF_HOME")
    yield "HF_HUB_CACHE", str(cache_folder()), _origin("HF_HUB_CACHE", "inside HF_HOME")
    source = token_source()
    sent = f"from {source}; goes to {endpoint()} and to no other host" if source else "only open models can be fetched"
    yield "HF_TOKEN", "present" if source else "none", sent
    for variable in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET"):
        if os.environ.get(variable):
            yield variable, os.environ[variable][:20], "set in the environment"


def token_source() -> str | None:
    """The source of the token, None without one. huggingface_hub's own function may use the network."""
    from huggingface_hub.constants import HF_TOKEN_PATH

    for variable in TOKENS:
        if os.environ.get(variable, "").strip():
            return variable
    try:
        return "hf auth login" if Path(HF_TOKEN_PATH).read_text(encoding="utf-8").strip() else None
    except (OSError, ValueError):
        return None


def _origin(variable: str, otherwise: str = "the usual place") -> str:
    return "set in the environment" if os.environ.get(variable) else f"not set: {otherwise}"
