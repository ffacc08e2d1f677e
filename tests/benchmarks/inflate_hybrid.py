"""The demo hybrid's function at a big model's cost.

    PYTHONPATH=tests python tests/benchmarks/inflate_hybrid.py --out FOLDER

Law: in real arithmetic the inflated target's logits and the inflated head's are the source's. In floating point only
the order of sums differs. Zeros beside the residual stream, as in inflate.py, would need another epsilon, and the gated
norm of a delta rule reads the same one behind a convolution. So here the stream is repeated m times:
* Every mean of squares, and so every norm, stays; norms and the embedding are repeated m times, and the rows of what
  writes into the stream.
* What reads the stream reads its first copy: the other columns are zero. The output head is one of these, so it is no
  longer tied to the embedding.
* New rows of gate_proj and up_proj are random, of the old ones' deviation; the columns of down_proj that read them
  are zero.
* New layers come in whole periods of the layers' kinds. They are copies of those before them, read at random what these
  read, and write zero.
Heads, states and convolutions stay as they are. Tensors keep the form in which original repositories store them: norms
less 1. A loader adds the 1 in the source's own type, so what that rounds off is rounded off here too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx

from benchmarks.inflate import TOLERANCE, Weights, distance, logits, of_deviation, sample_tokens, write_weights
from specdec_cli.hub import locate

READERS = re.compile(r"(in_proj_\w+|[qkv]_proj|lm_head)\.weight$")
WRITERS = re.compile(r"(out_proj|o_proj)\.weight$")
STREAM_NORMS = re.compile(r"(input_layernorm|post_attention_layernorm|pre_fc_norm_\w+|(model|mtp)\.norm)\.weight$")
MLP_IN, MLP_OUT = re.compile(r"(gate|up)_proj\.weight$"), re.compile(r"down_proj\.weight$")
UNCHANGED = re.compile(r"(A_log|dt_bias|conv1d\.weight|linear_attn\.norm\.weight|[qk]_norm\.weight)$")
SHIFTED = re.compile(rf"({STREAM_NORMS.pattern})|[qk]_norm\.weight$")
EMBEDDING, FUSION = "model.embed_tokens.weight", "mtp.fc.weight"
LAYER = re.compile(r"^model\.layers\.(\d+)\.")


def inflate(
    config: Mapping[str, Any], weights: Weights, *, copies: int, intermediate_size: int, layers: int, seed: int = 0
) -> tuple[dict[str, Any], Weights]:
    """Configuration and weights, float32, of the same function with a residual stream of `copies` times the width.

    Raises: ValueError for another architecture, an unknown tensor, and sizes below the source's or between periods.
    """
    text = config["text_config"]
    _require_known(config, weights, copies, intermediate_size, layers)
    growth = _Growth(copies, intermediate_size, mx.random.key(seed))
    found: Weights = {}
    for name, value in weights.items():
        if not LAYER.match(name):
            found[name] = growth.of(name, value)
    found["lm_head.weight"] = growth.of("lm_head.weight", weights.get("lm_head.weight", weights[EMBEDDING]))
    for at, source, idle in _places(text["num_hidden_layers"], layers, text["full_attention_interval"]):
        prefix = f"model.layers.{source}."
        for name, value in weights.items():
            if name.startswith(prefix):
                grown = growth.idle(name, value) if idle else growth.of(name, value)
                found[f"model.layers.{at}.{name.removeprefix(prefix)}"] = grown
    changed = {
        "hidden_size": copies * text["hidden_size"],
        "intermediate_size": intermediate_size,
        "num_hidden_layers": layers,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }
    kept = {key: value for key, value in text.items() if key != "layer_types"}
    return dict(config) | {"text_config": kept | changed, "tie_word_embeddings": False, "dtype": "float32"}, found


class _Growth:
    def __init__(self, copies: int, intermediate_size: int, key: mx.array) -> None:
        self._copies, self._intermediate, self._key = copies, intermediate_size, key

    def of(self, name: str, value: mx.array) -> mx.array:
        """The tensor `name` at the new sizes. Raises: ValueError where its place in the function is not known."""
        value = ((value + 1).astype(mx.float32) - 1) if SHIFTED.search(name) else value.astype(mx.float32)
        if UNCHANGED.search(name):
            return value
        if STREAM_NORMS.search(name) or WRITERS.search(name):
            return mx.concatenate([value] * self._copies)
        if name == EMBEDDING:
            return mx.concatenate([value] * self._copies, axis=1)
        if name == FUSION:  # [embedding, state] -> stream
            both = [self._read_first(half) for half in mx.split(value, 2, axis=1)]
            return mx.concatenate([mx.concatenate(both, axis=1)] * self._copies)
        if READERS.search(name):
            return self._read_first(value)
        if MLP_IN.search(name):
            rows = self._intermediate - value.shape[0]
            new = self._random((rows, self._copies * value.shape[1]), value)
            return mx.concatenate([self._read_first(value), new])
        if MLP_OUT.search(name):
            columns = self._intermediate - value.shape[1]
            return mx.concatenate([mx.pad(value, [(0, 0), (0, columns)])] * self._copies)
        raise ValueError(f"{name} is not known: its function might change")

    def idle(self, name: str, value: mx.array) -> mx.array:
        """The same tensor of a layer that reads at random and writes zero."""
        grown = self.of(name, value)
        if WRITERS.search(name) or MLP_OUT.search(name):
            return mx.zeros_like(grown)
        return self._random(grown.shape, value) if READERS.search(name) or MLP_IN.search(name) else grown

    def _read_first(self, value: mx.array) -> mx.array:
        return mx.pad(value, [(0, 0), (0, (self._copies - 1) * value.shape[1])])

    def _random(self, shape: tuple[int, ...], like: mx.array) -> mx.array:
        """Values of the mean square of `like`, over rows of more columns: each row's sum has the old deviation."""
        self._key, key = mx.random.split(self._key)
        deviation = mx.sqrt(mx.mean(mx.square(like.astype(mx.float32))) * like.shape[1] / shape[1])
        return of_deviation(shape, deviation, mx.float32, key)


def _places(old: int, new: int, period: int) -> Iterator[tuple[int, int, bool]]:
    """(layer, the layer it is made of, whether it writes nothing): real periods spread evenly among the new ones."""
    real, periods = old // period, new // period
    starts = [i * periods // real for i in range(real)]
    for at in range(new):
        group = sum(start <= at // period for start in starts) - 1
        yield at, group * period + at % period, at // period not in starts


def _require_known(
    config: Mapping[str, Any], weights: Weights, copies: int, intermediate_size: int, layers: int
) -> None:
    text = config.get("text_config", {})
    if config.get("model_type") != "qwen3_5" or config.get("quantization"):
        raise ValueError("only a Qwen3.5 of whole floats is known to keep its function")
    if FUSION not in weights:
        raise ValueError(f"it has no head: {FUSION} is missing")
    if any(name.endswith("conv1d.weight") and value.shape[-1] == 1 for name, value in weights.items()):
        raise ValueError("its tensors are not as original repositories store them")
    period = text["full_attention_interval"]
    if layers % period or text["num_hidden_layers"] % period or layers < text["num_hidden_layers"]:
        raise ValueError(f"{layers} layers are no whole periods of {period}, or fewer than before")
    if copies < 1 or intermediate_size < text["intermediate_size"]:
        raise ValueError("sizes would shrink")


def inflated_folder(source: Path, destination: Path, *, copies: int, intermediate_size: int, layers: int) -> Path:
    """Write `source`, inflated, as a loadable folder. Raises: ValueError as `inflate`, FileExistsError."""
    if destination.is_dir() and any(destination.iterdir()):
        raise FileExistsError(f"{destination} is not empty: old shards would be loaded with the new")
    weights = {
        name: value for path in sorted(source.glob("*.safetensors")) for name, value in mx.load(str(path)).items()
    }
    sizes = {"copies": copies, "intermediate_size": intermediate_size, "layers": layers}
    config, grown = inflate(json.loads((source / "config.json").read_text(encoding="utf-8")), weights, **sizes)
    destination.mkdir(parents=True, exist_ok=True)
    write_weights(destination, [grown])
    (destination / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    for path in sorted(source.glob("*.json")):
        if path.name != "config.json" and not path.name.endswith(".index.json"):
            shutil.copyfile(path, destination / path.name)
    return destination


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="specdec:demo/hybrid")
    parser.add_argument("--copies", type=int, default=4, help="of the residual stream")
    parser.add_argument("--intermediate", type=int, default=2304)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    source = locate(args.source)
    sizes = {"copies": args.copies, "intermediate_size": args.intermediate, "layers": args.layers}
    folder = inflated_folder(source, args.out, **sizes)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    tokens = sample_tokens(source, 64)
    off = distance(logits(folder, tokens), logits(source, tokens))
    print(f"{folder}: {size / 1e6:.0f} MB, {args.layers} layers, {args.copies} times as wide, MLP {args.intermediate}")
    print(f"logits differ by {off:.2g} (allowed {TOLERANCE:.2g}) at most over {tokens.size} tokens")
    if off > TOLERANCE:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
