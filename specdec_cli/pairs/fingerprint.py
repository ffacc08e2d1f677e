"""Whether several machines have the same files of a pair. They are not read whole: that takes as long as loading."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from specdec_cli.core.readfile import open_file
from specdec_cli.models.checkpoint import ADAPTER, Checkpoint
from specdec_cli.models.tokenizer_files import tokenizer_files
from specdec_cli.pairs.files import PairFiles

# A file up to this size is read whole: configurations, tokenizers, adapters. Of a larger one its beginning, which holds
# the header, and so many samples that every large matrix has some.
WHOLE_BYTES, BEGINNING_BYTES = 1 << 26, 1 << 20
SAMPLES, SAMPLE_BYTES = 1024, 1 << 12


def fingerprints(files: PairFiles, here: bool = False) -> dict[str, str]:
    """sha256 of each part of the pair, by its name: of small files, and of headers and samples of weights.

    A value that was changed between two samples is not seen; another training changes nearly all. What is compared
    `here` alone has the time of its last change in the place of samples, which take seconds. Raises: OSError.
    """
    models = dict(zip(("the target", "the draft"), files.checkpoints, strict=False))
    found = {name: _sha256([*model.weights, *_configs(model.folder)], here) for name, model in models.items()}
    if files.head:
        held = files.head.files
        found["the draft"] = _sha256([*held, *(config for path in held for config in _configs(path.parent))], here)
    adapters = [model.adapter for model in models.values() if model.adapter]
    found["the adapter"] = _sha256(folder / name for folder in adapters for name in ("adapter_config.json", ADAPTER))
    found["the tokenizer"] = tokenizers_print(*models.values())
    return found


def tokenizers_print(*models: Checkpoint) -> str:
    """Of the tokenizers of these models. Raises: OSError."""
    return _sha256(path for model in models for path in tokenizer_files(model.folder))


def _configs(folder: Path) -> list[Path]:
    """What the network is, and where its answers end."""
    return [path for name in ("config.json", "generation_config.json") if (path := folder / name).is_file()]


def _sha256(paths: Iterable[Path], here: bool = False) -> str:
    """Of names, sizes and contents, in this order."""
    digest = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with open_file(path) as stream:
            digest.update(stream.read(BEGINNING_BYTES if here or size > WHOLE_BYTES else size))
            if here and stream.tell() < size:
                digest.update(str(path.stat().st_mtime_ns).encode())
                continue
            for at in range(stream.tell(), size, max(size // SAMPLES, SAMPLE_BYTES)):
                stream.seek(at)
                digest.update(stream.read(SAMPLE_BYTES))
    return f"sha256 {digest.hexdigest()[:12]}"
