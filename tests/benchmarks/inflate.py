"""A big model's cost with a small trained model's function: `python tests/benchmarks/inflate.py --out FOLDER`.

Law: in real arithmetic the inflated model's logits are the source's, so that a pair keeps its acceptance at
whatever cost a benchmark asks for. In floating point only the order of sums and one rounding of a scale differ.
Letters: H and H' hidden sizes, I and I' intermediate sizes, L and L' layers, s = sqrt(H / H').

* The residual stream is padded with zeros. RMSNorm then divides by sqrt(sum / H' + eps'), so eps' = eps * H / H'
  and the norm's weight is multiplied by s. q_norm and k_norm run over head_dim, which stays, but read the same
  eps' from the configuration: where they exist, q_proj and k_proj are multiplied by s as well.
* New rows of gate_proj and up_proj are random, of the old ones' deviation; the columns of down_proj that read them
  are zero.
* New layers are random in the same way, but for their norms (a neighbour's) and o_proj and down_proj (zero).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx
from tokenizers import Tokenizer

from specdec_cli.engine.load import load_network
from specdec_cli.hub import locate
from specdec_cli.models.checkpoint import read_checkpoint

Weights = dict[str, mx.array]

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}
TOLERANCE = 1e-3  # of a logit, in float32: 50 times what was measured, a 4000th of what one unscaled norm does

# Which axes of a tensor are the hidden size H and the intermediate size I; the rest (".") never grow.
OUTER_AXES = {"model.embed_tokens.weight": ".H", "model.norm.weight": "H", "lm_head.weight": ".H"}
LAYER_AXES = {"input_layernorm.weight": "H", "post_attention_layernorm.weight": "H"}
LAYER_AXES |= {f"self_attn.{x}_proj.weight": ".H" for x in "qkv"} | {"self_attn.o_proj.weight": "H."}
LAYER_AXES |= {"mlp.gate_proj.weight": "IH", "mlp.up_proj.weight": "IH", "mlp.down_proj.weight": "HI"}
OPTIONAL_AXES = {"self_attn.q_norm.weight": ".", "self_attn.k_norm.weight": "."}
OPTIONAL_AXES |= {name.replace("weight", "bias"): axes[0] for name, axes in LAYER_AXES.items() if len(axes) == 2}
AXES = OUTER_AXES | LAYER_AXES | OPTIONAL_AXES
WRITES_RESIDUAL = ("o_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that grow, and the width that all heads together read and write (queries, keys, values, output)."""

    hidden_size: int
    intermediate_size: int
    layers: int
    attention_width: int
    embedding_rows: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        heads, head_dim = config["num_attention_heads"], _head_dim(config)
        kv_heads = config.get("num_key_value_heads") or heads
        tables = 1 if _tied(config) else 2
        sizes = (config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"])
        return cls(*sizes, 2 * (heads + kv_heads) * head_dim, tables * config["vocab_size"])

    @property
    def parameters(self) -> int:
        """Those of the matrices; norms and biases are left out (below a thousandth)."""
        layer = self.hidden_size * (self.attention_width + 3 * self.intermediate_size)
        return self.hidden_size * self.embedding_rows + self.layers * layer

    def sized(self, parameters: int, width_per_layer: int) -> Shape:
        """The biggest shape of at most `parameters` that keeps this one's heads and looks like a real model.

        The rule: I' = 3 H', and the widest multiple of 256 for H' with at least one layer per `width_per_layer` of
        it; then as many layers as fit, and what is left goes into I', in steps of 64. Of published models Qwen3 0.6B
        to 8B and Llama 3 1B to 8B have 37 to 128 of width a layer. Raises: ValueError if nothing fits.
        """
        best = None
        for hidden in range(256 * math.ceil(self.hidden_size / 256), 65536, 256):
            room = parameters // hidden - self.embedding_rows
            layers = room // (self.attention_width + 9 * hidden)
            if layers < max(self.layers, hidden / width_per_layer):
                break
            intermediate = (room // layers - self.attention_width) // 3 // 64 * 64
            best = Shape(hidden, intermediate, layers, self.attention_width, self.embedding_rows)
        if best is None or best.intermediate_size < self.intermediate_size:
            raise ValueError(
                f"no model with {self.layers} layers of width {self.hidden_size} fits {parameters:,} values"
            )
        return best


def inflated_folder(
    source: Path,
    destination: Path,
    *,
    hidden_size: int,
    intermediate_size: int,
    layers: int,
    dtype: str = "float32",
    seed: int = 0,
) -> Path:
    """Write `source`, inflated, as a loadable folder.

    For the structure of Qwen3 and Llama. Raises: FileExistsError if `destination` holds anything.
    """
    if destination.is_dir() and any(destination.iterdir()):
        raise FileExistsError(f"{destination} is not empty")
    checkpoint = read_checkpoint(source, str(source))
    weights = {name: value for path in checkpoint.weights for name, value in mx.load(str(path)).items()}
    sizes = {"H": hidden_size, "I": intermediate_size, "L": layers}
    destination.mkdir(parents=True, exist_ok=True)
    grown = {
        name: value for part in _parts(checkpoint.config, weights, sizes, dtype, seed) for name, value in part.items()
    }
    mx.save_safetensors(str(destination / "model.safetensors"), grown, metadata={"format": "mlx"})
    config = _inflated_config(checkpoint.config, sizes, dtype)
    (destination / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    for path in sorted(source.iterdir()):
        if path.suffix in {".json", ".txt", ".jinja", ".model"} and not _is_replaced(path.name):
            shutil.copyfile(path, destination / path.name)
    return destination


def logits(folder: Path, tokens: mx.array, dtype: str | None = None) -> mx.array:
    """float32 logits [T, V] of the model in `folder` after each of `tokens` [T]; `dtype` overrides its own."""
    network = load_network(read_checkpoint(folder, str(folder)))
    if dtype:
        network.set_dtype(DTYPES[dtype])
    values: mx.array = network(tokens[None])[0].astype(mx.float32)
    mx.eval(values)
    return values


def distance(a: mx.array, b: mx.array) -> float:
    """The largest difference between two arrays of one shape."""
    return float(mx.abs(a - b).max())


def sample_tokens(folder: Path, count: int) -> mx.array:
    """The first `count` ids of a standard-library module that the demo pair has never seen."""
    text = Path(textwrap.__file__).read_text(encoding="utf-8")
    return mx.array(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids[:count])


def _head_dim(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _tied(config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", True))


def _inflated_config(config: Mapping[str, Any], sizes: Mapping[str, int], dtype: str) -> dict[str, Any]:
    ratio = config["hidden_size"] / sizes["H"]
    changed = {
        "hidden_size": sizes["H"],
        "intermediate_size": sizes["I"],
        "num_hidden_layers": sizes["L"],
        "head_dim": _head_dim(config),
        "rms_norm_eps": config["rms_norm_eps"] * ratio,
        "dtype": dtype,
    }
    if config.get("layer_types"):
        changed["layer_types"] = ["full_attention"] * sizes["L"]
    return {key: value for key, value in config.items() if key != "torch_dtype"} | changed


def _parts(
    config: Mapping[str, Any], weights: Mapping[str, mx.array], sizes: Mapping[str, int], dtype: str, seed: int
) -> Iterator[Weights]:
    """The inflated tensors, lazy: those outside the layers, then one part per layer, real ones spread evenly."""
    real = config["num_hidden_layers"]
    scale = math.sqrt(config["hidden_size"] / sizes["H"])
    keys = mx.random.split(mx.random.key(seed), sizes["L"] + 1)
    names = [name for name in OUTER_AXES if name in weights and not (_tied(config) and name == "lm_head.weight")]
    outer = {name: weights[name] for name in names}
    yield _grown(outer, sizes, scale, DTYPES[dtype], keys[-1], idle=False)
    places = [i * sizes["L"] // real for i in range(real)]
    for at in range(sizes["L"]):
        prefix = f"model.layers.{sum(place <= at for place in places) - 1}."
        layer = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        grown = _grown(layer, sizes, scale, DTYPES[dtype], keys[at], idle=at not in places)
        yield {f"model.layers.{at}.{name}": value for name, value in grown.items()}


def _grown(
    tensors: Weights, sizes: Mapping[str, int], scale: float, dtype: mx.Dtype, key: mx.array, idle: bool
) -> Weights:
    """One part's tensors at the new sizes; `idle` ones read the residual stream at full cost and add zero to it."""
    scaled = ["norm.weight"] if "self_attn.q_norm.weight" not in tensors else ["norm.weight", "q_proj.", "k_proj."]
    keys = mx.random.split(key, len(tensors))
    grown = {}
    for (name, value), own_key in zip(sorted(tensors.items()), keys, strict=True):
        axes = AXES[name]
        shape = tuple(sizes.get(axis, size) for axis, size in zip(axes, value.shape, strict=True))
        value = value.astype(mx.float32)
        if "_norm" not in name and any(word in name for word in scaled):
            value = value * scale
        deviation = mx.sqrt(mx.mean(mx.square(value)))
        if not idle or "norm" in name:
            grown[name] = _padded(value, shape, deviation, dtype, own_key, random_rows=axes[0] == "I")
        elif any(word in name for word in WRITES_RESIDUAL):
            grown[name] = mx.zeros(shape, dtype)
        else:
            grown[name] = _of_deviation(shape, deviation, dtype, own_key)
    return grown


def _padded(
    value: mx.array, shape: tuple[int, ...], deviation: mx.array, dtype: mx.Dtype, key: mx.array, random_rows: bool
) -> mx.array:
    """`value` in the corner of zeros of `shape`; with `random_rows` the rows below it are random."""
    rows = value.shape[0] if random_rows else shape[0]
    corner = (rows, *shape[1:])
    more = [(0, new - old) for new, old in zip(corner, value.shape, strict=True)]
    padded = mx.pad(value, more).astype(dtype)
    if rows == shape[0]:
        return padded
    return mx.concatenate([padded, _of_deviation((shape[0] - rows, *shape[1:]), deviation, dtype, key)])


def _of_deviation(shape: tuple[int, ...], deviation: mx.array, dtype: mx.Dtype, key: mx.array) -> mx.array:
    """Uniform (five times faster to draw than normal) with mean zero and the given standard deviation."""
    return (mx.random.uniform(-(3**0.5), 3**0.5, shape, dtype, key) * deviation).astype(dtype)


def _is_replaced(name: str) -> bool:
    return name == "config.json" or name.startswith("model.safetensors")


def _report(label: str, source: Path, folder: Path, dtype: str, check_tokens: int) -> bool:
    """Print what was written and whether it still is the source's function."""
    checkpoint = read_checkpoint(folder, label)
    shape = Shape.of(checkpoint.config)
    print(f"{label}: {shape.layers} layers, width {shape.hidden_size}, MLP {shape.intermediate_size}, ", end="")
    print(f"{shape.parameters:,} parameters, {checkpoint.loaded_bytes:,} bytes in {dtype}")
    if not check_tokens:
        return True
    tokens = sample_tokens(folder, check_tokens)
    exact = logits(source, tokens, "float32")
    off = distance(logits(folder, tokens), exact)
    allowed = TOLERANCE if dtype == "float32" else 2 * distance(logits(source, tokens, dtype), exact)
    verdict = "the same function" if off <= allowed else "NOT the same function"
    print(f"  {verdict}: logits differ by {off:.2g} (allowed {allowed:.2g}) at most over {tokens.size} tokens")
    return off <= allowed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="specdec:demo/target")
    parser.add_argument("--draft", default="specdec:demo/draft")
    parser.add_argument("--target-gb", type=float, default=0.8, help="10^9 bytes")
    parser.add_argument("--draft-ratio", type=float, default=15, help="bytes of the target over bytes of the draft")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check-tokens", type=int, default=64, help="0: write only")
    args = parser.parse_args()
    budget = 1e9 * args.target_gb / DTYPES[args.dtype].size
    fine = True
    for label, name, width_per_layer in (("target", args.target, 64), ("draft", args.draft, 128)):
        source = locate(name)
        shape = Shape.of(read_checkpoint(source, name).config).sized(int(0.999 * budget), width_per_layer)
        sizes = {"hidden_size": shape.hidden_size, "intermediate_size": shape.intermediate_size, "layers": shape.layers}
        folder = inflated_folder(source, args.out / label, **sizes, dtype=args.dtype, seed=args.seed)
        fine &= _report(label, source, folder, args.dtype, args.check_tokens)
        budget = shape.parameters / args.draft_ratio
    if not fine:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
