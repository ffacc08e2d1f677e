"""Trained heads among a folder's files, before any weight is read (pure). Heads are known by tensors, never by names.

A configuration that announces a head proves nothing: most conversions drop the tensors and keep the announcement. Heads
lie in the target's own files (also in files outside the index and in subfolders), or in a folder of their own. A head
is of a family that is known whole, or refused. Which trunk state a head reads, the order of its inputs and its decoder
layer are the engine's (`engine.heads.mtp`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from specdec_cli.core.errors import NotAvailable, Refused
from specdec_cli.core.kinds import ASSISTANT, MEDUSA, MTP
from specdec_cli.core.safetensors import Header, Stored, read_header
from specdec_cli.models.checkpoint import Checkpoint, read_checkpoint, read_json, sidecar_kind, text_config

# Every head of Qwen3-Next, 3.5, 3.6 and 3.8 has these, whatever else it has.
QWEN_PARTS = ("norm.weight", "fc.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight")
PREFIX = re.compile(r"^(?:language_model\.|model\.)*mtp\.")
OTHERWISE = "use a small language model of the target's family as draft instead"
ITS_TARGET = "a head drafts only for the target it was trained with"


@dataclass(frozen=True, slots=True)
class HeadFamily:
    """A kind of head. `build` is "module:name" of its `engine.heads.mtp.Build`.

    `kind` is that of its drafter. `layer` matches the beginning of its tensors' names, up to `mark` in at least one of
    them. `parts` are tensors that every such head has, the last one of as many rows as the target's states are wide.
    `names` are its own words for the parts of a head; other tensors belong to its decoder layer. `copies` repeat what
    the target has, so they are not read. `output` has a row for each token that an output head of its own scores.
    `same` are values that its configuration and its target's have in common; `hint` is for one that does not agree.
    """

    name: str
    build: str
    model_types: frozenset[str] = frozenset()
    layer: re.Pattern[str] = PREFIX
    mark: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    copies: frozenset[str] = frozenset()
    kind: str = MTP.name
    label: str = "MTP head"
    parts: tuple[str, ...] = QWEN_PARTS
    output: str = "output.weight"
    same: tuple[str, ...] = ()
    hint: str = "use the head that was trained with this target, or --drafter ngram"

    def own_names(self, names: Iterable[str], source: str) -> dict[str, str]:
        """A head's name -> the name that it has among `names`, those of the tensors of `source`.

        Raises: Refused for a head of several layers.
        """
        names = list(names)
        layers = sorted({layer for name in names if (layer := self.layer_of(name))})
        if len(layers) > 1:
            raise Refused(
                f"the MTP head of {source} has {len(layers)} layers ({layers[0]}* and {layers[1]}*), and specdec knows "
                "heads of one",
                OTHERWISE,
            )
        parts = {name.removeprefix(layers[0]): name for name in names if name.startswith(layers[0])} if layers else {}
        return {self._rename(part): name for part, name in parts.items() if part not in self.copies}

    def layer_of(self, name: str) -> str:
        """What precedes `mark` in a tensor's `name`; empty for a tensor that does not show this family."""
        match = self.layer.match(name)
        return match[0] if match and name.startswith(self.mark, match.end()) else ""

    def _rename(self, part: str) -> str:
        base, dot, end = part.rpartition(".")
        return f"{self.names[base]}{dot}{end}" if base in self.names else f"layers.0.{part}"


_MTP = "specdec_cli.engine.heads.mtp"
MEDUSA_FAMILY = HeadFamily(
    "Medusa",
    "specdec_cli.engine.heads.medusa:MEDUSA_BUILD",
    kind=MEDUSA.name,
    label="Medusa head",
    parts=("blocks.0.layers.0.weight",),
)
ASSISTANT_FAMILY = HeadFamily(
    "Gemma 4",
    "specdec_cli.engine.heads.assistant:ASSISTANT_BUILD",
    frozenset({"gemma4_assistant", "gemma4_unified_assistant"}),
    copies=frozenset({"lm_head.weight"}),
    kind=ASSISTANT.name,
    label="assistant",
    parts=("model.embed_tokens.weight", "model.norm.weight", "pre_projection.weight", "post_projection.weight"),
    output="model.embed_tokens.weight",
    same=("vocab_size", "sliding_window", "head_dim", "global_head_dim"),
    hint="use the assistant of this very target, of a QAT target its QAT assistant, or --drafter ngram",
)
# Gathered a cluster at a time where its configuration says how many are scored.
CLUSTERS = ("centroid_intermediate_top_k", "num_centroids")
QWEN = HeadFamily("Qwen3-Next to 3.8", f"{_MTP}:QWEN_BUILD")
OWN = ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
NEXTN = dict(zip(("eh_proj", "enorm", "hnorm", "shared_head.norm"), OWN, strict=True))
MIMO = dict(zip(("input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm"), OWN, strict=True))
COPIES = frozenset({"embed_tokens.weight", "shared_head.head.weight"})
AFTER_THE_TRUNK = re.compile(r"^(?:language_model\.|model\.)*layers\.\d+\.")
MTP_LAYERS = re.compile(r"^(?:model\.)?mtp_layers\.\d+\.")
# GLM-4.7-Flash alone has an output head of its own, not a copy of the target's.
FLASH, EMBEDDING = NEXTN | {"shared_head.head": "output"}, frozenset({"embed_tokens.weight"})
# fmt: off
FAMILIES = (
    QWEN,
    HeadFamily("DeepSeek V3", f"{_MTP}:DEEPSEEK", frozenset({"deepseek_v3"}), AFTER_THE_TRUNK, "eh_proj.", NEXTN,
               COPIES),
    HeadFamily("GLM-4.5", f"{_MTP}:GLM", frozenset({"glm4_moe"}), AFTER_THE_TRUNK, "eh_proj.", NEXTN, COPIES),
    HeadFamily("GLM-4.7-Flash", f"{_MTP}:FLASH", frozenset({"glm4_moe_lite"}), AFTER_THE_TRUNK, "eh_proj.", FLASH,
               EMBEDDING),
    HeadFamily("MiMo", f"{_MTP}:MIMO", frozenset({"mimo"}), MTP_LAYERS, "input_proj.", MIMO),
)
# fmt: on
# Heads of other families, by a tensor that only they have. Of some it is open how they are used, others need more than
# one cache, or have several layers.
FOREIGN = {
    "Step": re.compile(r"transformer\.shared_head\."),
    "DeepSeek or GLM": re.compile(r"\.eh_proj\."),
    "DeepSeek V4": re.compile(r"(^|\.)mtp\..*\be_proj\."),
    "MiMo": re.compile(r"mtp_layers\.\d+\.|(^|\.)mtp\..*\binput_proj\."),
    "Nemotron-H": re.compile(r"(^|\.)mtp\..*\bmixer\."),
    "assistant": re.compile(r"^(?:pre|post)_projection\."),
    "Medusa": re.compile(r"^\d+\.0\.linear\.weight$|^lm_heads\.\d+\."),
}


# Tensors of Medusa heads, which score by the target's output head.
BLOCK = re.compile(r"blocks\.\d+\.layers\.\d+\.weight")
# As Medusa heads were published: a pickle may run code.
PICKLE = re.compile(r"medusa_lm_head\.(pt|bin|pth)")
# Configuration keys that announce heads, with their number.
ANNOUNCING = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
QUANTIZED = (".scales", ".biases")
FLOATS = ("F32", "F16", "BF16")
# The embedding of a whole model. A head's own copy of it lies below its layer.
TRUNK = re.compile(
    r"^(?:(?:language_model|model|transformer|backbone|llm)\.)*(?:embed\w*|wte|tok_embeddings|word_embed\w*)\."
)
# What a layer keeps of a token: these projections' outputs.
KEPT = re.compile(r"\.(?:k_proj|v_proj|kv_a_proj_with_mqa)\.weight$")


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """The tensors of one head: `tensors` by its own names, such as `fc.weight`; `config` is the language model's.

    `zero_centred`: the weights of its norms are stored less 1, as in the original repositories. `recent`: it
    attends to the last so many positions and holds twice as many; None: to all.
    """

    name: str
    tensors: Mapping[str, Stored]
    config: Mapping[str, Any]
    zero_centred: bool
    declared_dtype: str | None = None
    family: HeadFamily = QWEN
    recent: int | None = None

    def reading(self, recent: int | None) -> HeadFiles:
        """The same, reading the last `recent` tokens of a context; those that read one state do so in any case."""
        return self if self.recent == 1 else replace(self, recent=recent)

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"the {self.family.label} of {self.name}"

    @property
    def files(self) -> tuple[Path, ...]:
        """Each file that holds a part of it, once."""
        return tuple(sorted({stored.file for stored in self.tensors.values()}))

    @property
    def loaded_bytes(self) -> int:
        """Bytes in memory: where the configuration declares float32, mlx computes in float32."""
        wide = FLOATS if self.declared_dtype == "float32" else ()
        return sum(4 * prod(one.shape) if one.dtype in wide else one.size_bytes for one in self.tensors.values())

    def of_other_size(self, hidden_size: int) -> Refused | None:
        """The refusal of a head that does not read states of `hidden_size`."""
        rows = self.tensors[self.family.parts[-1]].shape
        if rows[0] == hidden_size:
            return None
        return Refused(f"{self.title} reads states of {list(rows)}, and the target's have {hidden_size}", ITS_TARGET)

    def of_other_target(self, target: Checkpoint) -> Refused | None:
        """The refusal of a head that was made for a target of another shape, by both configurations."""
        if refusal := self.of_other_size(target.whole("hidden_size", 0)):
            return refusal
        for key in self.family.same:
            mine, its = text_config(self.config).get(key), target.text_config.get(key, target.config.get(key))
            if mine is not None and its is not None and mine != its:
                what = f"{self.title} was trained with a {key} of {mine}, and {target.name} has {its}"
                return Refused(what, ITS_TARGET)
        return None

    @property
    def scores(self) -> bool:
        """Whether it has an output head of its own."""
        return self.family.output in self.tensors

    @property
    def gathered_bytes(self) -> int:
        """Bytes of its output head that a step does not read, where it scores the best clusters of tokens alone."""
        best, clusters = map(self.config.get, CLUSTERS)
        if not (self.config.get("use_ordered_embeddings") and type(best) is int and type(clusters) is int):
            return 0
        size = self.tensors[self.family.output].size_bytes
        return size - size * min(best, clusters) // max(clusters, 1)

    def require_outputs(self, vocab_size: int) -> None:
        """Raises: Refused for an output head of its own that has no score for some of the target's tokens."""
        if self.scores and (rows := self.tensors[self.family.output].shape[0]) < vocab_size:
            raise Refused(f"{self.title} scores {rows} tokens, but its target has {vocab_size}", ITS_TARGET)

    def cache_bytes(self, tokens: int) -> int:
        """Bytes of keys and values of so many tokens."""
        kept = sum(stored.shape[0] for name, stored in self.tensors.items() if KEPT.search(f".{name}"))
        if self.recent is not None:
            tokens = min(tokens, 2 * self.recent)
        return tokens * kept * (4 if self.declared_dtype == "float32" else 2)


def find_head(checkpoint: Checkpoint) -> HeadFiles | None:
    """The head among the files of `checkpoint`, None if there is none and none is announced.

    Raises: NotAvailable for a head that is announced but not there, incomplete or of a number type that cannot be read;
    Refused for one of a family that specdec does not know.
    """
    headers = {path: read_header(path) for path in head_files(checkpoint.folder)}
    found = head_in(checkpoint, headers)
    for path in found.files if found else ():
        size_bytes, needed_bytes = path.stat().st_size, headers[path].file_bytes
        if size_bytes < needed_bytes:
            about = f"{path.name} of {checkpoint.name} is cut short: {size_bytes} of {needed_bytes} bytes"
            raise NotAvailable(f"{about}, and it holds a head", "delete the file and download it again")
    return found


def head_in(checkpoint: Checkpoint, headers: Mapping[Path, Header]) -> HeadFiles | None:
    """As `find_head`, by the headers of files that may be elsewhere."""
    names = {name: stored for header in headers.values() for name, stored in header.tensors.items()}
    if names and all(map(BLOCK.fullmatch, names)):
        return HeadFiles(
            checkpoint.name, names, checkpoint.config, False, checkpoint.declared_dtype, MEDUSA_FAMILY, recent=1
        )
    if checkpoint.model_type in ASSISTANT_FAMILY.model_types:
        own = {name: stored for name, stored in names.items() if name not in ASSISTANT_FAMILY.copies}
        head = HeadFiles(checkpoint.name, own, checkpoint.config, False, checkpoint.declared_dtype, ASSISTANT_FAMILY, 1)
        _require_readable(head)
        return head
    prefixed = {PREFIX.sub("", name): stored for name, stored in names.items() if PREFIX.match(name)}
    tensors, family = prefixed or _bare(headers), QWEN
    shift = _is_zero_centred(headers, bool(prefixed))
    own_type = re.sub(r"[_-]?(mtp|nextn)$", "", str(checkpoint.text_config.get("model_type")))
    if set(QWEN_PARTS[1:]) & set(tensors):  # a tuned head of any family has these names
        family = next((one for one in FAMILIES if own_type in one.model_types), QWEN)
    else:
        shift = False
        known = ((one, one.own_names(names, checkpoint.name)) for one in FAMILIES if own_type in one.model_types)
        family, parts = next((found for found in known if found[1]), (QWEN, {}))
        if not parts:
            _refuse_unknown(checkpoint, names, tensors, len(headers))
            return None
        tensors = {own: names[name] for own, name in parts.items()}
    head = HeadFiles(checkpoint.name, tensors, checkpoint.text_config, shift, checkpoint.declared_dtype, family=family)
    _require_readable(head)
    return head


def read_head(folder: Path, name: str) -> HeadFiles:
    """The head in `folder`, which may hold nothing else. Raises: as `find_head`; NotAvailable if there is none."""
    checkpoint = read_checkpoint(folder, name, weights=False, heads=True)
    found = find_head(checkpoint)
    if found is None:
        raise NotAvailable(
            f"{name} ({checkpoint.model_type}) holds no head in {len(head_files(folder))} weight files",
            "give a head-only repository, or a model that keeps its mtp tensors",
        )
    return found


def is_for_a_head(folder: Path, name: str) -> bool:
    """Whether `folder` holds a head and no model, by its weights or by its config.json alone: then `read_head` raises.

    Raises: NotAvailable if it has no configuration that can be read; Refused for Medusa heads in a pickle.
    """
    config = read_json(folder / "config.json", name)
    known = sidecar_kind(config) in ("MTP", "Medusa") or config.get("model_type") in ASSISTANT_FAMILY.model_types
    return known or is_head_only(folder)


def is_head_only(folder: Path) -> bool:
    """Whether the weights in `folder` are a head without a model: by their names, whatever the folder is called.

    A damaged file is none; whoever loads the folder says what is wrong with it.
    """
    try:
        names = [name for path in head_files(folder) for name in read_header(path).tensors]
    except NotAvailable:
        return False
    if set(ASSISTANT_FAMILY.parts) <= set(names):
        return True
    bare = any(name in QWEN_PARTS[2:] or BLOCK.fullmatch(name) for name in names)
    own = bare or any(family.layer_of(name) for name in names for family in FAMILIES)
    foreign = any(kind.search(name) for kind in FOREIGN.values() for name in names)
    return (own or foreign) and not any(map(TRUNK.match, names))


def refuse_pickle(files: Iterable[str], name: str) -> None:
    """Raises: Refused where one of `files` holds Medusa heads as they were published."""
    if file := next(filter(PICKLE.fullmatch, files), None):
        raise Refused(
            f"{name} holds Medusa heads as a pickle ({file}), which may run code",
            "specdec tune --what medusa --text FOLDER trains such heads for your target",
        )


def head_files(folder: Path) -> list[Path]:
    """Every weight file of `folder`, in the index or not, and of its subfolders such as `mtp`.

    Not `._` files, in which macOS keeps a file's attributes on a disk that knows none.
    """
    return sorted([*folder.glob("[!.]*.safetensors"), *folder.glob("[!.]*/[!.]*.safetensors")])


def _bare(headers: Mapping[Path, Header]) -> dict[str, Stored]:
    """The tensors of the one file, or the files of one folder, that hold a head and nothing else."""
    folders: dict[Path, dict[str, Stored]] = {}
    for path, header in headers.items():
        folders.setdefault(path.parent, {}).update(header.tensors)
    for found in [*folders.values(), *(dict(header.tensors) for header in headers.values())]:
        if set(QWEN_PARTS[2:]) <= set(found) and not any("embed_tokens" in name for name in found):
            return found
    return {}


def _is_zero_centred(headers: Mapping[Path, Header], prefixed: bool) -> bool:
    """Whether norms are stored less 1: the trunk's convolutions show whose layout it is, [C, 1, 4] or MLX's [C, 4, 1].

    The norms' own values do not tell: some have means below 0.5 in both layouts. Without a trunk the metadata tell.
    """
    names = [item for header in headers.values() for item in header.tensors.items()]
    shapes = [stored.shape for name, stored in names if name.endswith("conv1d.weight")]
    if shapes:
        return shapes[0][-1] != 1
    return prefixed and not any(header.metadata.get("format") == "mlx" for header in headers.values())


def _refuse_unknown(checkpoint: Checkpoint, names: Iterable[str], tensors: Mapping[str, Stored], files: int) -> None:
    """Raises: Refused for a head of no family that is known, NotAvailable for one that is announced and not there."""
    foreign = ((kind, name) for kind, pattern in FOREIGN.items() for name in names if pattern.search(name))
    kind, name = next(foreign, ("", next((stored.name for stored in tensors.values()), "")))
    if name:
        which = f"of the {kind} family" if kind else "of a kind"
        raise Refused(
            f"{checkpoint.name} ({checkpoint.model_type}) has a head {which} ({name}), which specdec does not support",
            OTHERWISE,
        )
    for key in ANNOUNCING:
        if isinstance(announced := checkpoint.text_config.get(key), int) and announced > 0:
            raise NotAvailable(
                f"{checkpoint.name} announces an MTP head ({key} is {announced}), but none of its {files} weight files "
                "holds one",
                "its conversion dropped the head: take one from a head-only repository (*-MTP-*) as --draft",
            )


def _require_readable(head: HeadFiles) -> None:
    """Raises: NotAvailable for missing tensors, and for FP8 and other number types that are not read."""
    tensors = head.tensors
    missing = [tensor for tensor in head.family.parts if tensor not in tensors]
    if missing:
        has = f"and has {len(tensors)} other tensors"
        raise NotAvailable(f"{head.title} lacks {missing[0]}, {has}", "download it again")
    for tensor, stored in tensors.items():
        scaled = any(tensor.removesuffix(".weight") + end in tensors for end in QUANTIZED)
        packed = scaled or tensor.endswith(QUANTIZED)
        ids = tensor.endswith(".token_ordering") and stored.dtype in ("I32", "I64")
        if stored.dtype not in FLOATS and not ids and not (packed and stored.dtype in ("U32", "U8")):
            raise NotAvailable(
                f"{head.title} stores {stored.name} as {stored.dtype}, which specdec does not read",
                "use a head in 16 bits, or one that was quantized with MLX",
            )
