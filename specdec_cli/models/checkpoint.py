"""A model folder before any weight is read: its configuration, the headers of its weights, every reason not to load it.

A folder that asks to run repository code is refused. A safetensors file begins with 8 bytes of length and that many
bytes of JSON: name -> dtype, shape and place of each tensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specdec_cli import jsonfile
from specdec_cli.errors import NotAvailable, Refused
from specdec_cli.jsonfile import NotJson, kind_of, shown

# The format's own limit (safetensors, MAX_HEADER_SIZE).
MOST_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in a file, by the name it has there; `dtype` is safetensors' own word, such as `BF16`."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """Everything that a file says of itself: its tensors by name, its `metadata`, and how long it has to be."""

    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str]
    file_bytes: int = 0


def read_header(path: Path) -> Header:
    """The header of one file. Raises: NotAvailable if it is damaged, or not there any more."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MOST_HEADER_BYTES:
                raise NotJson(f"a header of {length} bytes")
            values = jsonfile.parse_object(file.read(length))
        metadata = values.pop("__metadata__", {})
        end = max((int(entry["data_offsets"][1]) for entry in values.values()), default=0)
        tensors = {name: _read_entry(path, name, entry) for name, entry in values.items()}
        return Header(tensors, metadata, 8 + length + end)
    except OSError as error:
        raise NotAvailable(
            f"{path.name} cannot be read: {error.strerror}", "delete the file and download it again"
        ) from error
    except (ValueError, OverflowError, MemoryError, KeyError, TypeError, AttributeError) as error:
        raise NotAvailable(
            f"{path.name} is damaged ({path.stat().st_size} bytes): its header cannot be read",
            "delete the file and download it again",
        ) from error


def _read_entry(path: Path, name: str, entry: Mapping[str, Any]) -> Stored:
    begin, end = map(int, entry["data_offsets"])
    return Stored(path, name, str(entry["dtype"]), tuple(map(int, entry["shape"])), end - begin)


# The files that mlx-lm reads.
WEIGHTS = "model*.safetensors"
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
QUANTIZATION_KEYS = ("quantization", "quantization_config")
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
        values = (source.get(key) for source in (self.text_config, self.config) for key in CONTEXT_KEYS)
        return next((value for value in values if type(value) is int and value > 0), None)

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """The values of generation_config.json; empty if there is none. Raises: NotAvailable if it is damaged."""
        return read_generation_config(self.folder, self.name)

    def whole(self, key: str, usual: int) -> int:
        """A size in the language model's configuration. Raises: NotAvailable, with the value, if it is no size."""
        try:
            return jsonfile.whole(self.text_config, key, usual)
        except NotJson as error:
            raise _type_error("config.json", self.name, str(error)) from error

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
    config = read_json(folder / "config.json", name)
    checkpoint_of(config, folder, name)
    if (folder / "tokenizer_config.json").is_file():
        _refuse_code(read_json(folder / "tokenizer_config.json", name), "tokenizer_config.json", name)
    package = NEEDED_PACKAGES.get(config["model_type"])
    if package and find_spec(package) is None:
        raise NotAvailable(
            f"{name} is of type {config['model_type']}, for which mlx-lm needs the package {package}",
            f"install {package} beside specdec, or use another model",
        )
    if not heads:
        _refuse_sidecar(config, name)
    return Checkpoint(name, folder, config, _weights(folder, name) if weights else ())


def checkpoint_of(config: Mapping[str, Any], folder: Path, name: str) -> Checkpoint:
    """A checkpoint of which only the configuration is known. Raises: NotAvailable, Refused for repository code."""
    _refuse_code(config, "config.json", name)
    _require_types(config, name)
    return Checkpoint(name, folder, config, ())


def read_json(path: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file of the model `name`. Raises: NotAvailable, with the file and what is wrong with it."""
    if not path.is_file():
        raise NotAvailable(f"{name} has no {path.name} in {path.parent}", "point to the folder that holds config.json")
    try:
        return jsonfile.read_object(path)
    except NotJson as error:
        raise NotAvailable(f"{path.name} of {name} is not valid JSON: {error}", "download the model again") from error
    except OSError as error:
        raise NotAvailable(
            f"{path.name} of {name} cannot be read: {error.strerror}", f"check the permissions of {path}"
        ) from error


def read_generation_config(folder: Path, name: str) -> dict[str, Any]:
    """As `Checkpoint.generation_config`."""
    path = folder / "generation_config.json"
    return read_json(path, name) if path.is_file() else {}


def stop_ids(folder: Path, name: str, config: Mapping[str, Any]) -> list[int] | None:
    """End-of-sequence ids: the generation configuration's, else those of `config`, the model's; None without any.

    Raises: NotAvailable, with file and value, for one that is no id: without it a reply would not end.
    """
    source, values = "generation_config.json", read_generation_config(folder, name)
    if values.get("eos_token_id") is None:
        source, values = "config.json", dict(config)
    ends = values.get("eos_token_id")
    if ends is None:
        return None
    found = ends if isinstance(ends, list) else [ends]
    if not all(isinstance(end, int) and not isinstance(end, bool) for end in found):
        raise _type_error(source, name, f"eos_token_id is {shown(ends)}, and ids of tokens are expected")
    return found


def _require_types(config: Mapping[str, Any], name: str) -> None:
    """Raises: NotAvailable for a value that specdec reads and that is of another kind. mlx-lm's are its own."""
    if not (isinstance(config.get("model_type"), str) and config["model_type"]):
        raise NotAvailable(
            f"config.json of {name} names no model_type, but mlx-lm needs one: it is {shown(config.get('model_type'))}",
            "use a folder that mlx-lm can load",
        )
    for key, kind in (("architectures", list), ("text_config", dict), *((key, dict) for key in QUANTIZATION_KEYS)):
        value = config.get(key)
        if value is not None and not isinstance(value, kind):
            wanted = kind_of(kind())
            raise _type_error("config.json", name, f"{key} is {shown(value)}, and {wanted} is expected")
    for part in (config, config.get("text_config") or {}):
        for key, value in part.items():
            if key in CONTEXT_KEYS and not (value is None or type(value) in (int, float)):
                raise _type_error("config.json", name, f"{key} is {shown(value)}, and a number is expected")


def _type_error(file: str, name: str, problem: str) -> NotAvailable:
    return NotAvailable(f"{file} of {name} is wrong: {problem}", "download the model again, or use another conversion")


def _refuse_code(config: Mapping[str, Any], file: str, name: str) -> None:
    for key in ("model_file", "auto_map"):
        if config.get(key):
            raise Refused(
                f"{file} of {name} asks to run code from the repository ({key}: {shown(config[key])})",
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
    found = tuple(sorted(folder.glob(WEIGHTS)))
    for path in found:
        _require_file(path, name)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        named = _shards(read_json(index, name), name)
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


def _require_file(path: Path, name: str) -> None:
    """Raises: NotAvailable for weights that are a folder, a pipe, or a link to nothing."""
    if path.is_file():
        return
    if path.is_symlink() and not path.exists():
        what = f"a link to {path.readlink()}, which is not there"
    else:
        what = "a folder" if path.is_dir() else "no regular file"
    raise NotAvailable(f"{path.name} of {name} is {what}, and a file is needed", "put the file itself in its place")


def _shards(index: Mapping[str, Any], name: str) -> set[str]:
    """The files that a weight index names. Raises: NotAvailable for names that are none."""
    weight_map = index.get("weight_map", {})
    named = list(weight_map.values()) if isinstance(weight_map, dict) else [weight_map]
    for shard in named:
        if not isinstance(shard, str):
            problem = f"weight_map holds {shown(shard)}, and names of files are expected"
            raise _type_error("model.safetensors.index.json", name, problem)
    return set(named)


def _values(path: Path) -> int:
    """Numbers stored in one safetensors file, from its header. Raises: NotAvailable if that is damaged."""
    return sum(math.prod(stored.shape) for stored in read_header(path).tensors.values())
