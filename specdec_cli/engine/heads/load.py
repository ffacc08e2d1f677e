"""A head's files -> its network. Every tensor must have its place, and every place its tensor.

Letters: E experts, I their inner size, D hidden size.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from specdec_cli.engine.failure import device_failure
from specdec_cli.engine.heads.families import BUILDS, Tensors
from specdec_cli.engine.heads.mtp import MtpHead, Recipe
from specdec_cli.errors import NotAvailable, Refused, reason
from specdec_cli.models.heads import HeadFiles
from specdec_cli.models.packing import Packing

ONE_EXPERT = re.compile(r"(.*\.)experts\.(\d+)\.(.+)")
# Scales without biases: the type of 32 or 16 numbers that share one.
MODES = {(32, 4): "mxfp4", (32, 8): "mxfp8", (16, 4): "nvfp4"}


def load_head(
    files: HeadFiles, hidden_size: int, zero_centred: bool | None = None, recipe: Recipe | None = None
) -> MtpHead:
    """The head with its weights in memory, for a target of `hidden_size`.

    `zero_centred` and `recipe` other than None take the place of what the files' layout says of the norms, and of the
    family's own way to use it.

    Raises: NotAvailable where tensors are missing, of another shape than the configuration says, or not to be placed;
    Refused for a head of another target.
    """
    head = _empty(files, hidden_size, recipe)
    shift = files.zero_centred if zero_centred is None else zero_centred
    tensors = _read_tensors(files, shift)
    _quantize(head, tensors, files.name)
    _require_all(head, tensors, files.name)
    if files.declared_dtype == "float32":
        tensors = {name: _widen(value) for name, value in tensors.items()}
    head.load_weights(list(tensors.items()))
    if files.packing is not None:
        _pack(head, files.packing)
    head.eval()
    try:
        mx.eval(head.parameters())
    except RuntimeError as error:
        raise device_failure(error) or NotAvailable(
            f"the MTP head of {files.name} cannot be read: {str(error).splitlines()[0][:160]}", "download it again"
        ) from error
    return head


def _empty(files: HeadFiles, hidden_size: int, recipe: Recipe | None) -> MtpHead:
    """The head's network of its configuration, with weights that were never computed."""
    files.require_size(hidden_size)
    if second := next((name for name in files.tensors if re.match(r"layers\.[1-9]", name)), None):
        raise Refused(
            f"the MTP head of {files.name} has several layers ({second}), and specdec knows heads of one",
            "use a small language model of the target's family as draft instead",
        )
    dense = not any(".mlp.experts." in name or ".mlp.switch_mlp." in name for name in files.tensors)
    try:
        return BUILDS[files.family.name].head(files.config, dense, hidden_size, recipe)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise NotAvailable(
            f"the MTP head of {files.name} cannot be built: {reason(error)}",
            "its config.json lacks the language model's own values; take the head from another repository",
        ) from error


def _read_tensors(files: HeadFiles, zero_centred: bool) -> Tensors:
    """The tensors by the names of the network's parameters: experts joined, norms as they are multiplied with."""
    loaded: dict[Any, Any] = {}
    for path in files.files:
        loaded[path] = mx.load(str(path))
    tensors: Tensors = {name: loaded[stored.file][stored.name] for name, stored in files.tensors.items()}
    tensors = BUILDS[files.family.name].converted(files.config, _stack_experts(_split_fused(tensors)))
    if zero_centred:
        tensors |= {name: value + 1.0 for name, value in tensors.items() if is_norm(name, value.ndim)}
    return tensors


def is_norm(name: str, axes: int) -> bool:
    """Whether the tensor of that name, of so many axes, is the weight of a norm."""
    return axes == 1 and (name.endswith("norm.weight") or "norm_" in name)


def _split_fused(tensors: Tensors) -> Tensors:
    """`experts.gate_up_proj` [E, 2 I, D] as two matrices; `experts.down_proj` under its new name."""
    found: Tensors = {}
    for name, value in tensors.items():
        base, fused, part = name.partition(".experts.gate_up_proj")
        if fused and part in ("", ".weight", "_scales", ".scales", ".biases"):
            end = part.replace("_", ".") or ".weight"
            gate, up = mx.split(value, 2, axis=-2)
            found |= {f"{base}.switch_mlp.gate_proj{end}": gate, f"{base}.switch_mlp.up_proj{end}": up}
            continue
        base, down, part = name.partition(".experts.down_proj")
        if down:
            found[f"{base}.switch_mlp.down_proj{part.replace('_', '.') or '.weight'}"] = value
            continue
        found[name] = value
    return found


def _stack_experts(tensors: Tensors) -> Tensors:
    """Experts that are stored one by one, as [E, …]."""
    groups: dict[str, dict[int, mx.array]] = {}
    found: Tensors = {}
    for name, value in tensors.items():
        if match := ONE_EXPERT.fullmatch(name):
            groups.setdefault(f"{match[1]}switch_mlp.{match[3]}", {})[int(match[2])] = value
        else:
            found[name] = value
    return found | {name: mx.stack([group[i] for i in sorted(group)]) for name, group in groups.items()}


def _quantize(head: MtpHead, tensors: Tensors, name: str) -> None:
    """Give each part of `head` that is stored in a few bits the place for them, by the shapes that are stored."""

    def of(path: str, module: nn.Module) -> bool | dict[str, Any]:
        scales = tensors.get(f"{path}.scales")
        if scales is None or not hasattr(module, "to_quantized"):
            return False
        size, words = int(module.weight.shape[-1]), int(tensors[f"{path}.weight"].shape[-1])
        group, bits = size // int(scales.shape[-1]), words * 32 // size
        mode = "affine" if f"{path}.biases" in tensors else MODES.get((group, bits))
        if mode is None or group * scales.shape[-1] != size or words * 32 != bits * size:
            raise NotAvailable(
                f"the MTP head of {name} stores {path} in a quantization that mlx does not have: weight "
                f"{tensors[f'{path}.weight'].shape}, scales {scales.shape} for {size} inputs",
                "take a head in 16 bits, or one that was quantized with MLX",
            )
        return {"group_size": group, "bits": bits, "mode": mode}

    nn.quantize(head, class_predicate=of)


def _pack(head: MtpHead, packing: Packing) -> None:
    """Pack the matrices of `head` as those of its target are."""

    def of(path: str, module: nn.Module) -> bool | dict[str, Any]:
        bits = packing.of(path, module.weight.shape) if hasattr(module, "to_quantized") else None
        return False if bits is None else asdict(bits)

    nn.quantize(head, class_predicate=of)


def _require_all(head: MtpHead, tensors: Tensors, name: str) -> None:
    expected = {path: value.shape for path, value in tree_flatten(head.parameters())}
    missing = sorted(set(expected) - set(tensors))
    if missing:
        raise NotAvailable(
            f"the MTP head of {name} lacks {len(missing)} of {len(expected)} tensors, first {missing[0]}",
            "download it again, or take the head from another repository",
        )
    extra = sorted(set(tensors) - set(expected))
    if extra:
        raise Refused(
            f"the MTP head of {name} has {len(extra)} tensors that specdec does not know, first {extra[0]}",
            "use a small language model of the target's family as draft instead",
        )
    for path, shape in expected.items():
        if tensors[path].shape != shape:
            raise NotAvailable(
                f"the MTP head of {name} has {path} {list(tensors[path].shape)} where its config.json says "
                f"{list(shape)}",
                "the weights and config.json disagree; download the model again",
            )


def _widen(value: mx.array) -> mx.array:
    return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value
