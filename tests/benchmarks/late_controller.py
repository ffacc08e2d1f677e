"""What choosing K one round late costs on simulated machines: `python tests/benchmarks/late_controller.py`.

A loop that always asks for the next K before it reads the present round could launch every round one ahead. The price
is a controller that has not seen the last round yet. Paired: the same machine, text and seed, 600 tokens a reply.
"""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.machine import MACHINES, TEXTS, play
from specdec_cli.engine.draft_length.adaptive import Adaptive
from specdec_cli.engine.draft_length.costs import Costs

SEEDS, TOKENS, REPLIES = range(12), 600, 3


class Late:
    """`inner`, asked before it has observed the last round."""

    def __init__(self, inner):
        self._inner, self._coming, self._asked = inner, None, False

    def next(self):
        if self._coming is not None:
            coming, self._coming = self._coming, None
            return coming
        self._asked = True
        return self._inner.next()

    def observe(self, round):
        if not self._asked:
            self._coming = self._inner.next()
        self._asked = False
        self._inner.observe(round)


def seconds(machine, text, seed, late):
    adaptive = Adaptive(Costs.of_ratio(machine.draft_step))
    total = 0.0
    for reply in range(REPLIES):
        adaptive.begin(TOKENS, 64)
        length = Late(adaptive) if late else adaptive
        total += play(machine, text, length, TOKENS, 100 * seed + reply, began=total).seconds
    return total


def main():
    every = []
    for text in TEXTS:
        ratios = [seconds(m, text, s, True) / seconds(m, text, s, False) for m in MACHINES for s in SEEDS]
        every += ratios
        middle, mean = statistics.median(ratios), statistics.fmean(ratios)
        print(f"{text.name:12} late / exact seconds: median {middle:.4f}, mean {mean:.4f}")
    error = statistics.stdev(every) / len(every) ** 0.5
    print(f"all {len(every)}: mean {statistics.fmean(every):.4f} +- {1.96 * error:.4f} (95 %)")


if __name__ == "__main__":
    main()
