"""What rollback costs where it is hard: `python tests/benchmarks/rollback.py [--strategies]`.

Random float32 targets (gated delta rule, Mamba-2, short convolution, sliding window), a drafter that costs nothing
and is right with a given probability. Everything is paired: each prompt is decoded in every way before the next one,
in alternating order, and every run's tokens are compared with mlx-lm's. Rollback is lazy, so its time is taken in
runs of their own that wait for the states behind each commit. On a CPU preload a real BLAS; where the machine is
shared, pin the process to one core and take `--clock cpu`, which does not count the time of others.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import Any

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx
import mlx.nn as nn
import recurrence
from mlx.utils import tree_flatten
from recurrence import RECURRENCES, STRATEGIES, Measured, Metered, configurations, strategy

from specdec_cli.engine import device
from specdec_cli.engine.decode import Clock
from specdec_cli.engine.drafters.base import Drafter

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
BAR = 0.10
SIZES = {"1024x8": (1024, 8), "2048x4": (2048, 4)}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % t-interval of the mean (Student's quantile from the normal one, Abramowitz and Stegun 26.7.5)."""
    n, z = len(values) - 1, 1.959964
    t = z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n * n)
    half = t * statistics.stdev(values) / math.sqrt(n + 1)
    return statistics.mean(values) - half, statistics.mean(values) + half


def ratio(values: Sequence[float]) -> str:
    low, high = interval([math.log(value) for value in values])
    return f"{statistics.median(values):.2f} [{math.exp(low):.2f}, {math.exp(high):.2f}]"


def share(values: Sequence[float]) -> str:
    low, high = interval(values)
    return f"{100 * statistics.median(values):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def per_token(rounds: Sequence[Measured]) -> float:
    return sum(r.seconds for r in rounds) / sum(len(r.round.emitted) for r in rounds)


def rollback_share(rounds: Sequence[Measured]) -> float:
    spent = sum(r.host_seconds + r.device_seconds for r in rounds if r.rejects)
    return spent / sum(r.seconds for r in rounds)


def after(rounds: Sequence[Measured], k: int, rejected: bool) -> list[float]:
    """Seconds of the K-token rounds behind a round that did or did not reject, commit to commit: where mlx's laziness
    puts the rollback of the round before."""
    pairs = [(a, b) for a, b in pairwise(rounds) if len(a.round.draft) == len(b.round.draft) == k]
    return [b.seconds - b.host_seconds + a.host_seconds for a, b in pairs if a.rejects == rejected]


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |")


def header(*cells: str) -> None:
    row(*cells)
    row(*["---"] * len(cells))


@dataclass(frozen=True, slots=True)
class Bench:
    """One target with its prompts and mlx-lm's answers to them."""

    name: str
    target: Metered
    plain: nn.Module
    prompts: list[list[int]]
    answers: list[list[int]]
    k: int

    @classmethod
    def of(cls, name: str, size: str, args: argparse.Namespace) -> Bench:
        config = configurations(*SIZES[size])[name]
        plain = recurrence.random_network(config)
        target = Metered(recurrence.twin(plain, config), CLOCKS[args.clock])
        prompts = [[(101 * p + 7 * i * i + i) % 9973 + 3 for i in range(args.prompt)] for p in range(args.prompts)]
        answers = [recurrence.plainly(plain, prompt, args.tokens, target.clock)[1] for prompt in prompts]
        megabytes = sum(value.nbytes for _, value in tree_flatten(plain.parameters())) / 1e6
        varied = statistics.mean(len(set(answer)) / len(answer) for answer in answers)
        print(f"\n## {name}, width x layers {size}: {megabytes:.0f} MB, {', '.join(target.cache_kinds)}", end="; ")
        print(f"{varied:.0%} of an answer's tokens are different ones\n", flush=True)
        return cls(name, target, plain, prompts, answers, args.k)

    def plain_seconds(self, prompt: int) -> float:
        return recurrence.plainly(self.plain, self.prompts[prompt], len(self.answers[prompt]), self.target.clock)[0]

    def rounds(self, prompt: int, acceptance: float | None, waits: bool = False) -> list[Measured]:
        """Drafted rounds at the given acceptance; plain ones where it is None."""
        ids, answer = self.prompts[prompt], self.answers[prompt]
        if acceptance is None:
            return recurrence.measured(self.target, Drafter(), 0, ids, answer)
        self.target.waits = waits
        try:
            drafter = recurrence.Scripted(len(ids), answer, acceptance, prompt)
            return recurrence.measured(self.target, drafter, self.k, ids, answer)
        finally:
            self.target.waits = False


def interleaved(ways: dict[Any, Any], prompts: int) -> dict[Any, list[Any]]:
    """Every way on every prompt, order alternating; the first prompt once more beforehand, discarded."""
    taken: dict[Any, list[Any]] = {name: [] for name in ways}
    for prompt in [0, *range(prompts)]:
        for name in list(ways)[:: 1 if prompt % 2 else -1]:
            taken[name].append(ways[name](prompt))
    return {name: values[1:] for name, values in taken.items()}


def speed_and_share(bench: Bench, acceptances: Sequence[float]) -> None:
    """Tokens per second and passes per token against plain decoding, then what of a round is rollback."""
    ways: dict[Any, Any] = {"mlx-lm": bench.plain_seconds}
    ways["K = 0"] = lambda p: per_token(bench.rounds(p, None))
    for a in acceptances:
        ways[a] = lambda p, a=a: bench.rounds(p, a)
        ways[a, "waits"] = lambda p, a=a: bench.rounds(p, a, waits=True)
    taken = interleaved(ways, len(bench.prompts))
    plain, zero = taken["mlx-lm"], taken["K = 0"]
    print(f"mlx-lm {1 / statistics.median(plain):.2f} tokens/s, K = 0 {1 / statistics.median(zero):.2f};", end=" ")
    print(f"K = 0 over mlx-lm {ratio([m / z for m, z in zip(plain, zero, strict=True)])}\n")
    header("acceptance (judged)", "tokens/s", "over mlx-lm", "over K = 0", "passes per token", "1 / mean length")
    for a in acceptances:
        told = [per_token(rounds) for rounds in taken[a]]
        rounds = [r for rounds in taken[a] for r in rounds]
        emitted, passes = sum(len(r.round.emitted) for r in rounds), sum(r.passes for r in rounds)
        accepted, rejected = sum(r.round.accepted for r in rounds), sum(r.rejects for r in rounds)
        over = [ratio([b / t for b, t in zip(base, told, strict=True)]) for base in (plain, zero)]
        cells = [f"{a} ({accepted / (accepted + rejected):.2f})", f"{1 / statistics.median(told):.2f}", *over]
        row(*cells, f"{passes / emitted:.3f}", f"{len(rounds) / emitted:.3f}")
        if passes != len(rounds):
            raise SystemExit(f"{passes} target passes in {len(rounds)} rounds")
    print()
    header("acceptance", "rejecting", "ms a round", "host ms", "device ms", "share of those", "of all", f"<= {BAR:.0%}")
    for a in acceptances:
        runs = [[r for r in rounds if r.round.draft] for rounds in taken[a, "waits"]]
        bad = [r for rounds in runs for r in rounds if r.rejects]
        spent = [[r.seconds for r in bad], [r.host_seconds for r in bad], [r.device_seconds for r in bad]]
        cells = [f"{1e3 * statistics.median(seconds):.2f}" for seconds in spent]
        worst = [rollback_share([r for r in rounds if r.rejects]) for rounds in runs if any(r.rejects for r in rounds)]
        whole = [rollback_share(rounds) for rounds in runs]
        verdict = "yes" if interval(worst)[1] <= BAR else "of all" if interval(whole)[1] <= BAR else "NO"
        row(f"{a}", f"{len(bad)} of {sum(map(len, runs))}", *cells, share(worst), share(whole), verdict)
    cross_check([[r for a in acceptances for r in taken[a][p]] for p in range(len(bench.prompts))], bench.k)
    shares = recurrence.shares_of_a_pass(bench.target, bench.prompts[0], bench.answers[0][: bench.k])
    if shares:
        print(f"all {bench.k + 1} rows of a pass through the recurrence alone: {share(shares)} of the pass", flush=True)


def cross_check(prompts: Sequence[Sequence[Measured]], k: int) -> None:
    """Rollback as the difference between whole rounds, all of K + 1 rows, without waiting anywhere."""
    groups = [(after(rounds, k, True), after(rounds, k, False)) for rounds in prompts]
    found = [statistics.median(bad) / statistics.median(good) - 1 for bad, good in groups if bad and good]
    if len(found) > 1:
        counts = [sum(len(group[i]) for group in groups) for i in (0, 1)]
        print(f"\nrounds behind a rejection ({counts[0]}) take {share(found)} longer than others ({counts[1]})\n")


def compare_strategies(bench: Bench, acceptances: Sequence[float]) -> None:
    """The three ways on the same rounds, and rounds without any rejection; `replay` is what specdec does."""

    def run(name: str, prompt: int, acceptance: float) -> list[Measured]:
        with strategy(name, bench.target, bench.name):
            return bench.rounds(prompt, acceptance)

    header("acceptance", "way", "ms a round", "time over replay's", "passes per token", "rows a pass", "kept", "off by")
    for a in [*acceptances, 1.0]:
        ways = {name: lambda p, name=name, a=a: run(name, p, a) for name in STRATEGIES}
        taken = interleaved(ways, len(bench.prompts))
        base = [per_token(rounds) for rounds in taken["replay"]]
        for name in STRATEGIES:
            rounds = [r for rounds in taken[name] for r in rounds]
            passes, emitted = sum(r.passes for r in rounds), sum(len(r.round.emitted) for r in rounds)
            off, kept = exactness(bench, name, a)
            longer = [per_token(rounds) / b for rounds, b in zip(taken[name], base, strict=True)]
            cells = [f"{1e3 * statistics.mean(r.seconds for r in rounds):.1f}"]
            cells += ["1" if name == "replay" else ratio(longer), f"{passes / emitted:.3f}"]
            cells += [f"{sum(r.rows for r in rounds) / passes:.2f}", f"{kept / 1e6:.1f} MB", f"{off:.1e}"]
            row(f"{a}", name, *cells)


def exactness(bench: Bench, name: str, acceptance: float) -> tuple[float, int]:
    """The largest difference of a logit from decoding one row at a time, over the first prompt; bytes kept a pass."""
    prompt, answer = bench.prompts[0], bench.answers[0]
    reference = recurrence.one_row_logits(bench.plain, prompt, answer)
    with strategy(name, bench.target, bench.name):
        bench.target.seen, bench.target.kept_bytes = [], 0
        rounds = bench.rounds(0, acceptance)
        seen, bench.target.seen = bench.target.seen, None
    at, off = 1, float(mx.abs(seen[0][-1] - reference[0]).max())
    for logits, found in zip(seen[1:], rounds, strict=True):
        for i in range(found.round.accepted + 1):
            off = max(off, float(mx.abs(logits[i] - reference[at + i]).max()))
        at += len(found.round.emitted)
    return off, bench.target.kept_bytes


def gigaflops(clock: Clock) -> float:
    """Of a float32 matrix product: a CPU without a real BLAS gives itself away."""
    a = mx.random.normal((1024, 1024))
    mx.eval(a @ a)
    begin = clock()
    mx.eval([a @ a for _ in range(5)])
    return 5 * 2 * 1024**3 / (clock() - begin) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", action="store_true", help="three ways to a recurrent state, compared")
    parser.add_argument("--targets", nargs="+")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--acceptances", nargs="+", type=float, default=[0.3, 0.6, 0.9])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=112, help="tokens; the window is crossed behind 128")
    parser.add_argument("--tokens", type=int, default=49)
    parser.add_argument("-k", type=int, default=4)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    args = parser.parse_args()
    known = list(RECURRENCES) if args.strategies else list(configurations(*SIZES["1024x8"]))
    print(f"{device.device_name()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", end=", ")
    print(f"Python {platform.python_version()}, mlx {version('mlx')}, mlx-lm {version('mlx-lm')}", end=", ")
    print(f"{device.backend()}, float32 at {gigaflops(CLOCKS[args.clock]):.0f} GFLOP/s", end=", ")
    print(f"preloaded {os.environ.get('LD_PRELOAD') or 'nothing'}; greedy, K = {args.k}", end=", ")
    print(f"{args.prompts} prompts of {args.prompt} tokens, {args.tokens} new ones each", end=", ")
    print(f"{args.clock} clock; median [95 % interval of the mean]")
    for size in args.sizes:
        for name in args.targets or known:
            bench = Bench.of(name, size, args)
            (compare_strategies if args.strategies else speed_and_share)(bench, args.acceptances)


if __name__ == "__main__":
    main()
