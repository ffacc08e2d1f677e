"""Where the shared Hugging Face cache keeps a model, and which of a repository's files are a model's.

models--org--name/{blobs/<sha256 or git sha-1>, snapshots/<commit>/<file> -> blob, refs/<revision>: a commit}
"""

from __future__ import annotations

import re
import uuid
import warnings
from fnmatch import fnmatchcase
from pathlib import Path

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
WEIGHTS = "model*.safetensors"
# No code, no pickles: what mlx-lm and the tokenizer need, nothing else.
FILES = ("*.json", WEIGHTS, "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja")


def wanted(path: str) -> bool:
    """Is this file of a repository part of the model? Only the top folder is: mlx-lm reads nothing below it."""
    return "/" not in path and any(fnmatchcase(path, pattern) for pattern in FILES)


def is_weights(path: str) -> bool:
    return fnmatchcase(path, WEIGHTS)


def prepare() -> None:
    """Import huggingface_hub quietly: no telemetry, no log lines on stderr, progress at least once a megabyte."""
    from huggingface_hub import constants
    from huggingface_hub.utils import logging

    constants.HF_HUB_DISABLE_TELEMETRY = True  # somebody may have imported it before the environment was set
    constants.DOWNLOAD_CHUNK_SIZE = 1 << 20  # its 10 MB steps look like a stall on a slow line
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # the Hub client has no types there
    warnings.filterwarnings("ignore", module="huggingface_hub")  # a full disk is ours to tell


def endpoint() -> str:
    """The Hub's address, without a slash at its end."""
    from huggingface_hub.constants import ENDPOINT

    return ENDPOINT


def cache_folder() -> Path:
    """Where the shared Hugging Face cache lives on this machine."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def repository(name: str) -> Path:
    """The cache's folder for one repository, there or not."""
    from huggingface_hub.file_download import repo_folder_name

    return cache_folder() / repo_folder_name(repo_id=name, repo_type="model")


def snapshot_folder(name: str, commit: str) -> Path:
    return repository(name) / "snapshots" / commit


def blob_name(pointer: Path) -> str | None:
    """The digest that names the blob behind a snapshot's file; None where the cache has no symbolic links."""
    # One hop only: a blob may itself be a link into the cache's store of Xet files.
    return pointer.readlink().name if pointer.is_symlink() else None


def write_ref(name: str, revision: str, commit: str) -> None:
    """Let `revision` (a branch or tag) mean `commit` from now on. Raises: OSError."""
    if revision == commit:
        return
    path = repository(name) / "refs" / revision
    if path.is_file() and path.read_text(encoding="utf-8") == commit:
        return  # a cache for reading only stays usable
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = repository(name) / f".ref-{uuid.uuid4().hex}"  # outside refs/, where every file counts as a revision
    draft.write_text(commit, encoding="utf-8")
    draft.replace(path)


def size_text(count: int) -> str:
    """Bytes for people: 4.3 GB, 12.0 MB, 3.4 kB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
