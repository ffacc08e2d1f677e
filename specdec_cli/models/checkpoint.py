"""A model folder before any weight is read: its configuration, and every reason not to load it (pure).

Law: a folder that asks to run repository code is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specdec_cli.errors import NotAvailable, Refused
from specdec_cli.models.headers import read_header

# Heads read the target's hidden states: they are no language models by themselves.
SIDECARS = {
    "MTP": re.compile(r"mtp|nextn", re.I),
    "EAGLE": re.compile(r"eagle", re.I),
    "Medusa": re.compile(r"medusa", re.I),
    "Hydra": re.compile(r"hydra", re.I),
    "DFlash": re.compile(r"dflash", re.I),
    "DSpark": re.compile(r"dspark", re.I),
    "assistant": re.compile(r"assistant", re.I),
    "speculator": re.compile(r"speculator", re.I),
}
SIDECAR_KEYS = ("medusa_num_heads", "eagle_config", "speculators_config", "speculators_model_type", "dflash_config")
CONTEXT_KEYS = ("max_position_embeddings", "max_seq_len", "n_positions", "seq_length", "model_max_length")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder with a readable configuration and all its weight files; `name` is what the user called it."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    weights: tuple[Path, ...]

    @property
    def model_type(self) -> str:
        return str(self.config["model_type"])

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of a multimodal configuration, or all of it."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, Mapping) else self.config

    @property
    def context_limit(self) -> int | None:
        """Tokens the model was made for, None where the configuration does not say."""
        for source in (self.text_config, self.config):
            for key in CONTEXT_KEYS:
                if isinstance(source.get(key), int) and source[key] > 0:
                    return int(source[key])
        return None

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """The values of generation_config.json; empty if it is missing or unreadable, since it only sets defaults."""
        try:
            values = json.loads((self.folder / "generation_config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}

    @property
    def declared_dtype(self) -> str | None:
        """The dtype that the configuration declares, such as `bfloat16`."""
        dtype = self.config.get("dtype") or self.config.get("torch_dtype") or self.text_config.get("dtype")
        return dtype if isinstance(dtype, str) else None

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the weights in memory: where the configuration declares float32, mlx computes in float32."""
        stored = sum(path.stat().st_size for path in self.weights)
        if self.declared_dtype != "float32":
            return stored
        return sum(4 * _values(path) for path in self.weights)


# mlx-lm's module for such a type exits the process on import if its package is missing.
NEEDED_PACKAGES = {"olmo": "hf_olmo"}


def read_checkpoint(folder: Path, name: str, weights: bool = True, heads: bool = False) -> Checkpoint:
    """The checkpoint in `folder`; without `weights` only its configuration need be there; `heads` may be alone in it.

    Raises: NotAvailable if it is missing, incomplete or unreadable; Refused for repository code and sidecars.
    """
    if not folder.is_dir():
        raise NotAvailable(f"no folder {folder} for {name}", "check the path; a Hub id looks like organisation/name")
    config = _read_json(folder / "config.json", name)
    _refuse_code(config, "config.json", name)
    if (folder / "tokenizer_config.json").is_file():
        _refuse_code(_read_json(folder / "tokenizer_config.json", name), "tokenizer_config.json", name)
    if not isinstance(config.get("model_type"), str):
        raise NotAvailable(
            f"config.json of {name} names no model_type, but mlx-lm needs one", "use a folder that mlx-lm can load"
        )
    package = NEEDED_PACKAGES.get(config["model_type"])
    if package and find_spec(package) is None:
        raise NotAvailable(
            f"{name} is of type {config['model_type']}, for which mlx-lm needs the package {package}",
            f"install {package} beside specdec, or use another model",
        )
    if not heads:
        _refuse_sidecar(config, name)
    return Checkpoint(name, folder, config, _weights(folder, name) if weights else ())


def _read_json(path: Path, name: str) -> dict[str, Any]:
    if not path.is_file():
        raise NotAvailable(f"{name} has no {path.name} in {path.parent}", "point to the folder that holds config.json")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise NotAvailable(f"{path.name} of {name} is not valid JSON: {error}", "download the model again") from error
    if not isinstance(values, dict):
        raise NotAvailable(f"{path.name} of {name} holds a {type(values).__name__}, not an object", "download it again")
    return values


def _refuse_code(config: Mapping[str, Any], file: str, name: str) -> None:
    for key in ("model_file", "auto_map"):
        if config.get(key):
            raise Refused(
                f"{file} of {name} asks to run code from the repository ({key}: {_short(config[key])})",
                "specdec never runs repository code; use a conversion without that key",
            )


def _refuse_sidecar(config: Mapping[str, Any], name: str) -> None:
    labels = [str(config["model_type"]), *map(str, config.get("architectures") or ())]
    keys = [key for key in SIDECAR_KEYS if key in config]
    for kind, pattern in SIDECARS.items():
        if any(pattern.search(label) for label in labels + keys):
            raise Refused(
                f"{name} is a drafter of kind {kind} ({labels[0]}), which reads the target's hidden states",
                "use a small language model of the target's family as draft instead",
            )


def _weights(folder: Path, name: str) -> tuple[Path, ...]:
    """All weight files mlx-lm would read; an index that lists absent shards is an error."""
    found = tuple(sorted(folder.glob("model*.safetensors")))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        named = {str(shard) for shard in _read_json(index, name).get("weight_map", {}).values()}
        missing = sorted(named - {path.name for path in found})
        if missing:
            raise NotAvailable(
                f"{name} lacks {len(missing)} of {len(named)} weight files, first {missing[0]}", "download it again"
            )
    if not found:
        others = sorted(path.name for path in folder.glob("*") if path.suffix in {".bin", ".pt", ".gguf", ".pth"})
        seen = f"only {others[0]}" if others else "none"
        raise NotAvailable(
            f"no weights for {name}: {folder} holds {seen}, and model*.safetensors is needed",
            "use an MLX or safetensors conversion of the model",
        )
    return found


def _values(path: Path) -> int:
    """Numbers stored in one safetensors file, from its header. Raises: NotAvailable if that is damaged."""
    return sum(math.prod(stored.shape) for stored in read_header(path).tensors.values())


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
