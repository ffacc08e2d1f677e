"""Finds the folder of a model by its name. Law: no network call; an incomplete or altered model is refused."""

from __future__ import annotations

from pathlib import Path

from specdec_cli.errors import NotAvailable, PartlyHere
from specdec_cli.format import count
from specdec_cli.hub.cache import repository, snapshot_folder, spelled_here
from specdec_cli.hub.failures import explained
from specdec_cli.hub.kept import kept_head
from specdec_cli.hub.names import COMMIT, require_hub_id, require_revision
from specdec_cli.hub.record import Problem, problems, read
from specdec_cli.kinds import HEAD

SHIPPED = "specdec:"
# What brings a model that is not here, followed by its name.
PULL = "specdec pull --target"
PACKAGE = Path(__file__).parents[1]


def locate(name: str, revision: str | None = None) -> Path:
    """The folder of a shipped model, a kept head, a local folder, or a Hub id in the local Hugging Face cache.

    Raises: NotAvailable if it is not here, PartlyHere if files are missing or differ from what was pulled.
    """
    if name.startswith(SHIPPED):
        return _shipped(name)
    if name.startswith(HEAD):
        return kept_head(name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _require_own_files(folder, name)
    if folder.exists():
        raise NotAvailable(f"{name} is a file, and a model is a folder", "give the folder that holds config.json")
    require_hub_id(name)
    return cached_folder(spelled_here(name), revision)


def _shipped(name: str) -> Path:
    """A folder inside the package. Raises: NotAvailable for one outside of it."""
    folder = PACKAGE / name.removeprefix(SHIPPED)
    if not folder.resolve().is_relative_to(PACKAGE.resolve()):
        raise NotAvailable(f"{name} is outside specdec's own folder", "give the folder itself as a path")
    return folder


def _require_own_files(folder: Path, name: str) -> Path:
    """The user's own folder. Its links may lead to files inside it, or inside the cache that it is part of.

    Raises: NotAvailable for a link that leads out, because whoever packed the folder chose what it reads.
    """
    root = folder.resolve()
    if root.parent.name == "snapshots":  # a snapshot given by its path: its files are links to the cache's blobs
        root = root.parents[1]
    try:
        entries = sorted([*folder.iterdir(), *folder.glob("*/*.safetensors")])
    except OSError as error:
        raise NotAvailable(f"{name} cannot be read: {error.strerror}", "check the folder's permissions") from error
    for path in entries:
        if path.is_symlink() and not path.name.startswith(".") and not _leads_into(path, root):
            raise NotAvailable(
                f"{path.relative_to(folder)} of {name} is a link that leads out of the model's folder, "
                f"to {path.readlink()}",
                "put the file itself in its place",
            )
    return folder


def _leads_into(path: Path, root: Path) -> bool:
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return False
    # The cache's store of Xet files, `blobs`, is next to the repository.
    roots = [root, root.parent / "blobs"] if root.name.startswith("models--") else [root]
    return any(map(real.is_relative_to, roots))


def cached_folder(name: str, revision: str | None = None) -> Path:
    """The complete snapshot of `name` at `revision` (None: main) in the cache.

    Raises: NotAvailable, PartlyHere.
    """
    require_revision(name, revision)
    pull = f"{PULL} {name}" + (f" --target-revision {revision}" if revision else "")
    with explained(name, revision):
        folder = _snapshot(name, revision)
        found = problems(name, folder) if folder else ()
    if folder is None:
        at = f" at revision {revision}" if revision else ""
        raise NotAvailable(f"{name}{at} is neither a folder here nor in the model cache", pull)
    if found:
        raise _partly(name, folder, found, pull)
    return folder


def _partly(name: str, folder: Path, found: tuple[Problem, ...], pull: str) -> PartlyHere:
    """One error for all problems. Missing files come first, because a pull brings them back."""
    missing = [problem.path for problem in found if problem.found == "missing"]
    if missing:
        return PartlyHere(
            f"{name} is only partly here: {count(len(missing), 'file')} missing, first {missing[0]}", pull
        )
    first = found[0]
    if first.found == "not compared":
        return PartlyHere(
            f"{first.path} of {name} was not compared with the Hub's checksum: a pull was broken off", pull
        )
    if first.expected == "nothing":
        return PartlyHere(
            f"{first.path} of {name} was put beside the files that were pulled: it is not in the commit",
            f"delete {folder / first.path}",
        )
    return PartlyHere(
        f"{first.path} of {name} is not what was pulled: {first.found[:12]} instead of {first.expected[:12]}", pull
    )


def _snapshot(name: str, revision: str | None) -> Path | None:
    """The snapshot of a revision. None means main, else the only one that a pull compared (by its commit)."""
    if revision is not None and COMMIT.fullmatch(revision):
        commit = revision
    else:
        ref = repository(name) / "refs" / (revision or "main")
        commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else ""
    if COMMIT.fullmatch(commit) and snapshot_folder(name, commit).is_dir():
        return snapshot_folder(name, commit)
    if revision is not None or commit:
        return None
    compared = [folder for folder in repository(name).glob("snapshots/*") if is_compared(name, folder)]
    return compared[0] if len(compared) == 1 else None


def is_compared(name: str, folder: Path) -> bool:
    """Whether a pull has compared this snapshot of `name` and nothing has changed since. Raises: as `problems`."""
    return folder.is_dir() and bool(read(name, folder.name)) and not problems(name, folder)
