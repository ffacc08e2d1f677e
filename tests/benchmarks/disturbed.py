"""Does a busy machine lead `-k auto` astray? `python tests/benchmarks/disturbed.py --replies 16 --load 2`

Each prompt is decoded with `auto` and with a fixed K in one process, in turns of a few rounds: the clock of one stands
still while the other runs, so both have the same seconds, busy ones included, and emit the same tokens. Each has one
session for all prompts, as a chat has, and knows nothing of the pair at first. `--load N` starts N processes that
compute for a second or two and rest for as long. Ratios over 1: `auto` is faster; 95 % intervals.

`--control` gives both the fixed K: what the ratios are then is the noise of this comparison.
"""

import argparse
import multiprocessing
import os
import time

os.environ.setdefault("MLX_ENABLE_TF32", "0")

from paired import Ratio, environment
from texts import of_kind
from turns import NEVER, TURN_ROUNDS, StoppedClock
from verdict import busy

from specdec_cli.engine import device
from specdec_cli.events import Finish, RoundDone
from specdec_cli.pairs.catalog import registry
from specdec_cli.request import Request, parse_k
from specdec_cli.session.load import load


class Lane:
    """Replies of one session with one K; its clock runs in its own turns only."""

    def __init__(self, pair, k):
        self.k, self.clock = k, StoppedClock()
        self.session = pair.session(pair.slot(), self.clock)
        self.stops = tuple((token, NEVER) for token in pair.tokenizer.stop_tokens)

    def begin(self, prompt, tokens):
        request = Request(max_tokens=tokens, k=self.k, drafter="model", logit_bias=self.stops)
        self.events, self.emitted, self.ks, self.stats = self.session.reply(prompt, request), [], [], None

    def turn(self, others):
        began, rounds = time.perf_counter(), 0
        while rounds < TURN_ROUNDS and self.stats is None:
            event = next(self.events)
            if isinstance(event, RoundDone):
                self.emitted += event.round.emitted
                self.ks.append(len(event.round.draft))
                rounds += 1
            elif isinstance(event, Finish):
                self.stats = event.stats
        device.settle()
        for other in others:
            other.clock.stopped_seconds += time.perf_counter() - began

    @property
    def seconds(self):
        return self.stats["decode_seconds"] + self.stats["measuring_seconds"]


def decoded(lanes, prompt, tokens):
    """Seconds of each lane for the same tokens; the one that is behind goes next."""
    for lane in lanes:
        lane.begin(prompt, tokens)
    while running := [lane for lane in lanes if lane.stats is None]:
        behind = min(running, key=lambda lane: len(lane.emitted))
        behind.turn([lane for lane in lanes if lane is not behind])
    assert lanes[0].emitted == lanes[1].emitted, "the same text, whatever K"
    return [lane.seconds for lane in lanes]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--k", default="3")
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--control", action="store_true")
    args = parser.parse_args()
    pair = load(registry().find("demo"))
    print(environment(), f"auto over K {args.k}, {args.tokens} tokens, temperature 0, own load {args.load}")
    kinds = [of_kind(kind, (args.replies + 1) // 2, pair.tokenizer) for kind in ("code", "prose")]
    prompts = [prompt for two in zip(*kinds, strict=True) for prompt in two][: args.replies]
    fixed = parse_k(args.k)
    lanes = [Lane(pair, fixed), Lane(pair, fixed if args.control else "auto")]
    workers = [multiprocessing.Process(target=busy, args=(seed,), daemon=True) for seed in range(args.load)]
    for worker in workers:
        worker.start()
    try:
        decoded([Lane(pair, 0), Lane(pair, 0)], prompts[0], 32)  # kernels, caches
        report(lanes, prompts, args.tokens)
    finally:
        for worker in workers:
            worker.terminate()
    print("load at the end", os.getloadavg()[0])


def report(lanes, prompts, tokens):
    found = []
    for number, prompt in enumerate(prompts):
        order = lanes if number % 2 else lanes[::-1]
        took = dict(zip(map(id, order), decoded(order, prompt, tokens), strict=True))
        fixed, auto = (took[id(lane)] for lane in lanes)
        found.append((fixed, auto))
        counts = ", ".join(str(len(lane.ks)) for lane in lanes)
        plain = lanes[1].ks.count(0)
        print(f"{number + 1:2}: {fixed / auto:.2f}  rounds {counts}; auto plain in {plain}  {lanes[1].ks}", flush=True)
    later = found[1:]
    print("all replies:", Ratio([fixed for fixed, _ in found], [auto for _, auto in found]))
    print("but the first:", Ratio([fixed for fixed, _ in later], [auto for _, auto in later]))


if __name__ == "__main__":
    main()
