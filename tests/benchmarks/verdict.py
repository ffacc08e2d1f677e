"""Does the interval hold the truth? `python tests/benchmarks/verdict.py --replies 40 --load 1`

Each reply is decoded twice in one process, in turns of a few rounds: the ratio of their times is the paired
truth, as far as so few tokens can tell it. The replies are those of one session, as a chat's are; with `--apart` each
has its own, and knows what a file keeps of the others, as one-shots do. `--load N` starts N processes that compute for
a second or two and rest for as long.
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

from specdec_cli.core.events import Finish, RoundDone
from specdec_cli.core.request import Request, parse_k
from specdec_cli.engine import device
from specdec_cli.pairs.catalog import registry
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


class Plain:
    """Plain decoding of the same prompt, some tokens at a time.

    The first step of each turn does not count: it was computed in the turn before, when nothing followed it.
    """

    def __init__(self, pair, prompt, request):
        self._events = pair.session().reply(prompt, request)
        self._done = self.tokens = 0
        self.seconds = 0.0
        self._advance(1)  # the prompt, and its token

    def catch_up(self, tokens):
        if tokens <= self._done:
            return
        self._done += self._advance(1)
        began, counted = time.perf_counter(), self._advance(tokens - self._done)
        self.seconds += time.perf_counter() - began
        device.settle()
        self.tokens += counted
        self._done += counted

    def _advance(self, wanted):
        found = 0
        while found < wanted:
            event = next(self._events)
            found += isinstance(event, RoundDone)
        return found


class Paired:
    """One reply of exactly `tokens` tokens: its `stats`, its tokens, and `truth`, the plain seconds ÷ its own.

    `session` has a StoppedClock; without one the reply has a session of its own, as that of another process has.
    """

    def __init__(self, pair, prompt, tokens, k, drafter, turn_rounds=TURN_ROUNDS, session=None):
        stops = tuple((token, NEVER) for token in pair.tokenizer.stop_tokens)
        self.session = session or pair.session(pair.slot(), StoppedClock())
        self.clock = self.session.clock
        self.request = Request(max_tokens=tokens, k=k, drafter=drafter, logit_bias=stops)
        plain = Plain(pair, prompt, Request(max_tokens=2 * tokens, k=0, logit_bias=stops))
        self.emitted, rounds = [], 0
        for event in self.session.reply(prompt, self.request):
            if isinstance(event, Finish):
                self.stats = event.stats
            if not isinstance(event, RoundDone):
                continue
            self.emitted += event.round.emitted
            rounds += 1
            if rounds % turn_rounds == 0 or len(self.emitted) == tokens:
                device.settle()  # what is queued for the next round is drafting's own time
                stopped = time.perf_counter()
                plain.catch_up(len(self.emitted) - 1)
                self.clock.stopped_seconds += time.perf_counter() - stopped
        seconds = self.stats["decode_seconds"] + self.stats["measuring_seconds"]
        self.truth = plain.seconds / plain.tokens * (len(self.emitted) - 1) / seconds


def busy(seed):
    luck = random.Random(seed)
    while True:
        until = time.perf_counter() + luck.expovariate(1 / 1.5)
        while time.perf_counter() < until:
            sum(i * i for i in range(1000))
        time.sleep(luck.expovariate(1 / 1.5))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--k", default="4")
    parser.add_argument("--drafter", default="model")
    parser.add_argument("--apart", action="store_true")
    args = parser.parse_args()
    pair = load(registry().find("demo"))
    sessions = "sessions apart" if args.apart else "one session"
    print(environment(), f"K {args.k}, {args.tokens} tokens, temperature 0, own load {args.load}, {sessions}")
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
    session = None if args.apart else pair.session(pair.slot(), StoppedClock())
    for prompt in prompts:
        found = Paired(pair, prompt, args.tokens, parse_k(args.k), args.drafter, session=session)
        yield found.stats, found.truth


def report(found):
    held, halves, off, replies = [], [], [], 0
    for stats, truth in found:
        replies += 1
        if stats["estimated_speedup"] is None:
            print(f"truth {truth:.2f}, nothing shown")
            continue
        estimate, low, high = (stats["estimated_speedup" + end] for end in ("", "_low", "_high"))
        held.append(low <= truth <= high)
        halves.append((high - low) / 2 / estimate)
        off.append(math.log(estimate / truth))
        share = stats["measuring_seconds"] / stats["decode_seconds"]
        missed = "" if held[-1] else "MISSED"
        print(f"truth {truth:.2f}  {estimate:.2f} ({low:.2f}-{high:.2f}) {missed}  measuring {share:.1%}", flush=True)
    if len(held) < 2:
        print(f"{len(held)} of {replies} replies had a figure: too few to say more")
        return
    print(f"held the truth: {sum(held)} of {len(held)}, {statistics.fmean(held):.1%}")
    print(f"half-width: median {statistics.median(halves):.1%}, {min(halves):.1%} to {max(halves):.1%}")
    print(f"estimate / truth (log): mean {statistics.fmean(off):+.3f}, standard deviation {statistics.stdev(off):.3f}")


if __name__ == "__main__":
    main()
