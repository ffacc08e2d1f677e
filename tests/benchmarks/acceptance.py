"""Greedy acceptance of a pair on code it has never seen: `python tests/benchmarks/acceptance.py`.

Prompts are windows of the standard-library modules that the demo pair's training held out. The repetition rate
stands beside every figure, because loops buy acceptance; the rows "without loops" leave looping answers out.
"""

import argparse
import statistics
import sysconfig
from pathlib import Path

from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request
from specdec_cli.session.load import load
from specdec_cli.stats import Stats

HELD_OUT = ("bisect", "calendar", "configparser", "csv", "difflib", "fnmatch", "fractions", "glob", "graphlib")
HELD_OUT += ("heapq", "queue", "sched", "shlex", "statistics", "string", "textwrap", "zipapp")
GRAM = 8


def repetition_rate(ids):
    """Share of the 8-grams that occurred before in the same answer."""
    grams = [tuple(ids[i : i + GRAM]) for i in range(len(ids) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def prompts(count, length_bytes):
    """`count` texts that start at a line of a held-out module, spread evenly over all of them."""
    root = Path(sysconfig.get_paths()["stdlib"])
    starts = []
    for name in HELD_OUT:
        text = (root / f"{name}.py").read_text()
        lines = [i + 1 for i, c in enumerate(text[: -length_bytes - 500]) if c == "\n"]
        starts += [text[i : i + length_bytes] for i in lines]
    return [starts[i * (len(starts) - 1) // max(count - 1, 1)] for i in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="specdec:demo/target")
    parser.add_argument("--draft", default="specdec:demo/draft")
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("-k", type=int, nargs="+", default=[1, 2, 4, 8])
    args = parser.parse_args()
    session = load(Pair("pair", args.target, args.draft)).session()
    texts = prompts(args.prompts, 384)
    print("| K | answers | judged | drafted | tokens per pass | repetition |")
    print("|---|---|---|---|---|---|")
    for k in args.k:
        replies = [list(session.reply(session.raw_tokens(t), Request(args.tokens, k=k), raw=True)) for t in texts]
        rates = [repetition_rate(events[-1].tokens) for events in replies]
        calm = [events for events, rate in zip(replies, rates, strict=True) if rate < 0.1]
        print(row(k, "all", replies, rates))
        print(row(k, "without loops", calm, [rate for rate in rates if rate < 0.1]))


def row(k, label, replies, rates):
    stats = Stats()
    for events in replies:
        for event in events:
            if event.event == "round":
                stats.fold(event.round)
    figures = (stats.judged_acceptance_rate, stats.draft_acceptance_rate, stats.mean_acceptance_length)
    told = " | ".join(f"{figure:.3f}" for figure in figures)
    return f"| {k} | {label} ({len(replies)}) | {told} | {statistics.mean(rates):.2f} |"


if __name__ == "__main__":
    main()
