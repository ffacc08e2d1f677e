"""What a person calls a model, as the name that everything below takes.

An address of the Hub is an id, a short name that of the only model here so called. GGUF is refused by its name or its
first bytes, before any network call.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from specdec_cli import hub
from specdec_cli.core.errors import NotAvailable, UsageError
from specdec_cli.core.kinds import HEAD
from specdec_cli.core.readfile import expanded, open_file
from specdec_cli.pairs.catalog import registry

ADDRESS = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?!datasets/|spaces/)([\w.-]+/[\w.-]+)"
    r"(?:/(?:tree|blob|resolve)/([^/?#]+))?(?:[/?#:].*)?"
)


def settle(name: str) -> str:
    """`name` as models are found by.

    Raises: UsageError for an address with a revision; NotAvailable for GGUF, and for the short name of several models.
    """
    if name.startswith((hub.SHIPPED, HEAD)):
        return name
    if address := ADDRESS.fullmatch(name):
        name, revision = address.groups()
        if revision not in (None, "main"):
            hint = f"specdec pairs add NAME --target {name} --target-revision COMMIT pins one"
            raise UsageError(f"the address of {name} has the revision {revision}", hint)
    # `os.path` does not raise for a name that is longer than any path, as a request may hold.
    found = [] if hub.HUB_ID.fullmatch(name) or os.path.isdir(name) else hub.named(name)  # noqa: PTH112
    whole = [model.target for model in found if not model.problem]
    if _is_gguf(name) or (found and not whole and found[0].problem == hub.GGUF):
        where = f" in {found[0].place}" if found else ""
        text = f"{name} is GGUF{where}, the format of llama.cpp and ollama; specdec needs MLX or safetensors weights"
        raise NotAvailable(text, registry().instead_of(name))
    if len(whole) > 1:
        raise NotAvailable(f"{name} is the short name of {' and '.join(whole)}", f"name one in full: {whole[0]}")
    return whole[0] if whole else name


def _is_gguf(name: str) -> bool:
    with suppress(OSError):
        path = expanded(name)
        if path.is_dir():
            return any(path.glob("*.gguf")) and not (path / "config.json").exists()
        if path.is_file() and not path.suffix:  # a blob of ollama's
            with open_file(path) as file:
                return file.read(4) == b"GGUF"
    return name.lower().partition(":")[0].endswith((".gguf", "-gguf"))  # llama.cpp names ORGANISATION/NAME-GGUF:Q4_K_M
