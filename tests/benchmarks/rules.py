"""What each acceptance rule keeps, on code the pair has never seen: `python tests/benchmarks/rules.py`.

Prompts are acceptance.py's: windows of held-out standard-library modules. Every prompt is answered in every way before
the next one, plain decoding (K = 0) at the same temperature included, in an order that turns by one each time, so that
a slow minute slows all of them. An answer is one prompt with one seed; one that stops before SHORTEST tokens is left
out under its way. "Passes" counts the first token's pass, which never drafts. Spread: 95 % t-intervals over prompts
(answers of one prompt averaged first). On a CPU preload a real BLAS: mlx's Linux wheel links a slow one.
"""

import argparse
import os
import statistics

os.environ.setdefault("MLX_ENABLE_TF32", "0")

from acceptance import prompts, repetition_rate
from paired import environment, half_width

from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request
from specdec_cli.session.load import load

RULES = ("match", "token", "block", "coupled")
SHORTEST = 16
# Above, below, what is expected of their ratio at T = 1.
EXPECTED = (("token", "match", 1.5), ("block", "token", 1.0), ("coupled", "token", 0.9))


def told(values, digits=2):
    if len(values) < 2:
        return "unknown"
    return f"{statistics.mean(values):.{digits}f} ± {half_width(values):.{digits}f}"


def ratio_of_means(above, below):
    """Ratio of two means over the same prompts, and its 95 % half width (linearised)."""
    ratio = statistics.mean(above) / statistics.mean(below)
    off = [a - ratio * b for a, b in zip(above, below, strict=True)]
    return ratio, half_width(off) / statistics.mean(below)


def answer(session, prompt, request):
    """Length of the answer in tokens per pass, judged acceptance, tokens/s, repetition; None if it stopped early."""
    finish = list(session.reply(prompt, request, raw=True))[-1]
    if len(finish.tokens) < SHORTEST:
        return None
    stats = finish.stats
    rates = (stats["mean_acceptance_length"], stats["judged_acceptance_rate"], stats["tokens_per_second"])
    return *rates, repetition_rate(finish.tokens)


def measured(session, texts, ways, temperature, args):
    """{way: {prompt: [answers]}}, every way on one prompt and seed after the other."""
    found = {way: {} for way in ways}
    for i, text in enumerate(texts):
        prompt = session.raw_tokens(text)
        for j in range(args.seeds if temperature else 1):
            turn = (i * args.seeds + j) % len(ways)
            for way in [*ways[turn:], *ways[:turn]]:
                k, rule = (0, "block") if way == "plain" else (args.k, "auto" if way == "greedy" else way)
                sampling = {"temperature": temperature}
                request = Request(args.tokens, k=k, rule=rule, seed=i * args.seeds + j, sampling=sampling)
                if (figures := answer(session, prompt, request)) is not None:
                    found[way].setdefault(i, []).append(figures)
    return found


def means(answers, column):
    """{prompt: mean over its answers} of one figure; prompts without it are absent."""
    values = {i: [a[column] for a in of_one if a[column] is not None] for i, of_one in answers.items()}
    return {i: statistics.mean(v) for i, v in values.items() if v}


def paired(found, above, below, column):
    a, b = means(found[above], column), means(found[below], column)
    both = sorted(a.keys() & b.keys())
    return [a[i] for i in both], [b[i] for i in both]


def report(found, temperature):
    for way, answers in found.items():
        lengths, judged, repetition = (list(means(answers, column).values()) for column in (0, 1, 3))
        speed, off = ratio_of_means(*paired(found, way, "plain", 2))
        count = sum(len(of_one) for of_one in answers.values())
        print(f"| {temperature:g} | {way} | {count} of {len(lengths)} | {told(lengths)} | {told(judged, 3)}", end="")
        print(f" | {speed:.2f} ± {off:.2f} | {told(list(means(answers, 2).values()), 0)} | {told(repetition)} |")


def compare(found, temperature):
    for above, below, least in EXPECTED:
        ratio, off = ratio_of_means(*paired(found, above, below, 0))
        print(f"T = {temperature:g}: {above} ÷ {below} = {ratio:.3f} ± {off:.3f}", end="")
        verdict = "met" if ratio >= least else "missed, within the interval" if ratio + off >= least else "MISSED"
        print(f"; expected ≥ {least:g}: {verdict}" if temperature == 1 else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="specdec:demo/target")
    parser.add_argument("--draft", default="specdec:demo/draft")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--seeds", type=int, default=1, help="answers to each prompt")
    parser.add_argument("-k", type=int, default=4)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    args = parser.parse_args()
    session = load(Pair("pair", args.target, args.draft)).session()
    texts = prompts(args.prompts, 384)
    answer(session, session.raw_tokens(texts[0]), Request(32, k=args.k, rule="block", sampling={"temperature": 1.0}))
    print(environment())
    print(
        f"{args.target} + {args.draft}, K = {args.k}, N = {args.prompts} prompts × {args.seeds} seeds (T = 0: 1)",
        end="",
    )
    print(f" × {args.tokens} tokens\n")
    print("| T | rule | answers of prompts | tokens per pass | judged | tokens/s ÷ plain | tokens/s | repetition |")
    print("|---|---|---|---|---|---|---|---|")
    compared = []
    for temperature in args.temperatures:
        ways = ["plain", *(RULES if temperature else ("greedy",))]
        found = measured(session, texts, ways, temperature, args)
        report(found, temperature)
        if temperature:
            compared.append((found, temperature))
    print()
    for found, temperature in compared:
        compare(found, temperature)


if __name__ == "__main__":
    main()
