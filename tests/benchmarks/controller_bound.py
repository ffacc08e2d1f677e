"""What no controller of K can beat: `python tests/benchmarks/controller_bound.py --tokens 32 128`.

A controller in a reply knows every cost exactly; unknown is only which of two texts it writes, a friendly or a hostile
one, each with one acceptance rate at every position. Wanted of both texts at once is the best fixed K's time with
hindsight. For any weights w, the least Σ w_text × E[time on text] / (best time on text) over *all* policies is a bound:
if it is V, no policy, however clever, has both ratios of best to own time above 1 / V. The largest V over w is printed
(the value of the game; Wald 1945). Policies are searched whole, by dynamic programming over (tokens left, prompt read
or not, tokens accepted, tokens rejected); acceptance is all that can be learnt, so nothing more is needed. Where much
was seen (`MOST`) the text is told for nothing, and plain rounds before drafted ones cost nothing: both only help.
"""

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.chips import cases
from fakes.machine import CODE, COPY, HOSTILE, PROSE

DEEPEST = 16
PROMPT = 64
MOST = 20, 6  # tokens accepted and rejected beyond which the text is told
WEIGHTS = 12


def known(machine, rate, tokens, ks):
    """[read, left]: least expected steps for a known text with drafts of `ks`, and reading before the first one."""
    steps = np.zeros((2, tokens + 1))
    for left in range(1, tokens + 1):
        for read in (1, 0):
            options = []
            for k in ks:
                k = min(k, left - 1)
                then = steps[int(read or k > 0)]
                odds = [rate**a * (1 - rate if a < k else 1) for a in range(k + 1)]
                after = sum(p * then[left - a - 1] for a, p in enumerate(odds))
                options.append(cost(machine, k, read, left, tokens) + after)
            steps[read, left] = min(options)
    return steps


def cost(machine, k, read, left, tokens):
    """Plain steps of a round with `k` drafted tokens."""
    if not k:
        return 1.0
    reading = 0.0 if read else machine.reading(PROMPT + tokens - left)
    return reading + k * machine.draft_step + machine.rows(k + 1)


def bayes(machine, rates, weights, tokens):
    """Least Σ weight × E[steps] over all policies that do not know which of `rates` holds."""
    told = [known(machine, rate, tokens, range(DEEPEST + 1)) for rate in rates]
    accepted, rejected = np.meshgrid(*(np.arange(m + DEEPEST + 2) for m in MOST), indexing="ij")
    odds = [w * rate**accepted * (1 - rate) ** rejected for w, rate in zip(weights, rates, strict=True)]
    total = sum(odds)
    small = tuple(slice(0, m + 1) for m in MOST)
    value = np.zeros((2, tokens + 1, *total.shape))
    for left in range(1, tokens + 1):
        for read in (1, 0):
            revealed = sum(o * t[read, left] for o, t in zip(odds, told, strict=True))
            best = np.full(total[small].shape, np.inf)
            for k in range(min(DEEPEST, left - 1) + 1):
                found = cost(machine, k, read, left, tokens) * total[small]
                for a in range(k + 1):
                    part = value[int(read or k > 0), left - a - 1]
                    miss = int(a < k)
                    found = found + part[a : a + MOST[0] + 1, miss : miss + MOST[1] + 1]
                best = np.minimum(best, found)
            value[read, left] = revealed
            value[read, left][small] = best
    return value[0, tokens, 0, 0]


def game(machine, rates, tokens, shares):
    """(value V, weight of the first text): V of the weights that make it largest; `shares` scale what is wanted."""
    best = [min(known(machine, rate, tokens, [k])[0, tokens] for k in range(DEEPEST + 1)) for rate in rates]
    low, high = 0.0, 1.0

    def at(w):
        return bayes(machine, rates, [w * shares[0] / best[0], (1 - w) * shares[1] / best[1]], tokens)

    for _ in range(WEIGHTS):  # V is concave in w
        third = (high - low) / 3
        left, right = at(low + third), at(high - third)
        low, high = (low + third, high) if left < right else (low, high - third)
    return at((low + high) / 2), (low + high) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[32])
    parser.add_argument("--machines", default="")
    args = parser.parse_args()
    for tokens in args.tokens:
        reached = []
        for case in cases():
            if args.machines not in case.machine.name:
                continue
            row = [case.machine.name]
            for text in (CODE, PROSE, COPY):
                rates = text.stretches[0][1], HOSTILE.stretches[0][1]
                value, _ = game(case.machine, rates, tokens, (1.0, 1.0))
                row.append(f"{text.name} {1 / value:.3f}")
            worst = min(float(cell.split()[-1]) for cell in row[1:])
            reached.append(worst)
            print(tokens, *row, f"worst {worst:.3f}", sep=" | ", flush=True)
        print(
            f"{tokens} tokens: median {statistics.median(reached):.3f}, worst {min(reached):.3f},",
            f"at least 0.97 on {sum(one >= 0.97 for one in reached)} of {len(reached)} machines",
        )


if __name__ == "__main__":
    main()
