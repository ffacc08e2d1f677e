"""Checks every name from outside before it becomes a path. Law: a value that is not plainly a name is refused.

File names, digests, commits and branches come from a Hub, a mirror, a shard index or a reference file. None of them
reaches the disk, a link or a lock before it was checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from specdec_cli.errors import NotAvailable
from specdec_cli.jsonfile import shown

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# One component of a branch's or tag's name: git's rules, and no leading dot.
PART = r"(?!\.)[^\s\x00-\x1f\x7f~^:?*\[\\/]+"
REVISION = re.compile(rf"(?!.*\.\.){PART}(/{PART})*")
WEIGHTS = "model*.safetensors"
# Trained heads beside the model, as converters place them (OptiQ and MTPLX at the top, others in a folder of its own,
# for what mlx-lm finds beside the shards it takes for the model's). No other folder of a repository is read.
HEAD_FOLDER = "mtp"
HEADS = ("mtp*.safetensors", f"{HEAD_FOLDER}/*.safetensors")
# The files that mlx-lm and the tokenizer need. No code, no pickles.
FILES = ("*.json", WEIGHTS, "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja")
LONGEST_NAME_BYTES = 200  # file systems allow 255; a suffix may be added
MOST_BYTES = 1 << 50
DISTRUST = "check HF_ENDPOINT: this mirror of the Hub is broken or hostile"


def wanted(path: str) -> bool:
    """Whether this file of a repository is part of the model. mlx-lm reads the top folder only."""
    # macOS leaves files like `._config.json` on foreign disks, and no model has a file with a leading dot.
    own = "/" not in path and any(fnmatchcase(path, pattern) for pattern in FILES)
    return not path.rpartition("/")[2].startswith(".") and (own or is_head(path))


def is_weights(path: str) -> bool:
    """Whether this is one of the files that hold the weights, of the model or of a head."""
    return fnmatchcase(path, WEIGHTS) or is_head(path)


def is_head(path: str) -> bool:
    """Whether this is a file for a head alone: in the top folder, or in that of heads."""
    return path.count("/") == path.startswith(f"{HEAD_FOLDER}/") and any(fnmatchcase(path, name) for name in HEADS)


def list_files(folder: Path) -> Iterator[str]:
    """The files that may be part of the model: of the top folder, and of that of heads as `mtp/NAME`; sorted.

    Raises: OSError.
    """
    yield from (path.name for path in sorted(folder.iterdir()) if path.name != HEAD_FOLDER)
    if (inner := folder / HEAD_FOLDER).is_dir():
        yield from (f"{HEAD_FOLDER}/{path.name}" for path in sorted(inner.iterdir()))


def is_place(path: str) -> bool:
    """Whether this is the name of a file in the folder itself or in that of heads, on every file system."""
    path = path.removeprefix(f"{HEAD_FOLDER}/")
    return (
        path.isprintable()
        and not set(path) & set('/\\:*?"<>|')
        and path.strip(". ") != ""
        and len(path.encode("utf-8", "surrogatepass")) <= LONGEST_NAME_BYTES
    )


def same_model(name: str, other: str) -> bool:
    """Whether these Hub ids are one model: the Hub and a Mac's disk both ignore case."""
    return name.lower() == other.lower()


def require_hub_id(name: str) -> None:
    """Raises: NotAvailable unless `name` has the shape of a Hub id."""
    if not HUB_ID.fullmatch(name):
        raise NotAvailable(f"no folder {name} here", "check the path; a Hub id looks like organisation/name")


def require_revision(name: str, revision: str | None) -> None:
    """Raises: NotAvailable unless `revision` has the shape of a branch, tag or commit. None is the default branch."""
    if revision is not None and not (REVISION.fullmatch(revision) and len(revision) <= LONGEST_NAME_BYTES):
        raise NotAvailable(
            f"{name} can have no revision {shown(revision)}", "give a branch, a tag, or a commit of 40 hex digits"
        )


def require_digest(name: str, path: str, value: object) -> str:
    """The digest. Raises: NotAvailable unless it is 40 (git's sha-1) or 64 (sha256) hex digits."""
    if not (isinstance(value, str) and DIGEST.fullmatch(value)):
        raise NotAvailable(f"the Hub gives {path} of {name} the digest {shown(value)}, which is none", DISTRUST)
    return value


def require_size(name: str, path: str, value: object) -> int:
    """The size in bytes, 0 where none is given. Raises: NotAvailable for a value that is no size."""
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_BYTES:
        raise NotAvailable(f"the Hub gives {path} of {name} the size {shown(value)}, which is none", DISTRUST)
    return value
