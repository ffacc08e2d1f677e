"""From a model's name to its folder. Law: a model already here costs no network call."""

from __future__ import annotations

import re
from pathlib import Path

from specdec_cli.errors import NotAvailable

SHIPPED = "specdec:"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# No code, no pickles: what mlx-lm and the tokenizer need, nothing else.
FILES = ["*.json", "model*.safetensors", "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja"]


def locate(name: str, revision: str | None = None) -> Path:
    """The folder of a shipped model, a local folder, or a Hub id in the local Hugging Face cache.

    Raises: NotAvailable.
    """
    if name.startswith(SHIPPED):
        return Path(__file__).parent / name.removeprefix(SHIPPED)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise NotAvailable(f"{name} is a file, and a model is a folder", "give the folder that holds config.json")
    if not HUB_ID.fullmatch(name):
        raise NotAvailable(f"no folder {name} here", "check the path; a Hub id looks like organisation/name")
    return _cached(name, revision)


def _cached(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=FILES))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise NotAvailable(f"{name} is neither a folder here nor in the model cache", f"hf download {name}") from error


def cache_folder() -> Path:
    """Where the shared Hugging Face cache lives on this machine."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)
