"""What specdec itself costs: host time, panel, first token, memory. `python tests/benchmarks/overhead.py`.

Host time is what a round takes outside the calls that build, queue and await model passes. Paired and interleaved in
one process; `--pair FOLDER` as for speed.py. On a CPU preload a real BLAS.
"""

import argparse
import io
import os
import statistics
from pathlib import Path

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx
from paired import Ratio, environment, interleaved, timed
from speed import CLOCKS, NOWHERE, line
from speed import Pair as Loaded
from texts import of_kind

from specdec_cli.engine.decode import decode, rounds_of
from specdec_cli.engine.pipeline import Pipeline
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.pairs.pair import Pair as SpecdecPair
from specdec_cli.request import Request
from specdec_cli.session.load import load
from specdec_cli.ui.panel.live import PanelDisplay


class Watched:
    """Adds up the seconds of some methods of `inner`; everything else passes through."""

    def __init__(self, inner, names, meter):
        self._inner = inner
        for name in names:
            setattr(self, name, meter.timed(getattr(inner, name)))

    def __getattr__(self, name):
        return getattr(self._inner, name)


class Meter:
    def __init__(self, clock):
        self.clock, self.seconds = clock, 0.0

    def timed(self, call):
        return timed(call, self._spend, self.clock)

    def _spend(self, seconds):
        self.seconds += seconds


def host_and_round_seconds(pair, prompt, k, tokens):
    """Medians over the rounds that drafted: host seconds, all seconds."""
    meter = Meter(pair.clock)
    for model in (pair.target, pair.draft):
        model.reuse(NOWHERE)
    for _ in pair.target.prefill(prompt):
        pass
    rule = greedy(pair.target.vocab_size)
    drafter, length = pair.begin("model", k, rule, prompt, tokens, 1.0)
    watched = Watched(drafter, ["propose"], meter), Watched(pair.target, ["outputs"], meter)
    rule = Watched(rule, ["judge", "choose"], Meter(pair.clock))
    # Waiting for the draft and for the verification is the device's time. So is queueing: a CPU stream makes the
    # caller wait once about ten tasks are queued.
    kept = Pipeline._wait_for, Pipeline._queue, Pipeline.read
    Pipeline._wait_for, Pipeline._queue, Pipeline.read = (meter.timed(method) for method in kept)
    hosts, totals, last, used = [], [], pair.clock(), meter.seconds
    try:
        context = list(prompt)
        steps = decode(watched[1], watched[0], rule, length, context, tokens, frozenset(), pair.clock)
        for round in rounds_of(steps):
            now = pair.clock()
            if round.draft and round.index > 2:
                hosts.append(now - last - (meter.seconds - used))
                totals.append(now - last)
            last, used = now, meter.seconds
    finally:
        Pipeline._wait_for, Pipeline._queue, Pipeline.read = kept
    return statistics.median(hosts), statistics.median(totals)


def host(pair, args):
    """Host time of a round, and what is left for the models; at 256 and at 8192 tokens of context."""
    text = [token for text in of_kind("code", 128, pair.tokenizer) for token in text]
    found = {}
    for length in (256, args.long_context):
        repeats = [host_and_round_seconds(pair, text[:length], 4, args.tokens) for _ in range(args.repeats)]
        hosts, totals = zip(*repeats, strict=True)
        found[length] = hosts
        share = 1 - statistics.median(hosts) / statistics.median(totals)
        print(f"context {length}: host {1e6 * statistics.median(hosts):.0f} µs", end="")
        print(
            f" ({1e6 * min(hosts):.0f} to {1e6 * max(hosts):.0f}) of {1e3 * statistics.median(totals):.1f} ms", end=""
        )
        print(f" a round: the models have {share:.4f} of it; goal 0.95: {'met' if share >= 0.95 else 'MISSED'}")
    line("host time at 256 ÷ at the long context", Ratio(found[256], found[args.long_context]), 1 / 1.1)


class Screen(io.StringIO):
    """A terminal that swallows everything, without being slow or fast."""

    def isatty(self):
        return True

    def fileno(self):
        raise io.UnsupportedOperation


def panel(session, args):
    """The panel on against off, and the time to the first token with a draft against without."""
    prompts = [session.raw_tokens(text) for text in (f"def f{i}(x):\n    return" for i in range(args.prompts))]
    firsts = {}

    def answer(k, shown, name):
        def timed(prompt):
            session.slot.forget()
            out, err = Screen(), Screen()
            display = PanelDisplay(out, err, name="benchmark", closing=lambda *_: []) if shown else None
            for event in session.reply(prompt, Request(args.tokens, k=k), raw=True):
                if display:
                    display.handle(event)
            firsts.setdefault(name, []).append(event.stats["ttft_seconds"])
            return event.stats["total_seconds"]

        return timed

    ways = {"off": (4, False), "on": (4, True), "plain": (0, False)}
    found = interleaved({name: answer(*way, name) for name, way in ways.items()}, prompts)
    line("panel on ÷ off", Ratio(found["off"], found["on"]), 0.97)
    line("time to first token: without a draft ÷ with", Ratio(firsts["plain"], firsts["off"]), 1 / 1.05)


def memory(pair, args):
    """Peak memory of a drafting reply over what weights and caches hold at its end."""
    prompt = [token for text in of_kind("code", 16, pair.tokenizer) for token in text][:256]
    pair.ours(4, tokens=16)(prompt)  # warm-up
    mx.clear_cache()
    mx.reset_peak_memory()
    pair.ours(4, tokens=args.tokens)(prompt)
    peak, models = mx.get_peak_memory(), (pair.target, pair.draft)
    weights = sum(model.weight_bytes for model in models)
    tokens = len(prompt) + args.tokens
    caches = sum(model.cache_bytes(tokens, 4) for model in models)
    held = weights + caches
    print(f"peak {peak / 1e6:.0f} MB, weights {weights / 1e6:.0f} MB + caches {caches / 1e6:.1f} MB: ", end="")
    print(f"{peak / held:.3f} times; goal 1.05: {'met' if peak <= 1.05 * held else 'MISSED'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, help="folder with target and draft; default: the demo pair")
    parser.add_argument("--prompts", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--long-context", type=int, default=8192)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--parts", nargs="+", choices=("host", "panel", "memory"), default=["host", "panel", "memory"])
    args = parser.parse_args()
    args.seed = 0
    print(environment())
    if "panel" in args.parts:
        names = [str(args.pair / part) if args.pair else f"specdec:demo/{part}" for part in ("target", "draft")]
        pair = load(SpecdecPair("benchmark", *names))
        panel(pair.session(pair.first, CLOCKS[args.clock]), args)
    pair = Loaded(args.pair, args)
    if "memory" in args.parts:
        memory(pair, args)
    if "host" in args.parts:
        host(pair, args)


if __name__ == "__main__":
    main()
