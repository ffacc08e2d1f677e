"""Plain decoding (K = 0) against mlx-lm's own generate_step: `python tests/benchmarks/plain_speed.py`.

Paired and interleaved in one process, order alternating; the ratio above 1 means specdec is faster.
"""

import argparse
import math
import os
import platform
import statistics
import time
from importlib.metadata import version

os.environ.setdefault("MLX_ENABLE_TF32", "0")

from specdec_cli.checkpoint import read_checkpoint
from specdec_cli.engine import device
from specdec_cli.engine.acceptance import greedy
from specdec_cli.engine.baseline import baseline
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft_length import Fixed
from specdec_cli.engine.drafters import NoDrafter
from specdec_cli.engine.load import load_network
from specdec_cli.engine.model import CachedModel
from specdec_cli.hub import locate

CLOCK = time.perf_counter


def seconds_per_token(rounds):
    """Decode only: from the first token to the last."""
    next(rounds)
    begin, count = CLOCK(), sum(1 for _ in rounds)
    return (CLOCK() - begin) / count


def ours(network, prompt, tokens):
    target = CachedModel(network, "target")
    return decode(target, NoDrafter(), greedy(target.width), Fixed(0), list(prompt), tokens, frozenset(), CLOCK)


def interval(ratios):
    """Median, and the 95 % t-interval of the mean log ratio."""
    logs = [math.log(r) for r in ratios]
    half = 2.1 * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.mean(logs)
    return statistics.median(ratios), math.exp(mean - half), math.exp(mean + half)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="specdec:demo/target")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--pairs", type=int, default=21)
    args = parser.parse_args()
    network = load_network(read_checkpoint(locate(args.target), args.target))
    prompt = [5 + i % 200 for i in range(64)]
    ways = {
        "specdec": lambda: seconds_per_token(ours(network, prompt, args.tokens)),
        "mlx-lm": lambda: seconds_per_token(baseline(network, prompt, args.tokens, frozenset(), CLOCK)),
    }
    for way in ways.values():
        way()  # warm-up, discarded
    taken = {name: [] for name in ways}
    for pair in range(args.pairs):
        for name in sorted(ways, reverse=pair % 2 == 1):
            taken[name].append(ways[name]())
    median, low, high = interval([m / s for m, s in zip(taken["mlx-lm"], taken["specdec"], strict=True)])
    print(f"{device.device_name()}, {os.cpu_count()} cores, Python {platform.python_version()}", end=", ")
    print(f"mlx {version('mlx')}, mlx-lm {version('mlx-lm')}, {device.backend()}, {args.target}")
    for name, values in taken.items():
        spread = f"{1e3 * min(values):.2f} to {1e3 * max(values):.2f}"
        print(f"{name}: {1e3 * statistics.median(values):.2f} ms a token (of {len(values)}: {spread})")
    print(f"mlx-lm / specdec, K = 0, {args.tokens} tokens: {median:.3f} [{low:.3f}, {high:.3f}], {args.pairs} pairs")


main()
