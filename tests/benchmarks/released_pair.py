"""An ordinary released pair, `python tests/benchmarks/released_pair.py`: what drafting gains, in whole answers.

Qwen2.5-Coder-1.5B-Instruct with its 0.5B, dequantised from Q4_K_M to float32 (`tests/real/released.py`; 1.4 GB once).
Prompts are the shortest bundled ones of each kind, in the chat template. Each is answered in every way before the
next, in an order that turns, in one process; the prompt is the unit. Seconds are those of the whole answer, reading
the prompt included. Greedy answers are compared token for token. Acceptance by position is counted at K = 3; it does
not depend on the machine, and what it predicts at published costs of rows is printed beside it. `--parts acceptance`
counts it for the weights that mlx-lm's 4-bit conversion leaves.
"""

# ruff: noqa: E402 - mlx takes the BLAS that is loaded before it
import argparse
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

os.environ.setdefault("MLX_ENABLE_TF32", "0")
sys.path.insert(0, str(Path(__file__).parents[1]))

from specdec_cli.system import blas

BLAS = blas.load() or "its own BLAS"  # before mlx is imported

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler
from paired import Ratio, environment, interleaved

import specdec_cli as specdec
from fakes.machine import CURVES, Machine
from real import released
from specdec_cli.core import gain
from specdec_cli.measure.prompts import load

KINDS = {"code": "code", "prose": "prose", "chat": "questions", "edit": "edits"}
WAYS = ("mlx-lm K = 3", "K = 0", "K = 2", "K = 3", "auto, model alone", "defaults")
POSITIONS = 3


def prompts(kind, count):
    """The shortest of that kind, by name."""
    shortest = sorted(load([kind]), key=lambda prompt: (len(prompt.text), prompt.name))[:count]
    return [(prompt.name, prompt.text) for prompt in shortest]


class Ways:
    """Every way to answer, with the same two networks."""

    def __init__(self, target, draft, tokens, names=WAYS):
        self.pair, self.tokens, self.said = specdec.load(target=str(target), draft=str(draft)), tokens, {}
        self.names = ("plain", *names)
        self.judged = [[0, 0] for _ in range(POSITIONS)]
        slot = self.pair.session().slot
        self.networks = [one.network.module for one in (slot.target, slot.draft)]

    def all(self, temperature):
        every = {
            "plain": self.theirs(None, temperature),
            "mlx-lm K = 3": self.theirs(3, temperature),
            "K = 0": self.ours(temperature, k=0),
            "K = 2": self.ours(temperature, k=2, drafter="model"),
            "K = 3": self.ours(temperature, k=3, drafter="model"),
            "auto, model alone": self.ours(temperature, k="auto", drafter="model"),
            "defaults": self.ours(temperature),
        }
        return {name: every[name] for name in self.names}

    def warm_up(self, temperature):
        """A few tokens in every way, discarded."""
        tokens, self.tokens = self.tokens, 6
        for way in self.all(temperature).values():
            way("Say hello.")
        self.tokens, self.judged = tokens, [[0, 0] for _ in range(POSITIONS)]

    def theirs(self, k, temperature):
        """mlx-lm's own loops."""

        def answer(text):
            mx.random.seed(0)
            ids = mx.array(self.pair.chat_tokens(text))
            sampler = make_sampler(temp=temperature) if temperature else None
            more = {"max_tokens": self.tokens, "sampler": sampler}
            began, said = time.perf_counter(), []
            if k is None:
                steps = generate_step(ids, self.networks[0], **more)
            else:
                steps = speculative_generate_step(ids, *self.networks, num_draft_tokens=k, **more)
            for token, *_ in steps:
                said.append(int(token))
                if said[-1] in self.pair.tokenizer.stop_tokens:
                    break
            return self.took(began, text, said, temperature)

        return answer

    def ours(self, temperature, **options):
        def answer(text):
            session = self.pair.session()
            ids = session.pair.chat_tokens(text)
            settings = {"temperature": temperature, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0, "seed": None}
            began = time.perf_counter()
            events = list(session.reply(ids, max_tokens=self.tokens, **settings, **options))
            rounds = [event.round for event in events if event.event == "round"]
            if not temperature and options.get("k") == POSITIONS:
                self.count(rounds)
            return self.took(began, text, [token for one in rounds for token in one.emitted], temperature)

        return answer

    def count(self, rounds):
        """[accepted, judged] by position: a token is judged where those before it were accepted."""
        for one in rounds:
            for place in range(min(one.accepted + 1, len(one.draft))):
                self.judged[place][1] += 1
                self.judged[place][0] += place < one.accepted

    def report(self, weights, name):
        rates = [yes / every if every else 0.0 for yes, every in self.judged]
        shown = ", ".join(f"{rate:.2f} ({every})" for rate, (_, every) in zip(rates, self.judged, strict=True))
        print(f"{weights}, {name}: accepted by position, of so many judged: {shown}")
        print(f"   predicted: {'; '.join(predicted(rates))}", flush=True)
        self.judged = [[0, 0] for _ in range(POSITIONS)]

    def took(self, began, text, said, temperature):
        """Seconds a token; greedy answers are compared."""
        seconds = time.perf_counter() - began
        if not temperature and self.said.setdefault(text, said) != said:
            print(f"  answers differ after {text[:40]!r}: a near-tie, or a fault", flush=True)
        return seconds / len(said)


def speed(args):
    """Speed over mlx-lm's plain decoding, whole answers."""
    ways = Ways(released.qwen(), released.qwen_draft(), args.tokens, args.ways)
    print("| text | temperature | " + " | ".join(args.ways) + " |\n|" + "---|" * (len(args.ways) + 2))
    for temperature, count in ((0.0, args.prompts), (1.0, args.sampled)):
        if not count:
            continue
        ways.warm_up(temperature)
        everything = {way: [] for way in ways.names}
        for kind, name in KINDS.items():
            units = [text for _, text in prompts(kind, count)]
            found = interleaved(ways.all(temperature), units)
            row(name, temperature, found)
            if not temperature:
                ways.report("float32", name)
            for way, seconds in found.items():
                everything[way] += seconds
        row("all", temperature, everything)


def row(name, temperature, found):
    ratios = [Ratio(found["plain"], seconds) for way, seconds in found.items() if way != "plain"]
    # Three prompts bound nothing.
    cells = [str(ratio) if ratio.count > 3 else f"{ratio.median:.3f}" for ratio in ratios]
    print(f"| {name} ({len(found['plain'])}) | {temperature:g} | " + " | ".join(cells) + " |", flush=True)


def acceptance(args):
    """Accepted by position with the weights that 4 bits leave, and what that predicts at published costs of rows."""
    ways = Ways(*(released.through_four_bits(made()) for made in (released.qwen, released.qwen_draft)), args.tokens)
    answer = ways.ours(0.0, k=POSITIONS, drafter="model")
    for kind, name in KINDS.items():
        for _, text in prompts(kind, args.prompts):
            answer(text)
        ways.report("4 bits", name)


def predicted(rates, draft_step=0.35):
    """The best K and its speed over plain decoding on each chip, with a draft step in plain steps.

    0.35 is the ratio of the two models' bytes in 4 bits.
    """
    tokens = gain.expected_tokens(rates)
    for name, rows, measured in CURVES:
        machine = Machine(name, draft_step, rows)
        speeds = [gain.speedup(t, gain.round_steps(k, draft_step, machine.rows(k + 1))) for k, t in enumerate(tokens)]
        best = max(range(len(speeds)), key=speeds.__getitem__)
        yield f"{name}{'' if measured else ' (estimated)'} {speeds[best]:.2f} at K {best}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=("speed", "acceptance"), default=["speed", "acceptance"])
    parser.add_argument("--prompts", type=int, default=2, help="of each kind")
    parser.add_argument("--sampled", type=int, default=1, help="of each kind, at temperature 1")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    args = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    print(
        f"{environment()}, {BLAS}, {date.today()}, commit {commit.stdout.strip()}; {args.tokens} tokens an answer",
        flush=True,
    )
    for part in args.parts:
        began = time.perf_counter()
        print(f"\n{globals()[part].__doc__}")
        globals()[part](args)
        print(f"({part}: {time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
