"""Seconds of a draft step over the whole vocabulary and over some of it. `python tests/benchmarks/shortlist.py`.

A random Qwen3.5 head and output head of the widths given (27B has 5120, 17408, 248320); no text, so no acceptance. One
step of each size in turn, as often as asked. On a CPU preload a real BLAS.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import qwen3_5
from mlx_lm.models.cache import KVCache
from paired import environment

from specdec_cli.engine.heads.mtp import MtpHead
from specdec_cli.engine.heads.shortlist import Shortlist
from specdec_cli.engine.readout import Adjustment, Readout

SHARES = (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16)


class Network(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head


def parts(width, inner, vocabulary, bits):
    """(MTP head, output head), random, in float32 or packed."""
    text = {"hidden_size": width, "intermediate_size": inner, "head_dim": 128, "num_attention_heads": width // 128,
            "num_key_value_heads": max(width // 1280, 1), "num_experts": 0, "full_attention_interval": 1,
            "rope_parameters": {"type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}}  # fmt: skip
    args = qwen3_5.TextModelArgs.from_dict(text)
    head, output = MtpHead(lambda: qwen3_5.DecoderLayer(args, 0), width, 1e-6), nn.Linear(width, vocabulary, bias=False)
    if bits < 32:
        nn.quantize(head, 64, bits)
        output = output.to_quantized(64, bits)
    mx.eval(head.parameters(), output.parameters())
    return head, output


def main():
    options = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("width", 2048), ("inner", 6912), ("vocabulary", 151936), ("bits", 32), ("n", 15)):
        options.add_argument(f"--{name}", type=int, default=usual)
    asked = options.parse_args()
    print(environment())
    head, output = parts(asked.width, asked.inner, asked.vocabulary, asked.bits)
    readout = Readout(
        Network(output), asked.vocabulary, asked.width, "head", "__call__", Adjustment(), None, None, None
    )
    cache, token = KVCache(), mx.random.normal((1, asked.width), key=mx.random.key(1))
    mx.eval(head(mx.random.normal((256, asked.width)), mx.random.normal((256, asked.width)), cache).scored)
    ways = {1: readout} | {share: Shortlist(readout, round(share * asked.vocabulary), [7]) for share in SHARES[1:]}
    for way in list(ways.values())[1:]:
        way.see(range(asked.vocabulary - 500, asked.vocabulary))
    seconds = {share: [] for share in ways}
    for turn in range(asked.n + 1):
        for share, way in ways.items():
            began = time.perf_counter()
            mx.eval(way.logits(head(token, token, cache).scored))
            cache.trim(1)
            seconds[share] += [time.perf_counter() - began] if turn else []
    whole = statistics.median(seconds[1])
    print(
        f"width {asked.width}, {asked.vocabulary} tokens, {asked.bits} bits, 500 tokens of the text beside; N {asked.n}"
    )
    for share, found in seconds.items():
        low, middle, high = (1e3 * value for value in statistics.quantiles(found, n=4))
        size = round(share * asked.vocabulary)
        print(
            f"{size:7d} tokens  {middle:7.2f} ms  ({low:.2f} to {high:.2f})  {1e3 * whole / middle:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
