"""Greedy acceptance of a pair on code it has never seen: `python tests/benchmarks/acceptance.py`.

`--pair demo-hybrid --drafter mtp ngram none` compares drafters of one pair.
Prompts are windows of the standard-library modules that the demo pair's training held out. The repetition rate
stands beside every figure, because loops buy acceptance; the rows "without loops" leave looping answers out.
"""

import argparse
import statistics
import sysconfig
from itertools import product
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
    parser.add_argument("--pair", help="by name, in place of --target and --draft")
    parser.add_argument("--drafter", nargs="+", default=["model"])
    parser.add_argument("--target", default="specdec:demo/target")
    parser.add_argument("--draft", default="specdec:demo/draft")
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("-k", type=int, nargs="+", default=[1, 2, 4, 8])
    args = parser.parse_args()
    pair = args.pair or Pair("pair", args.target, args.draft)
    session = load(pair, drafter=args.drafter[0]).session()
    texts = prompts(args.prompts, 384)
    print("| drafter | K | answers | judged | drafted | by position | tokens per pass | repetition |")
    print("|---|---|---|---|---|---|---|---|")
    for drafter, k in product(args.drafter, args.k):
        asked = Request(args.tokens, k=k, drafter=drafter)
        replies = [list(session.reply(session.raw_tokens(text), asked, raw=True)) for text in texts]
        rates = [repetition_rate(events[-1].tokens) for events in replies]
        calm = [events for events, rate in zip(replies, rates, strict=True) if rate < 0.1]
        print(row(drafter, k, "all", replies, rates))
        print(row(drafter, k, "without loops", calm, [rate for rate in rates if rate < 0.1]), flush=True)


def row(drafter, k, label, replies, rates):
    stats = Stats()
    for events in replies:
        for event in events:
            if event.event == "round":
                stats.fold(event.round)
    judged, drafted, per_pass = (
        "–" if figure is None else f"{figure:.3f}"
        for figure in (stats.judged_acceptance_rate, stats.draft_acceptance_rate, stats.mean_acceptance_length)
    )
    places = " ".join(f"{share:.2f}" for share in stats.acceptance_per_position)
    mean = f"{statistics.mean(rates):.2f}" if rates else "–"
    return f"| {drafter} | {k} | {label} ({len(replies)}) | {judged} | {drafted} | {places} | {per_pass} | {mean} |"


if __name__ == "__main__":
    main()
