"""Which files a tokenizer consists of, and whether two are the same. Neither mlx-lm nor transformers is imported."""

from __future__ import annotations

import filecmp
from pathlib import Path

from specdec_cli.core import jsonfile

ENDINGS = (".json", ".model", ".txt", ".tiktoken", ".jinja")
OTHERS = ("config.json", "generation_config.json")
SETTINGS, TEMPLATE = "tokenizer_config.json", "chat_template"


def tokenizer_files(folder: Path) -> list[Path]:
    """All that says how ids are text, and messages; not macOS's `._` files. Raises: OSError."""
    there = (path for path in sorted(folder.iterdir()) if path.name[0] != ".")
    files = (path for path in there if path.is_file() and path.suffix in ENDINGS)
    return [path for path in files if path.name not in OTHERS and not path.name.endswith(".index.json")]


def read_alike(one: Path, other: Path) -> bool:
    """Whether two tokenizers' files are the same, byte for byte, but for templates, which say nothing about ids.

    Raises: OSError.
    """
    files, others = (
        {path.name: path for path in tokenizer_files(folder) if path.stem != TEMPLATE} for folder in (one, other)
    )
    return files.keys() == others.keys() and all(_alike(file, others[name]) for name, file in files.items())


def _alike(one: Path, other: Path) -> bool:
    if filecmp.cmp(one, other, shallow=False):
        return True
    values = [jsonfile.read_or_empty(path) for path in (one, other)] if one.name == SETTINGS else []
    return len(values) == 2 and all(values) and values[0] | {TEMPLATE: None} == values[1] | {TEMPLATE: None}
