"""The only package that imports huggingface_hub: names to folders, downloads, checks and removal in the shared cache.

A model that is already here costs no network call. Only allow-listed files are fetched, all from one commit.
Bytes are compared with the listing's digests before they may speak. A model that worked before an interrupted pull
works after it.
"""

from __future__ import annotations

import os

# This runs before anyone imports huggingface_hub. With telemetry on, it asks the Hub which agents exist, and hf_xet
# posts a summary of every download.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

from specdec_cli.hub.cache import HUB_ID, cache_folder, heads_folder, require_hub_id, same_model
from specdec_cli.hub.cached import PULL, Removal, head_bytes, removal, remove
from specdec_cli.hub.client import settings
from specdec_cli.hub.download import (
    OnBytes,
    check_space,
    fetch,
    fetch_small,
    free_bytes,
    require_space,
    silent,
    verify,
)
from specdec_cli.hub.kept_heads import keep_head, kept_commit, read_config, remote_headers
from specdec_cli.hub.places import GGUF, SHIPPED, FoundModel, elsewhere, locate, models_here, named
from specdec_cli.hub.snapshot import HubSnapshot, resolve
