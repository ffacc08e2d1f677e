"""Where heads are kept that were taken out of a repository. Law: no network call."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.names import require_hub_id
from specdec_cli.kinds import HEAD

WEIGHTS, CONFIG, SOURCE = "model.safetensors", "config.json", "source.json"


def heads_folder() -> Path:
    """Where heads are kept."""
    return platformdirs.user_data_path("specdec") / "heads"


def head_folder(name: str) -> Path:
    """The folder of the head `name`, a `head:` name, which need not exist. Raises: NotAvailable for no Hub id."""
    repository = name.removeprefix(HEAD)
    require_hub_id(repository)
    return heads_folder() / repository.lower().replace("/", "--")


def kept_head(name: str) -> Path:
    """The folder with the head `name`. Raises: NotAvailable if it is not here."""
    folder = head_folder(name)
    if not (folder / SOURCE).is_file():
        repository = name.removeprefix(HEAD)
        raise NotAvailable(
            f"the head of {repository} was not taken out of it yet",
            f"specdec pull --target ID --head-from {repository}",
        )
    return folder
