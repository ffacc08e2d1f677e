"""Is the K of a two-minute bench the best one? `python tests/benchmarks/bench_choice.py [--target ID --draft ID]`.

The bench runs as a person would run it; then every K and the baseline are measured end to end on every prompt, in
random order, for as long as `--reference` says. Prints both, and how much of the best K's speed the chosen one gives
up; exits 1 if that is more than 3 %. Needs a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from random import Random

os.environ.setdefault("MLX_ENABLE_TF32", "0")

from specdec_cli.bench.estimate import Interval, by_kind, grouped
from specdec_cli.bench.live import LiveMachine, load_machine
from specdec_cli.bench.prompts import load
from specdec_cli.bench.report import reports
from specdec_cli.bench.result import Arm, Contender, Length, PromptId, plain
from specdec_cli.bench.sweep import Bench, BenchRequest, in_turns
from specdec_cli.cli.bench_options import parse_seconds
from specdec_cli.pairs.resolve import resolve_pair
from specdec_cli.ui.bench.terminal import print_bench
from specdec_cli.ui.terminal import make_console

KS: tuple[Length, ...] = (*range(1, 9), "auto")
MOST_GIVEN_UP = 0.03


def reference(machine: LiveMachine, contender: Contender, prompts, seconds: float, seed: int) -> dict[Length, Interval]:
    """K -> its speed-up over all prompts that every K has answered."""
    order, began = Random(seed), machine.clock()
    logs: dict[Length, list[tuple[str, float]]] = {k: [] for k in KS}
    arms = [plain(0.0), *(Arm(contender, 0.0, k) for k in KS)]
    for prompt in in_turns(prompts, order):
        if machine.clock() - began > seconds:
            break
        rates = {}
        for arm in order.sample(arms, len(arms)):
            rates[arm.k] = machine.answer(arm, prompt).tokens_per_second
        for k in KS:
            logs[k].append((PromptId(prompt.kind, prompt.name).kind, math.log(rates[k] / rates[0])))
    return {k: by_kind(grouped(values)).exp() for k, values in logs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair")
    parser.add_argument("--target")
    parser.add_argument("--draft")
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--reference", default="20m")
    parser.add_argument("--kinds", default=None, help="such as code,chat; all by default")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    pair = resolve_pair(given.pair, given.target, given.draft, here=True).pair
    prompts = load(given.kinds.split(",") if given.kinds else None)
    budget = parse_seconds("--budget", given.budget)
    ks = (0, *KS)
    asked = (pair, True, (), ("model",), ks, (0.0,), "auto", given.seed, prompts, "", None, True, False)
    machine, about = load_machine(job := BenchRequest(*asked, budget, 0.0, False), lambda: False)
    run = Bench(job, machine, about, lambda *_: None, print)
    run.run()
    result = run.result()
    report = reports(result)[0]
    print_bench(make_console(sys.stdout, plain=False), result, [report])

    fitting = machine.fitting(prompts, result.settings.max_tokens)
    long = reference(machine, about.contenders[0], fitting, parse_seconds("--reference", given.reference), given.seed)
    print(f"\nreference: {long[1].prompts} prompts at every K")
    for k, found in long.items():
        print(f"K {k}  {found.mean:.3f}x  ({found.low:.3f} to {found.high:.3f})")
    chosen = report.recommendation.chosen
    best, kept = max(1.0, *(found.mean for found in long.values())), long[chosen].mean if chosen else 1.0
    print(f"chosen K {chosen} {kept:.3f}x, best {best:.3f}x: gives up {100 * (1 - kept / best):.1f} %")
    print(f"the bench said {report.recommendation.answer}, after {result.seconds:.0f} s")
    return int(1 - kept / best > MOST_GIVEN_UP)


if __name__ == "__main__":
    sys.exit(main())
