"""Does the interval of real replies hold the truth? `python tests/benchmarks/verdict.py --replies 40`

Each reply is decoded twice in one process, in turns of a few rounds: the ratio of their times is the paired truth, as
far as so few tokens can tell it. The replies are those of one session, as a chat's are.
"""

import argparse
import os
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
from specdec_cli.session.meter import Stopwatch

NEVER = -1e9
TOKENS = 128
# Drafted rounds in a turn; plain decoding then catches up.
TURN_ROUNDS = 4


class Plain:
    """Plain decoding of the same prompt, some tokens at a time.

    The first step of each turn does not count: it was computed in the turn before, when nothing followed it.
    """

    def __init__(self, pair, prompt, stops):
        self._events = pair.session().reply(prompt, Request(max_tokens=2 * TOKENS, k=0, logit_bias=stops))
        self._done = self.tokens = 0
        self.clock = Stopwatch(time.perf_counter)
        self._advance(1)  # the prompt, and its token

    def catch_up(self, tokens):
        if tokens > self._done:
            self._advance(1)
            before = self._done
            with self.clock:
                self._advance(tokens - before)
            device.settle()
            self.tokens += self._done - before

    def _advance(self, tokens):
        until = self._done + tokens
        while self._done < until:
            self._done += isinstance(next(self._events), RoundDone)


def paired(pair, session, prompt, k):
    """One reply's stats, and the truth: plain seconds ÷ its own for the same tokens."""
    stops = tuple((token, NEVER) for token in pair.tokenizer.stop_tokens)
    request = Request(max_tokens=TOKENS, k=k, drafter="model", logit_bias=stops)
    events = session.reply(prompt, request, measures_last=True)
    plain = Plain(pair, prompt, stops)
    emitted = rounds = 0
    while True:
        with session.clock:
            event = next(events)
        if isinstance(event, Finish):
            seconds = event.stats["decode_seconds"] + event.stats["measuring_seconds"]
            return event.stats, plain.clock() / plain.tokens * (emitted - 1) / seconds
        if isinstance(event, RoundDone):
            emitted, rounds = emitted + len(event.round.emitted), rounds + 1
            if rounds % TURN_ROUNDS == 0 or emitted == TOKENS:
                with session.clock:
                    device.settle()  # what is queued for the next round is drafting's own time
                plain.catch_up(emitted - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=40)
    parser.add_argument("--k", default="4")
    args = parser.parse_args()
    pair = load(registry().find("demo"))
    print(environment(), f"K {args.k}, {TOKENS} tokens, temperature 0")
    session = pair.session(pair.slot(), Stopwatch(time.perf_counter))
    kinds = [of_kind(kind, (args.replies + 1) // 2, pair.tokenizer) for kind in ("code", "prose")]
    prompts = [prompt for both in zip(*kinds, strict=True) for prompt in both][: args.replies]
    covered, widths = 0, []
    for prompt in prompts:
        stats, truth = paired(pair, session, prompt, parse_k(args.k))
        estimate, low, high = (stats["estimated_speedup" + end] for end in ("", "_low", "_high"))
        if estimate is None:
            print(f"truth {truth:.2f}, nothing shown", flush=True)
            continue
        covered += low <= truth <= high
        widths.append((high - low) / 2 / estimate)
        missed = "" if low <= truth <= high else "  MISSED"
        print(f"truth {truth:.2f}  {estimate:.2f} ({low:.2f}-{high:.2f}){missed}", flush=True)
    width = f"{statistics.median(widths):.1%}" if widths else "unknown"
    print(f"covered {covered} / {len(prompts)}, nothing shown {len(prompts) - len(widths)}, median half-width {width}")


if __name__ == "__main__":
    main()
