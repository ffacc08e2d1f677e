"""Finds missing, altered and added files of a snapshot in the cache. Law: only the disk is read, never the network.

There are three sources, the best first: the manifest of a pull (names, sizes, digests); the listing that `hf download`
leaves (names); else the files themselves (the shards of an index, a configuration, a tokenizer, links to lost blobs).
"""

from __future__ import annotations

import re
from pathlib import Path

from specdec_cli import jsonfile
from specdec_cli.errors import NotAvailable
from specdec_cli.hub.comparing import Problem, small_digest_of
from specdec_cli.hub.layout import is_inside
from specdec_cli.hub.manifest import Entry, read
from specdec_cli.hub.names import HEAD_FOLDER, WEIGHTS, files_in, is_head, is_plain, is_weights, shown, wanted

# Five digits are enough, and they keep a hostile name from making us count to a billion.
PART = re.compile(r"(model-)(\d{1,5})-of-(\d{1,5})(\.safetensors)")
INDEX = "model.safetensors.index.json"
FOREIGN_WEIGHTS = {".bin", ".pt", ".pth", ".gguf"}
# One of these holds the vocabulary; without it mlx-lm has no tokenizer to load.
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "*.tiktoken", "*.model")


def problems(name: str, folder: Path) -> tuple[Problem, ...]:
    """The missing, altered and added files of this snapshot of `name`, sorted by file; added ones last.

    Raises: NotAvailable for a link out of the cache, and for an index with a shard that is no file here; OSError.
    """
    # The folder of heads may itself be a link; then nothing in it is looked at before that was found out.
    for path in sorted({folder / HEAD_FOLDER, *(folder / name for name in files_in(folder))}):
        if path.is_symlink() and not is_inside(name, path):
            raise NotAvailable(
                f"{path.name} of {name} is a link that leads out of the model cache, to {path.readlink()}",
                f"remove {path}, then specdec pull --target {name}",
            )
    entries = read(name, folder.name)
    if entries is None:
        missing = (path for path in _expected(name, folder) if not (folder / path).is_file())
        return tuple(Problem(path, "there", "missing") for path in sorted(missing))
    here = (entries[path] for path in sorted(entries))
    changed = [problem for entry in here if (problem := _changed(folder / entry.path, entry))]
    added = (path for path in files_in(folder) if wanted(path) and path not in entries)
    return (*changed, *(Problem(path, "nothing", "added") for path in added))


def is_compared(name: str, folder: Path) -> bool:
    """Whether a pull has compared this snapshot and nothing has changed since."""
    return folder.is_dir() and read(name, folder.name) is not None and not problems(name, folder)


def _changed(path: Path, entry: Entry) -> Problem | None:
    """Compare the size of a file, and the digest of a small one. Raises: OSError."""
    if not path.is_file():
        return Problem(entry.path, "there", "missing")
    size_bytes = path.stat().st_size
    if size_bytes != entry.size_bytes:
        return Problem(entry.path, f"{entry.size_bytes} B", f"{size_bytes} B")
    if is_weights(entry.path):
        return None
    found = small_digest_of(path, entry.digest)
    return None if found == entry.digest else Problem(entry.path, entry.digest, found)


def _expected(name: str, folder: Path) -> set[str]:
    """The files a snapshot without a manifest must have."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        tree = get_cached_repo_tree(name, revision=folder.name)
        # A head is fetched by specdec alone: other tools leave out what they do not read.
        listed = {file.path for file in tree if wanted(file.path) and is_plain(file.path) and not is_head(file.path)}
    except CachedRepoTreeNotFoundError:
        listed = set()  # only some tools leave a listing
    lost = {path for path in files_in(folder) if (folder / path).is_symlink() and wanted(path)}
    return listed | lost | _implied(name, folder)


def _implied(name: str, folder: Path) -> set[str]:
    """The files that the present files imply. Every model needs a configuration, a vocabulary and weights."""
    weights = {path.name for path in folder.glob(WEIGHTS)}
    expected = {"config.json"} | weights
    if not any(any(folder.glob(pattern)) for pattern in VOCABULARIES):
        expected.add("tokenizer.json")
    for match in filter(None, map(PART.fullmatch, weights)):
        stem, digits, count, suffix = match.groups()
        expected |= {f"{stem}{i:0{len(digits)}}-of-{count}{suffix}" for i in range(1, int(count) + 1)}
    index = folder / INDEX
    if index.is_file():
        expected |= _shards(name, index)
    elif not weights and not any(path.suffix in FOREIGN_WEIGHTS for path in folder.glob("*")):
        expected.add("model.safetensors")
    return expected


def _shards(name: str, index: Path) -> set[str]:
    """The shards of a weight index; none if it is unreadable, which the checkpoint reports.

    Raises: NotAvailable for a shard that is no file of this folder.
    """
    try:
        weight_map = jsonfile.read_object(index)["weight_map"]
        shards = {str(shard) for shard in weight_map.values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()
    for shard in sorted(shards):
        if not is_plain(shard):
            raise NotAvailable(
                f"{index.name} of {name} names {shown(shard)} as a shard, which is no file of its folder",
                "use another conversion of the model",
            )
    return shards
