"""Every name that comes from outside, before it may become a path. Law: what is not plainly a name is refused.

A Hub, a mirror of it, a shard index or a reference file says how files, digests, commits and branches are called.
None of these words reaches the disk, a link or a lock before it has passed here.
"""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase

from specdec_cli.errors import NotAvailable

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# A component of a branch's or tag's name: git's rules, without dots that mean a folder above.
PART = r"(?!\.)[^\s\x00-\x1f\x7f~^:?*\[\\/]+"
REVISION = re.compile(rf"(?!.*\.\.){PART}(/{PART})*")
WEIGHTS = "model*.safetensors"
# No code, no pickles: what mlx-lm and the tokenizer need, nothing else.
FILES = ("*.json", WEIGHTS, "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja")
LONGEST_NAME_BYTES = 200  # file systems take 255; a digest or a suffix may be added
MOST_BYTES = 1 << 50
DISTRUST = "check HF_ENDPOINT: this mirror of the Hub is broken or hostile"


def wanted(path: str) -> bool:
    """Is this file of a repository part of the model? Only the top folder is: mlx-lm reads nothing below it."""
    # A leading dot: no model has one, and macOS leaves `._config.json` on foreign disks.
    return "/" not in path and not path.startswith(".") and any(fnmatchcase(path, pattern) for pattern in FILES)


def is_weights(path: str) -> bool:
    """Is this one of the files that hold the weights?"""
    return fnmatchcase(path, WEIGHTS)


def is_plain(path: str) -> bool:
    """Can this be a file's name in the folder itself, on every file system?"""
    return (
        path.isprintable()
        and not set(path) & set('/\\:*?"<>|')
        and path.strip(". ") != ""
        and len(path.encode("utf-8", "surrogatepass")) <= LONGEST_NAME_BYTES
    )


def same_file(path: str) -> str:
    """What two names have in common that a Mac's disk takes for one file."""
    return unicodedata.normalize("NFC", path).casefold()


def require_hub_id(name: str) -> None:
    """Raises: NotAvailable unless `name` has the shape of a Hub id."""
    if not HUB_ID.fullmatch(name):
        raise NotAvailable(f"no folder {name} here", "check the path; a Hub id looks like organisation/name")


def require_revision(name: str, revision: str | None) -> None:
    """Raises: NotAvailable unless `revision` can be a branch, a tag or a commit; None is the default branch."""
    if revision is not None and not (REVISION.fullmatch(revision) and len(revision) <= LONGEST_NAME_BYTES):
        raise NotAvailable(
            f"{name} can have no revision {shown(revision)}", "give a branch, a tag, or a commit of 40 hex digits"
        )


def require_plain(name: str, path: str) -> str:
    """The file's name. Raises: NotAvailable for one that could be more than a name."""
    if not is_plain(path):
        raise NotAvailable(f"the Hub lists a file of {name} whose name is none: {shown(path)}", DISTRUST)
    return path


def require_digest(name: str, path: str, value: object, pattern: re.Pattern[str] = DIGEST) -> str:
    """The digest. Raises: NotAvailable unless it is 40 (git's sha-1) or 64 (sha256) hex digits."""
    if not (isinstance(value, str) and pattern.fullmatch(value)):
        raise NotAvailable(f"the Hub gives {path} of {name} the digest {shown(value)}, which is none", DISTRUST)
    return value


def require_size(name: str, path: str, value: object) -> int:
    """The size in bytes, 0 where none is told. Raises: NotAvailable for what cannot be one."""
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_BYTES:
        raise NotAvailable(f"the Hub gives {path} of {name} the size {shown(value)}, which is none", DISTRUST)
    return value


def shown(value: object) -> str:
    """A foreign value as one short line for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
