"""A model folder before any weight is read: its configuration, the headers of its weights, every reason not to load it.

Code that a repository brings never runs: mlx-lm's own key for it is refused, transformers' is not heeded.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import NotAvailable, Refused
from specdec_cli.core.jsonfile import NotJson, kind_of, shown
from specdec_cli.core.readfile import expanded, open_file
from specdec_cli.core.request import MAX_ROWS
from specdec_cli.core.safetensors import INDEX, WEIGHTS, Header, find_weights, is_beside, read_header, refuse_pointer
from specdec_cli.core.textfile import BYTE_ORDER_MARKS

FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# Weights in other forms, or under names that mlx-lm does not look for.
OTHER_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf", ".pth")
# Files that mlx-lm and transformers read themselves, as UTF-8 without a mark.
READ_BY_OTHERS = (
    *("config.json", "tokenizer_config.json", "tokenizer.json", "chat_template.jinja"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json"),
)
# Heads read the target's hidden states: they are no language models by themselves. Known by a word in their type.
SIDECARS = {
    "mtp": "MTP",
    "nextn": "MTP",
    "eagle": "EAGLE",
    "medusa": "Medusa",
    "hydra": "Hydra",
    "dflash": "DFlash",
    "dspark": "DSpark",
    "assistant": "assistant",
    "speculator": "speculator",
}
SIDECAR_KEYS = ("medusa_num_heads", "eagle_config", "speculators_config", "speculators_model_type", "dflash_config")
ADAPTER = "adapters.safetensors"
QUANTIZATION_KEYS = ("quantization", "quantization_config")
CONTEXT_KEYS = ("max_position_embeddings", "max_seq_len", "n_positions", "seq_length", "model_max_length")
KINDS: dict[str, type] = {"architectures": list, "text_config": dict, **dict.fromkeys(QUANTIZATION_KEYS, dict)}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder with a readable configuration and all its weight files; `name` is what the user called it.

    `recent`: as a draft it reads at most so many of the last tokens of a context; None: all of it (`as_draft`).
    `adapter` is a folder of mlx-lm's. Of a `group` of machines (`engine.group`) each computes its share of the network.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    weights: tuple[Path, ...]
    recent: int | None = None
    adapter: Path | None = None
    group: Any = None

    @property
    def model_type(self) -> str:
        return str(self.config["model_type"])

    @property
    def text_config(self) -> Mapping[str, Any]:
        return text_config(self.config)

    @property
    def context_limit(self) -> int | None:
        """Tokens a context may have: those the model was made for, None where the configuration does not say.

        None, too, where only the end of a context is read.
        """
        return None if self.recent is not None or self.stated_context is None else self.stated_context[0]

    @property
    def stated_context(self) -> tuple[int, str] | None:
        """(tokens that it was made for, the fields that say so); None where the configuration does not say."""
        if (found := _stretched(self.text_config)) and self.text_config is not self.config:
            return found[0], f"text_config.{found[1]}"
        return found or _stretched(self.config)

    @property
    def strays(self) -> tuple[Path, ...]:
        """Files beside its weights that mlx-lm would read with them, and that a whole index does not name."""
        if not self.weights:
            return ()
        return tuple(path for path in sorted(self.folder.glob(WEIGHTS)) if path not in self.weights)

    def as_draft(self, recent: int | None) -> Checkpoint:
        """The same model, which reads at most the last `recent` tokens of a context at once and holds twice as many.

        They are fewer where it was made for less: so many, and a pass more, fit into its own context.
        """
        if recent and (limit := self.context_limit):
            recent = min(recent, (limit - MAX_ROWS) // 2)
        return replace(self, recent=recent if recent and recent > 0 else None)

    def with_adapter(self, name: str | None) -> Checkpoint:
        """The same model under the adapter in the folder `name`. Raises: NotAvailable, Refused for a PEFT adapter."""
        if name is None:
            return self
        folder = expanded(name)
        config = read_json(folder / "adapter_config.json", f"adapter {name}")
        if "lora_layers" in config and "num_layers" not in config:
            hint = "rename lora_layers to num_layers in its adapter_config.json"
            raise Refused(f"adapter {name} was written by an older mlx-lm: it has no num_layers", hint)
        if (folder / ADAPTER).is_file():
            refuse_pointer(folder / ADAPTER)
            return replace(self, adapter=folder)
        if "peft_type" in config:
            hint = "train one: uvx --from mlx-lm mlx_lm.lora"
            raise Refused(f"adapter {name} is PEFT's, and mlx-lm reads its own", hint)
        raise NotAvailable(f"adapter {name} has no {ADAPTER}", "give the folder that mlx_lm.lora wrote")

    @property
    def foreign_packing(self) -> Mapping[str, Any]:
        """How another library packed the weights, by where mlx-lm looks; empty for none, and for mlx's own packing."""
        if self.config.get("quantization") is not None:
            return {}
        stated = [values.get("quantization_config") for values in (self.config, self.text_config)]
        found = next(filter(None, stated), None) or jsonfile.read_or_empty(self.folder / "hf_quant_config.json")
        return found if isinstance(found, Mapping) else {}

    @property
    def unpacks_fp8(self) -> bool:
        """Whether bfloat16 is made of weights of 8 bits: mlx has only those with one exponent for 32 as they are."""
        given = self.foreign_packing
        own = given.get("scale_fmt") == "ue8m0" and given.get("weight_block_size") == [32, 32]
        return given.get("quant_method") == "fp8" and not own

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """The values of generation_config.json; empty if there is none. Raises: NotAvailable if it is damaged."""
        return read_generation_config(self.folder, self.name)

    def whole(self, key: str, usual: int) -> int:
        """A size in the language model's configuration, the largest of a list with one for each layer.

        Raises: NotAvailable, with the value, if it is no size.
        """
        stated = self.text_config.get(key)
        sizes = stated if isinstance(stated, list) and stated else [stated]
        try:
            return max(jsonfile.whole({key: one}, key, usual) for one in sizes)
        except NotJson as error:
            raise _type_error("config.json", self.name, str(error)) from error

    @property
    def declared_dtype(self) -> str | None:
        """The dtype that the configuration declares, such as `bfloat16`."""
        dtype = self.config.get("dtype") or self.config.get("torch_dtype") or self.text_config.get("dtype")
        return dtype if isinstance(dtype, str) else None

    @property
    def computed_dtype(self) -> str | None:
        """The type that the network computes in: that of most of its values, packed matrices' scales included.

        Older conversions hold float16 though their configuration declares bfloat16. Raises: NotAvailable for damage.
        """
        if self.declared_dtype == "float32" or not self.weights:
            return self.declared_dtype
        types = Counter(FLOATS.get(tensor.dtype) for tensor in read_header(self.weights[0]).tensors.values())
        del types[None]
        return max(types, key=types.__getitem__, default=self.declared_dtype)

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the weights in memory. Raises: NotAvailable for a damaged file."""
        return self.bytes_of(map(read_header, self.weights))

    def bytes_of(self, headers: Iterable[Header]) -> int:
        """Bytes in memory of what files with these `headers` hold of the language model: mlx-lm drops heads and towers.

        Where the configuration declares float32, mlx computes in float32.
        """
        wide, fp8 = self.declared_dtype == "float32", 2 if self.unpacks_fp8 else 1
        tensors = (tensor for header in headers for tensor in header.tensors.values())
        needed = (one for one in tensors if not is_beside(one.name, self.config))
        sizes = ((one, one.size_bytes * (fp8 if one.dtype.startswith("F8_") else 1)) for one in needed)
        return sum(4 * math.prod(one.shape) if wide else size for one, size in sizes)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a multimodal configuration, or all of it."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


# Kinds of rope whose configuration states the length before they stretch it by `factor`; the others state what it is
# stretched to (transformers, modeling_rope_utils.py). Not "dynamic": behind the stated length mlx-lm gives every row of
# a pass the base of the last one (rope_utils.py), so that a draft would change the words.
STRETCHING = ("yarn", "linear")
# Models that state the stretched length beside a linear rope.
STRETCHED = "gemma3"


def _stretched(config: Mapping[str, Any]) -> tuple[int, str] | None:
    """(tokens that a configuration was made for, with the stretch of its rope, the fields); None if it does not say."""
    field = next((key for key in CONTEXT_KEYS if _is_length(config.get(key))), None)
    if field is None:
        return None
    stated: int = config[field]
    given = config.get("rope_scaling") or config.get("rope_parameters")
    rope: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if (
        str(config.get("model_type")).startswith(STRETCHED)
        or kind not in STRETCHING
        or not isinstance(factor, int | float)
        or not 1 <= factor < math.inf
    ):
        return stated, field
    source, origin = field, "original_max_position_embeddings"
    if kind == "yarn" and _is_length(rope.get(origin)):
        source = origin
    stretched = int(factor * (rope if source == origin else config)[source])
    return (stretched, f"{source} × {factor:g}, rope {kind}") if stretched > stated else (stated, field)


def _is_length(value: object) -> bool:
    return type(value) is int and value > 0


def read_checkpoint(folder: Path, name: str, weights: bool = True, heads: bool = False) -> Checkpoint:
    """The checkpoint in `folder`; without `weights` only its configuration need be there; `heads` may be alone in it.

    Raises: NotAvailable if it is missing, incomplete or unreadable; Refused for repository code and sidecars.
    """
    if not folder.is_dir():
        raise NotAvailable(
            f"there is no folder {folder} for {name}", "check the path; a Hub id looks like organisation/name"
        )
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        base = read_json(folder / "adapter_config.json", name).get("base_model_name_or_path")
        hint = f"specdec pairs add NAME --target {base or 'MODEL'} --adapter {shlex.quote(str(folder))}"
        raise NotAvailable(f"{name} is an adapter, and not a model by itself", hint)
    config = read_json(folder / "config.json", name)
    checkpoint_of(config, folder, name)
    for file in filter(Path.is_file, (folder / name for name in READ_BY_OTHERS)):
        refuse_pointer(file)
        with open_file(file) as stream:
            if stream.read(3).startswith(BYTE_ORDER_MARKS):
                hint = f"save {file} as UTF-8 without it: mlx-lm does not read it"
                raise NotAvailable(f"{file.name} of {name} begins with a byte order mark", hint)
    if (folder / "tokenizer_config.json").is_file():
        _refuse_code(read_json(folder / "tokenizer_config.json", name), "tokenizer_config.json", name)
    if not heads and (kind := sidecar_kind(config)):
        raise Refused(
            f"{name} is a drafter of kind {kind} ({config['model_type']}), which reads the target's hidden states",
            "use a small language model of the target's family as draft instead",
        )
    return Checkpoint(name, folder, config, _weights(folder, config, name) if weights else ())


def checkpoint_of(config: Mapping[str, Any], folder: Path, name: str) -> Checkpoint:
    """A checkpoint of which only the configuration is known. Raises: NotAvailable, Refused for repository code."""
    _refuse_code(config, "config.json", name)
    if not (isinstance(config.get("model_type"), str) and config["model_type"]):
        raise NotAvailable(
            f"config.json of {name} names no model_type, but mlx-lm needs one: it is {shown(config.get('model_type'))}",
            "use a folder that mlx-lm can load",
        )
    for key, kind in KINDS.items():
        if not isinstance(config.get(key), kind | None):
            problem = f"{key} is {shown(config[key])}, but {kind_of(kind())} is expected"
            raise _type_error("config.json", name, problem)
    return Checkpoint(name, folder, config, ())


def sidecar_kind(config: Mapping[str, Any]) -> str | None:
    """The kind of head that a configuration says its folder holds in place of a model, None if it is of a model."""
    labels = [str(config.get("model_type")), *map(str, config.get("architectures") or ())]
    text = " ".join([*labels, *(key for key in SIDECAR_KEYS if key in config)]).lower()
    return next((kind for word, kind in SIDECARS.items() if word in text), None)


def read_json(path: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file of the model `name`. Raises: NotAvailable, with the file and what is wrong with it."""
    if not path.is_file():
        raise NotAvailable(f"{name} has no {path.name} in {path.parent}", f"point to the folder that holds {path.name}")
    try:
        refuse_pointer(path)
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
    """End-of-sequence ids: the generation configuration's and those of `config`, the model's; None without any.

    Raises: NotAvailable, with file and value, for one that is no id: without it a reply would not end.
    """
    found: list[int] = []
    sources = {"generation_config.json": read_generation_config(folder, name), "config.json": config}
    for source, values in sources.items():
        ends = values.get("eos_token_id")
        if ends is None:
            continue
        listed = ends if isinstance(ends, list) else [ends]
        if not all(type(end) is int for end in listed):
            raise _type_error(source, name, f"eos_token_id is {shown(ends)}, but token ids are expected")
        found += listed
    return list(dict.fromkeys(found)) or None


def _type_error(file: str, name: str, problem: str) -> NotAvailable:
    return NotAvailable(f"{file} of {name} is wrong: {problem}", "download the model again, or use another conversion")


def _refuse_code(config: Mapping[str, Any], file: str, name: str) -> None:
    """Raises: Refused for mlx-lm's own key for code. `auto_map` is transformers', and what it names is never run."""
    if config.get("model_file"):
        raise Refused(
            f"{file} of {name} asks to run code from the repository (model_file: {shown(config['model_file'])})",
            "specdec never runs repository code; use a conversion without that key",
        )


def _weights(folder: Path, config: Mapping[str, Any], name: str) -> tuple[Path, ...]:
    """The files of `Weights`. Raises: NotAvailable where some are missing, and where there are none."""
    index = folder / INDEX
    shards = read_json(index, name).get("weight_map") if index.is_file() else None
    weights = find_weights(folder, config, shards)
    for path in folder.glob(WEIGHTS):
        refuse_pointer(path)
    if weights.missing:
        raise NotAvailable(f"{name} lacks {weights.lacks}, first {weights.missing[0]}", "download it again")
    if not weights.files:
        others = sorted(path.name for path in folder.glob("*") if path.suffix in OTHER_WEIGHTS)
        seen = f"only {others[0]}" if others else "none"
        raise NotAvailable(
            f"no weights for {name}: {folder} holds {seen}, and model*.safetensors is needed",
            "use an MLX or safetensors conversion of the model",
        )
    return weights.files
