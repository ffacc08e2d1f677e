"""The names and places of a model in the shared Hugging Face cache.

models--org--name/
    blobs/<sha256 or git sha-1>     the bytes
    snapshots/<commit>/<file>       a link to a blob
    refs/<revision>                 a commit
    .specdec/<commit>.json          the files that a pull has compared

File names, digests, commits and branches come from a Hub, a mirror or a shard index. None of them becomes a path before
it was checked here. Heads taken out of a repository are in specdec's own data folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import platformdirs
from huggingface_hub import constants

from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.jsonfile import shown
from specdec_cli.core.kinds import HEAD
from specdec_cli.core.safetensors import WEIGHTS
from specdec_cli.core.template import TEMPLATES_FOLDER

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
REVISION = re.compile(r"(?=.{1,200}$)\w[\w.+@=-]*(/\w[\w.+@=-]*)*", re.ASCII)
# macOS leaves files like `._config.json` on foreign disks, and no model has a file with a leading dot.
SAFE_NAME = re.compile(rf"(?:(?:mtp|{TEMPLATES_FOLDER})/)?\w[\w.+ -]{{0,199}}", re.ASCII)
# Trained heads beside the model, as converters place them (OptiQ and MTPLX at the top, others in a folder of its own,
# for what mlx-lm finds beside the shards it takes for the model's). No folder of a repository but these two is read.
HEAD_FOLDER = "mtp"
HEADS = ("mtp*.safetensors", f"{HEAD_FOLDER}/*.safetensors")
TEMPLATES = f"{TEMPLATES_FOLDER}/*.jinja"
# The files that mlx-lm and the tokenizer need. No code, no pickles.
FILES = ("*.json", WEIGHTS, "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja")
DISTRUST = "check HF_ENDPOINT: this mirror of the Hub is broken or hostile"


def is_wanted(path: str) -> bool:
    """Whether this file of a repository is part of the model. mlx-lm reads the top folder, transformers templates."""
    own = "/" not in path and any(fnmatchcase(path, pattern) for pattern in FILES)
    return SAFE_NAME.fullmatch(path) is not None and (own or is_head(path) or fnmatchcase(path, TEMPLATES))


def is_weights(path: str) -> bool:
    """Whether this is one of the files that hold the weights, of the model or of a head."""
    return fnmatchcase(path, WEIGHTS) or is_head(path)


def is_head(path: str) -> bool:
    """Whether this is a file for a head alone: in the top folder, or in that of heads."""
    return path.count("/") == path.startswith(f"{HEAD_FOLDER}/") and any(fnmatchcase(path, name) for name in HEADS)


def list_files(folder: Path) -> Iterator[str]:
    """The files of the model in `folder`: of the top, and of its two folders as `mtp/NAME`. Raises: OSError."""
    paths = sorted([*folder.iterdir(), *(folder / HEAD_FOLDER).glob("*"), *folder.glob(TEMPLATES)])
    yield from filter(is_wanted, (path.relative_to(folder).as_posix() for path in paths))


def same_model(name: str, other: str) -> bool:
    """Whether these Hub ids are one model: the Hub and a Mac's disk both ignore case."""
    return name.lower() == other.lower()


def require_hub_id(name: str) -> None:
    """Raises: NotAvailable unless `name` has the shape of a Hub id."""
    if not HUB_ID.fullmatch(name):
        raise NotAvailable(f"there is no folder {name}", "check the path; a Hub id looks like organisation/name")


def require_revision(name: str, revision: str | None) -> None:
    """Raises: NotAvailable unless `revision` has the shape of a branch, tag or commit. None is the default branch."""
    if revision is not None and not REVISION.fullmatch(revision):
        raise NotAvailable(
            f"{name} can have no revision {shown(revision)}", "give a branch, a tag, or a commit of 40 hex digits"
        )


def require_digest(name: str, path: str, value: object) -> str:
    """The digest. Raises: NotAvailable unless it is 40 (git's sha-1) or 64 (sha256) hex digits."""
    if not (isinstance(value, str) and DIGEST.fullmatch(value)):
        raise NotAvailable(f"the Hub gives {path} of {name} the digest {shown(value)}, which is not a digest", DISTRUST)
    return value


def cache_folder() -> Path:
    """The folder of the shared Hugging Face cache on this machine."""
    return Path(constants.HF_HUB_CACHE)


def repository(name: str) -> Path:
    """The cache's folder for one repository, which need not exist."""
    return cache_folder() / f"models--{name.replace('/', '--')}"


def snapshot_folder(name: str, commit: str) -> Path:
    return repository(name) / "snapshots" / commit


def cached_spelling(name: str) -> str:
    """`name` as its folder in the cache spells it, if it is there; an exact match comes first.

    The folder is looked for among all names: a Mac's disk finds it under any spelling.
    """
    folders = sorted(cache_folder().glob("models--*--*"))
    names = [folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders]
    return name if name in names else next((known for known in names if same_model(known, name)), name)


HEAD_WEIGHTS, HEAD_CONFIG, HEAD_SOURCE = "model.safetensors", "config.json", "source.json"


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
    if not (folder / HEAD_SOURCE).is_file():
        repository = name.removeprefix(HEAD)
        raise NotAvailable(
            f"the head of {repository} was not extracted yet",
            "specdec pull NAME, the pair whose head_from names it",
        )
    return folder
