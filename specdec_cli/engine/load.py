"""Checkpoint -> network. What can be refused without weights is refused first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.utils import MODEL_REMAPPING, _get_classes, load_adapters, load_model
from safetensors import SafetensorError, safe_open

from specdec_cli.core.errors import NotAvailable, Refused, reason, untrusted
from specdec_cli.core.jsonfile import shown
from specdec_cli.core.safetensors import WEIGHTS, read_header
from specdec_cli.engine import device
from specdec_cli.engine.failure import device_failure
from specdec_cli.engine.group import shard
from specdec_cli.engine.model import CachedModel
from specdec_cli.models.checkpoint import FLOATS, Checkpoint

# Methods of other libraries that mlx-lm knows nothing of (utils.py, load_model): it takes the weights for numbers.
UNKNOWN_PACKING = {
    *("bitsandbytes", "quanto", "hqq", "eetq", "torchao", "higgs", "vptq", "spqr", "aqlm", "fbgemm_fp8", "quark"),
    "auto-round",
}
# Of others it reads what has one of these values in this field.
READ_PACKING: dict[str, tuple[str, tuple[object, ...]]] = {
    "compressed-tensors": ("format", ("nvfp4-pack-quantized", "mxfp4-pack-quantized", "pack-quantized")),
    "modelopt": ("quant_algo", ("NVFP4",)),
    **dict.fromkeys(("awq", "gptq"), ("bits", (4,))),
    "": ("quant_method", ()),
}
# Architectures whose own code reads the tensors of such a method.
READS_TENSORS = {
    "compressed-tensors": {"deepseek_v3", "kimi_k25", "kimi_k3", "mistral4"},
    "modelopt": {"muse_spark"},
}
# Architectures whose own code makes numbers of fp8. ministral3's multiplies the codes themselves with the scales.
READS_FP8 = {"deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k25", "mimo_v2_flash", "minimax", "mistral4"}
# Architectures of mlx-lm whose drafts cannot be checked in one pass, with the reason. The tests list all others.
UNVERIFIABLE = {
    "olmo": "the module exits on import without the package hf_olmo, which mlx-lm does not bring",
    # phi3small.py adds its mask, which is boolean, to the scores: each row of a pass sees the rows behind it.
    "phi3small": "mlx-lm's pass over several tokens is not causal for it, so that no draft can be checked in one pass",
}


def unverifiable(checkpoint: Checkpoint) -> Refused | None:
    """The refusal of an architecture whose drafts cannot be checked in one pass; plain decoding works."""
    architecture = MODEL_REMAPPING.get(checkpoint.model_type, checkpoint.model_type)
    if reason := UNVERIFIABLE.get(architecture):
        return Refused(f"{checkpoint.name} ({checkpoint.model_type}): {reason}", "decode it plainly: --drafter none")
    return None


def empty_model(checkpoint: Checkpoint, kv_bits: int | None = None) -> CachedModel:
    """The architecture ready to run, without weights of its own: for its shapes, its caches and its refusals.

    Raises: NotAvailable if the installed mlx-lm has no such architecture or none for this device, Refused for caches
    that cannot be rolled back or quantized, and for a network that cannot be shared.
    """
    network = shard(blank_network(checkpoint), checkpoint)
    with untrusted(
        lambda reason: NotAvailable(
            f"{checkpoint.name} ({checkpoint.model_type}) does not run on this device: {reason}",
            "mlx-lm's code for it may need a Mac; specdec doctor says what computes here",
        )
    ):
        return CachedModel(network, checkpoint.name, checkpoint.context_limit, kv_bits, recent=checkpoint.recent)


def blank_network(checkpoint: Checkpoint) -> nn.Module:
    """The architecture with its initial weights. Lazy: none is allocated before something is evaluated.

    Raises: NotAvailable if the installed mlx-lm has no such architecture or the configuration does not fit it.
    """
    unknown = NotAvailable(
        f"{checkpoint.name} is of type {checkpoint.model_type}, which the installed mlx-lm does not support",
        "upgrade mlx-lm, or use a model type that it supports",
    )
    with untrusted(lambda reason: unknown):
        model_class, args_class = _get_classes(dict(checkpoint.config))
    if packing := _unread_packing(checkpoint):
        what = f"{checkpoint.name} is packed by {packing}, which mlx-lm does not read"
        raise NotAvailable(what, "use an MLX conversion of the model")
    with untrusted(lambda reason: _does_not_load(checkpoint, reason)):
        return model_class(args_class.from_dict(dict(checkpoint.config)))


def load(
    checkpoint: Checkpoint,
    kv_bits: int | None = None,
    on_share: Callable[[float], None] = lambda share: None,
) -> CachedModel:
    """The checkpoint's network, evaluated, with empty caches. `on_share` hears which share of it was read.

    Raises: NotAvailable for an unsupported type or damaged weights; Refused for caches that cannot be quantized;
    DoesNotFit where the device has no memory for the weights.
    """
    loaded = CachedModel(
        load_network(checkpoint, on_share),
        checkpoint.name,
        checkpoint.context_limit,
        kv_bits,
        lambda: _lazy_network(checkpoint).parameters(),
        checkpoint.recent,
    )
    if checkpoint.group is not None:
        loaded.network.agreed = checkpoint.group.agreed
    return loaded


def load_network(checkpoint: Checkpoint, on_share: Callable[[float], None] = lambda share: None) -> nn.Module:
    """The network with its weights in memory; `on_share` hears which share of them is.

    A configuration that declares float32 is computed in float32, also where the weights are stored in 16 bits.
    """
    network = _lazy_network(checkpoint)
    try:
        device.read_weights(network, on_share)
    except RuntimeError as error:
        raise device_failure(error) or _does_not_load(checkpoint, reason(error)) from error
    return network


def _lazy_network(checkpoint: Checkpoint) -> nn.Module:
    """The network, whose weights are read from disk when they are first needed."""
    for path in checkpoint.weights:
        try:
            with safe_open(path, framework="np"):
                pass
        except (SafetensorError, OSError) as error:
            raise NotAvailable(
                f"{path.name} of {checkpoint.name} is damaged ({path.stat().st_size} bytes): {error}",
                "delete the file and download it again",
            ) from error
    network = _read_network(checkpoint)
    if checkpoint.adapter:
        with untrusted(lambda reason: _adapter_misfit(checkpoint, reason)):
            network = load_adapters(network, str(checkpoint.adapter))
    if checkpoint.config.get("dtype", checkpoint.config.get("torch_dtype")) == "float32":
        network.set_dtype(mx.float32)
    return shard(_fused(network), checkpoint)


def _fused(network: nn.Module) -> nn.Module:
    """`network` with adapters in its float32 matrices, where they cost nothing, and beside others."""
    layers = [(path, module) for path, module in network.named_modules() if isinstance(module, LoRALinear)]
    if layers:
        made = [
            (path, layer.fuse() if layer.linear.weight.dtype == mx.float32 else Adapted(layer, network))
            for path, layer in layers
        ]
        network.update_modules(tree_unflatten(made))
    return network


class Adapted(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """A matrix in 16 bits or packed, which would round its adapter away, and the adapter [D, R], [R, O] in its type.

    x W + (x A) B in two kernels more than x W: as mlx-lm's own layer computes it, in float32 with its scale, six.
    """

    def __init__(self, layer: LoRALinear, network: nn.Module) -> None:
        super().__init__()
        self.linear = layer.linear
        found = layer.linear.get("scales", layer.linear.weight).dtype
        if not mx.issubdtype(found, mx.floating):  # scales of one byte: as the norms
            floats = (value.dtype for _, value in tree_flatten(network.parameters()) if value.ndim == 1)
            found = next((one for one in floats if mx.issubdtype(one, mx.floating)), mx.bfloat16)
        self.lora_a, self.lora_b = layer.lora_a.astype(found), (layer.scale * layer.lora_b).astype(found)

    def __call__(self, x: mx.array) -> mx.array:
        return mx.addmm(self.linear(x), x @ self.lora_a, self.lora_b)


def _read_network(checkpoint: Checkpoint) -> nn.Module:
    """By mlx-lm, from what the index names; from all files where that is too little, as in an index that lacks some."""

    def read(folder: Path) -> nn.Module:
        with untrusted(lambda reason: _does_not_load(checkpoint, reason)):
            return load_model(folder, lazy=True)[0]

    if not checkpoint.strays:
        return read(checkpoint.folder)
    try:
        with _own_files(checkpoint) as folder:
            return read(folder)
    except NotAvailable as error:
        try:
            return read(checkpoint.folder)
        except NotAvailable:
            raise error from None


@contextmanager
def _own_files(checkpoint: Checkpoint) -> Iterator[Path]:
    """A folder without what lies beside the weights: mlx-lm reads every file of that name."""
    with TemporaryDirectory() as name:
        for path in checkpoint.folder.iterdir():
            if path not in checkpoint.strays:
                (Path(name) / path.name).symlink_to(path.absolute())
        yield Path(name)


def _adapter_misfit(checkpoint: Checkpoint, reason: str) -> Refused:
    return Refused(f"adapter {checkpoint.adapter} does not fit {checkpoint.name}: {reason}", "give this model's own")


def _unread_packing(checkpoint: Checkpoint) -> str | None:
    """What packed the weights in a way that mlx-lm does not read for this architecture, None where it reads it."""
    given, text = checkpoint.foreign_packing, checkpoint.text_config
    method = str(given.get("quant_method", ""))
    types = {MODEL_REMAPPING.get(one, one) for one in (checkpoint.model_type, str(text.get("model_type")))}
    if given and method in READ_PACKING:
        field, values = READ_PACKING[method]
        nested = given.get("quantization")
        value = (nested if isinstance(nested, Mapping) else given).get(field, 4 if field == "bits" else None)
        read = method not in READS_TENSORS or types & READS_TENSORS[method]
        return None if value in values and read else f"{method or 'another library'} ({field}: {shown(value)})"
    if method not in UNKNOWN_PACKING and (types & READS_FP8 or not checkpoint.unpacks_fp8):
        return None
    here = [tensor for path in checkpoint.folder.glob(WEIGHTS) for tensor in read_header(path).tensors.values()]
    return None if here and all(one.dtype in FLOATS for one in here) else method  # unpacked since


def _does_not_load(checkpoint: Checkpoint, reason: str) -> NotAvailable:
    return NotAvailable(
        f"{checkpoint.name} ({checkpoint.model_type}) does not load: {reason}",
        "use an MLX conversion of the model"
        if checkpoint.foreign_packing
        else "the weights and config.json disagree; download the model again",
    )
