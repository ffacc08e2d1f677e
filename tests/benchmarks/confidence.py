"""Would it pay to stop drafting where the draft is unsure? `python tests/benchmarks/confidence.py`

The target's own greedy text is fed to the draft, which tells for every position its token, and how likely it thought
that token was. From these, rounds are played on published cost curves (tests/machine.py): with the best fixed K, and
with up to 8 tokens that end where the draft's own probability falls below a threshold, the best of all thresholds
chosen with hindsight. A stop needs each probability on the host before the next draft step: SYNC is what that costs,
in plain steps. Not modelled: behind a rejected token the draft's later probabilities are those of the true text.
"""

import argparse
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from paired import environment
from speed import Pair
from texts import KINDS, of_kind

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.machine import MACHINES

DEEPEST = 8
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SYNC = 0.02


def rehearsed(pair, prompt):
    """Whether the draft's token stands at each position of the target's answer, and its probability."""
    pair.plain()(prompt)
    said = pair.said[tuple(prompt)]
    logits = pair.networks[1](mx.array([[*prompt, *said]]))[0, len(prompt) - 1 : -1]
    p = mx.softmax(logits.astype(mx.float32), axis=-1)
    return np.array(mx.argmax(logits, axis=-1)) == np.array(said), np.array(mx.max(p, axis=-1))


def steps_a_token(stands, confident, machine, k, threshold=0.0, sync=0.0):
    """Plain steps a token of rounds of up to k tokens, each ended by the first below the threshold."""
    at, cost = 1, 0.0
    while at < len(stands):
        drafted = 0
        while drafted < k and at + drafted < len(stands):
            drafted += 1
            if confident[at + drafted - 1] < threshold:
                break
        accepted = 0
        while accepted < drafted and stands[at + accepted]:
            accepted += 1
        cost += drafted * (machine.draft_step + sync) + machine.rows(drafted + 1)
        at += accepted + 1
    return cost / (at - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    args = parser.parse_args()
    args.clock, args.seed = "wall", 0
    pair = Pair(args.pair, args)
    print(environment())
    print("| machine | text | best fixed K | stop below | gain, free stops | gain, a stop costs 0.02 steps |")
    print("|---|---|---|---|---|---|")
    texts = {
        kind: [rehearsed(pair, prompt) for prompt in of_kind(kind, args.prompts, pair.tokenizer)] for kind in KINDS
    }
    for machine in MACHINES:
        for kind, rows in texts.items():

            def mean(k, threshold=0.0, sync=0.0, rows=rows, machine=machine):
                return np.mean([steps_a_token(*row, machine, k, threshold, sync) for row in rows])

            fixed = {k: mean(k) for k in range(DEEPEST + 1)}
            best = min(fixed, key=fixed.get)
            free = {t: mean(DEEPEST, t) for t in THRESHOLDS}
            threshold = min(free, key=free.get)
            paid = min(mean(DEEPEST, t, SYNC) for t in THRESHOLDS)
            print(f"| {machine.name} | {kind} | {best} | {threshold} | {fixed[best] / free[threshold]:.3f}", end="")
            print(f" | {fixed[best] / paid:.3f} |")


if __name__ == "__main__":
    main()
