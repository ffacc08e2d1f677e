"""Finds a draft for a target among the models already here. Law: only what shares the target's ids; no network."""

from __future__ import annotations

import math

from specdec_cli import hub
from specdec_cli.checkpoint import Checkpoint, read_checkpoint
from specdec_cli.errors import SpecdecError
from specdec_cli.vocab import compare

# A draft of a fifteenth of the target's bytes is what pairs that gain have in common.
BEST_RATIO = 15.0
LEAST_RATIO = 4.0
MOST_TRIED = 8


def compatible_draft(target_name: str, revision: str | None = None) -> str | None:
    """The cached model whose size suits best and whose tokenizer agrees, or None.

    Raises: NotAvailable or Refused if the target itself cannot be read.
    """
    from specdec_cli.tokenizer import Tokenizer

    target = read_checkpoint(hub.locate(target_name, revision), target_name)
    table = Tokenizer.load(target.folder, target.name, target.config).table()
    for draft in _candidates(target)[:MOST_TRIED]:
        try:
            other = Tokenizer.load(draft.folder, draft.name, draft.config).table()
        except SpecdecError:
            continue
        if compare(table, other).status != "incompatible":
            return draft.name
    return None


def _candidates(target: Checkpoint) -> list[Checkpoint]:
    """Small enough models in the cache, the best ratio first."""
    found = []
    for name in hub.cached_models():
        try:
            draft = read_checkpoint(hub.locate(name), name)
        except SpecdecError:
            continue
        ratio = target.loaded_bytes / max(draft.loaded_bytes, 1)
        if name != target.name and ratio >= LEAST_RATIO:
            found.append((abs(math.log(ratio / BEST_RATIO)), name, draft))
    return [draft for _, _, draft in sorted(found, key=lambda entry: entry[:2])]
