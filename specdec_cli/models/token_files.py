"""The files of a tokenizer, read before any library reads them. Law: no size of theirs is trusted."""

from __future__ import annotations

import filecmp
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specdec_cli import jsonfile

# Readers of a vocabulary keep a list as long as its largest id; the largest vocabularies have a million tokens.
MOST_ID = 10_000_000
LARGE = re.compile(rb'[:\s"]\d{8,}')
ID_FILES = ("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "vocab.json")


def read_alike(one: Path, other: Path) -> bool:
    """Whether the files of two tokenizers are the same, byte for byte; templates say nothing about ids."""
    names, others = ({path.name for path in folder.iterdir() if _is_of_tokenizer(path)} for folder in (one, other))
    return names == others and all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


def _is_of_tokenizer(path: Path) -> bool:
    model = path.name in ("config.json", "generation_config.json") or path.name.endswith(".index.json")
    return path.is_file() and not model and path.suffix in (".json", ".model", ".txt", ".tiktoken")


def damaged_file(folder: Path) -> str:
    """The first of the tokenizer's JSON files that cannot be read, and why; empty if all can."""
    for path in sorted(folder.glob("*.json")):
        if path.name == "config.json" or path.name.endswith(".index.json"):
            continue
        try:
            jsonfile.parse_object(path.read_bytes())
        except OSError as error:
            return f"{path.name}: {error.strerror}"
        except jsonfile.NotJson as error:
            return f"{path.name}: {error}"
    return ""


def require_small_ids(folder: Path) -> None:
    """Raises: ValueError for an id above MOST_ID, before anything makes room for it; OSError."""
    for path in (folder / name for name in ID_FILES):
        data = path.read_bytes() if path.is_file() else b""
        if LARGE.search(data):  # few files have such a number, so few are read twice
            for text, token in _ids(jsonfile.parse_object(data)):
                if token > MOST_ID:
                    raise ValueError(f"{path.name} gives {text!r} the id {token}, and none is above {MOST_ID}")


def _ids(values: Mapping[str, Any]) -> Iterator[tuple[object, int]]:
    """(text, id) of every token that one of ID_FILES names."""
    model, added, decoder = (values.get(key) for key in ("model", "added_tokens", "added_tokens_decoder"))
    vocabulary = model.get("vocab") if isinstance(model, dict) else values
    found = list(vocabulary.items()) if isinstance(vocabulary, dict) else []
    found += [(one.get("content"), one.get("id")) for one in added or () if isinstance(one, dict)]
    if isinstance(decoder, dict):
        entries = [(one, int(key)) for key, one in decoder.items() if key.isdigit()]
        found += [(one.get("content") if isinstance(one, dict) else one, token) for one, token in entries]
    # The other whole numbers of a tokenizer's configuration, such as its longest text, are no ids.
    known = values.keys() if "tokenizer_class" in values or "model_max_length" in values else ()
    yield from ((text, token) for text, token in found if isinstance(token, int) and text not in known)
