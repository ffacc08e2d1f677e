"""Is the README's first command faster than plain decoding here? `python tests/benchmarks/demo_gain.py -k 3 4 auto`

Held-out library code, 100 tokens, greedy. Each reply and plain decoding of the same prompt take turns in one process,
so every ratio is paired; 95 % intervals. The same of the answers that repeat less than 0.1: there loops buy nothing.
"""

import argparse
import os

os.environ.setdefault("MLX_ENABLE_TF32", "0")

from acceptance import prompts, repetition_rate
from paired import Ratio, environment
from turns import Paired

from specdec_cli.pairs.pair import Pair
from specdec_cli.request import parse_k
from specdec_cli.session.load import load

CALM = 0.1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="specdec:demo/target")
    parser.add_argument("--draft", default="specdec:demo/draft")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("-k", nargs="+", default=["4", "auto"])
    parser.add_argument("--drafter", nargs="+", default=["model"])
    args = parser.parse_args()
    pair = load(Pair("pair", args.target, args.draft))
    print(environment(), f"{args.prompts} prompts, {args.tokens} tokens, temperature 0")
    texts = [pair.text_tokens(text) for text in prompts(args.prompts, 384)]
    arms = [(k, drafter) for k in args.k for drafter in args.drafter]
    Paired(pair, texts[0], args.tokens, 4, "model")  # kernels, caches
    found = {arm: [] for arm in arms}
    for number, text in enumerate(texts):
        turn = number % len(arms)
        for k, drafter in [*arms[turn:], *arms[:turn]]:
            found[k, drafter].append(Paired(pair, text, args.tokens, parse_k(k), drafter))
    print("| K | drafter | answers | plain ÷ drafted time | tokens per pass | repetition |")
    print("|---|---|---|---|---|---|")
    for (k, drafter), replies in found.items():
        calm = [one for one in replies if repetition_rate(one.emitted) < CALM]
        for label, some in (("all", replies), ("without loops", calm)):
            print(f"| {k} | {drafter} | {label} ({len(some)}) | {row(some)} |")


def row(replies):
    if not replies:
        return "none | |"
    gain = Ratio([one.truth for one in replies], [1.0] * len(replies))
    passes = sum(one.stats["rounds"] for one in replies)
    repetition = sum(repetition_rate(one.emitted) for one in replies) / len(replies)
    return f"{gain} | {sum(len(one.emitted) for one in replies) / passes:.2f} | {repetition:.2f}"


if __name__ == "__main__":
    main()
