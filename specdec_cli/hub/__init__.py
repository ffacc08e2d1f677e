"""The Hugging Face Hub's door: names to folders, downloads, checks and removal in the shared cache.

Laws: a model already here costs no network call; only allow-listed files are fetched, all from one commit; no byte
has a place before it was compared; nothing outside the cache is touched; whatever interrupts a pull, what worked before
it still works. Nothing else in specdec imports huggingface_hub.
"""

from __future__ import annotations

import os

# Before anyone imports huggingface_hub: with telemetry on it asks the Hub which agents exist, and hf_xet posts
# a summary of every download.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

from specdec_cli.hub.cached import SHIPPED, cached_models, locate
from specdec_cli.hub.comparing import Problem
from specdec_cli.hub.deletion import Removal, removal, remove
from specdec_cli.hub.download import check_space, fetch, fetch_small, free_bytes, uncompared_bytes
from specdec_cli.hub.integrity import discard, verify
from specdec_cli.hub.layout import cache_folder
from specdec_cli.hub.progress import Progress
from specdec_cli.hub.settings import settings
from specdec_cli.hub.snapshot import RemoteFile, Snapshot, resolve

__all__ = [
    "SHIPPED",
    "Problem",
    "Progress",
    "RemoteFile",
    "Removal",
    "Snapshot",
    "cache_folder",
    "cached_models",
    "check_space",
    "discard",
    "fetch",
    "fetch_small",
    "free_bytes",
    "locate",
    "removal",
    "remove",
    "resolve",
    "settings",
    "uncompared_bytes",
    "verify",
]
