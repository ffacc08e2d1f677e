"""Does the interval hold the truth? `python tests/benchmarks/verdict.py --replies 40 --load 1`

Each reply is decoded twice in one process, in turns of a few rounds: drafted, and plainly by a conversation of its own
over the same weights. The clock of one stands still while the other runs, so both have the same seconds, busy ones
included, and the ratio of their times is the paired truth, as far as so few tokens can tell it. The replies share what
they learn about the pair, as those of a chat do. `--load N` starts N processes that compute for a second or two and
rest for as long. The figure of before, from four plain steps at the reply's end, is shown beside it.
"""

import argparse
import math
import multiprocessing
import os
import random
import statistics
import time

os.environ.setdefault("MLX_ENABLE_TF32", "0")

from paired import environment
from texts import of_kind

from specdec_cli.engine import device
from specdec_cli.engine.timing import plain_step_seconds
from specdec_cli.events import Finish, RoundDone
from specdec_cli.pairs.catalog import registry
from specdec_cli.request import Request, parse_k
from specdec_cli.session.load import load

NEVER = -1e9
# Drafted rounds in a turn; plain decoding then catches up.
TURN_ROUNDS = 4


class StoppedClock:
    """Seconds but for those in which it was stopped."""

    def __init__(self):
        self.stopped_seconds = 0.0

    def __call__(self):
        return time.perf_counter() - self.stopped_seconds


def busy(seed):
    luck = random.Random(seed)
    while True:
        until = time.perf_counter() + luck.expovariate(1 / 1.5)
        while time.perf_counter() < until:
            sum(i * i for i in range(1000))
        time.sleep(luck.expovariate(1 / 1.5))


class Plain:
    """Plain decoding of the same prompt, some tokens at a time."""

    def __init__(self, pair, prompt, request):
        self._events = pair.session().reply(prompt, request)
        self.tokens, self.seconds = 0, 0.0
        self._advance(1)  # the prompt, and its token

    def catch_up(self, tokens):
        began = time.perf_counter()
        self.tokens += self._advance(tokens - self.tokens)
        device.settle()
        self.seconds += time.perf_counter() - began

    def _advance(self, wanted):
        found = 0
        while found < wanted:
            event = next(self._events)
            found += isinstance(event, RoundDone)
        return found


def measured(pair, prompt, args):
    """(stats of a drafted reply, the paired truth, the figure of before)."""
    stops = tuple((token, NEVER) for token in pair.tokenizer.stop_tokens)
    clock, session = StoppedClock(), None
    session = pair.session(pair.slot(), clock)
    request = Request(max_tokens=args.tokens, k=parse_k(args.k), drafter=args.drafter, logit_bias=stops)
    plain = Plain(pair, prompt, Request(max_tokens=2 * args.tokens, k=0, logit_bias=stops))
    tokens, rounds, context = 0, 0, list(prompt)
    for event in session.reply(prompt, request):
        if isinstance(event, Finish):
            stats = event.stats
        if not isinstance(event, RoundDone):
            continue
        context += event.round.emitted
        tokens, rounds = tokens + len(event.round.emitted), rounds + 1
        if rounds % TURN_ROUNDS == 0 or tokens == args.tokens:
            stopped = time.perf_counter()
            device.settle()
            plain.catch_up(tokens - 1)
            clock.stopped_seconds += time.perf_counter() - stopped
    seconds = stats["decode_seconds"] + stats["measuring_seconds"]
    steps = plain_step_seconds(session.slot.target, session.rule(prompt, request), context, 4, clock)
    truth = plain.seconds / plain.tokens * (tokens - 1) / seconds
    return stats, truth, statistics.fmean(steps) * (tokens - 1) / stats["decode_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--k", default="4")
    parser.add_argument("--drafter", default="model")
    args = parser.parse_args()
    pair = load(registry().find("demo"))
    print(environment(), f"K {args.k}, {args.tokens} tokens, temperature 0, own load {args.load}")
    half = (args.replies + 1) // 2
    kinds = [of_kind(kind, half, pair.tokenizer) for kind in ("code", "prose")]
    prompts = [prompt for two in zip(*kinds, strict=True) for prompt in two]
    workers = [multiprocessing.Process(target=busy, args=(seed,), daemon=True) for seed in range(args.load)]
    for worker in workers:
        worker.start()
    try:
        report(_each(pair, prompts[: args.replies], args))
    finally:
        for worker in workers:
            worker.terminate()
    print("load at the end", os.getloadavg()[0])


def _each(pair, prompts, args):
    for prompt in prompts:
        yield measured(pair, prompt, args)


def report(found):
    held, halves, off, before = [], [], [], []
    for stats, truth, old in found:
        before.append(math.log(old / truth))
        if stats["estimated_speedup"] is None:
            print(f"truth {truth:.2f}, nothing shown")
            continue
        estimate, low, high = (stats["estimated_speedup" + end] for end in ("", "_low", "_high"))
        held.append(low <= truth <= high)
        halves.append((high - low) / 2 / estimate)
        off.append(math.log(estimate / truth))
        share = stats["measuring_seconds"] / stats["decode_seconds"]
        print(f"truth {truth:.2f}  {estimate:.2f} ({low:.2f}-{high:.2f}) {'' if held[-1] else 'MISSED'}", end="")
        print(f"  before {old:.2f}, measuring {share:.1%}", flush=True)
    print(f"held the truth: {sum(held)} of {len(held)}, {statistics.fmean(held):.1%}")
    print(f"half-width: median {statistics.median(halves):.1%}, {min(halves):.1%} to {max(halves):.1%}")
    print(f"estimate / truth (log): mean {statistics.fmean(off):+.3f}, standard deviation {statistics.stdev(off):.3f}")
    print(f"before / truth (log): mean {statistics.fmean(before):+.3f}, sd {statistics.stdev(before):.3f}")


if __name__ == "__main__":
    main()
