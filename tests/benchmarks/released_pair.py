"""An ordinary released pair, `python tests/benchmarks/released_pair.py`: what drafting gains, in whole answers.

Qwen2.5-Coder-1.5B-Instruct with its 0.5B, dequantised from Q4_K_M to float32 (`tests/real/released.py`; 1.4 GB once).
Prompts are the shortest bundled ones of each kind, in the chat template. Each is answered in every way before the
next, in an order that turns, in one process; the prompt is the unit, and the ways are those of `ways.py`. Acceptance by
position is counted at K = 3; it does not depend on the machine, and what it predicts at published costs of rows is
printed beside it. `--parts acceptance` counts it for the weights that mlx-lm's 4-bit conversion leaves.
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

from paired import Ratio, environment, interleaved
from ways import Ways

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


def answers(ways, temperature, names):
    """Plain decoding, and the ways of these names."""
    every = {
        "plain": ways.plain(temperature),
        "mlx-lm K = 3": ways.mlx_lm(3, temperature),
        "K = 0": ways.ours(temperature, k=0),
        "K = 2": ways.ours(temperature, k=2, drafter="model"),
        "K = 3": ways.ours(temperature, k=3, drafter="model"),
        "auto, model alone": ways.ours(temperature, k="auto", drafter="model"),
        "defaults": ways.ours(temperature),
    }
    return {name: every[name] for name in ("plain", *names)}


class Positions:
    """[accepted, judged] by position: a token is judged where those before it were accepted."""

    def __init__(self):
        self.judged = [[0, 0] for _ in range(POSITIONS)]

    def count(self, rounds):
        for one in rounds:
            for place in range(min(one.accepted + 1, len(one.draft))):
                self.judged[place][1] += 1
                self.judged[place][0] += place < one.accepted

    def report(self, weights, name):
        rates = [yes / every if every else 0.0 for yes, every in self.judged]
        shown = ", ".join(f"{rate:.2f} ({every})" for rate, (_, every) in zip(rates, self.judged, strict=True))
        print(f"{weights}, {name}: accepted by position, of so many judged: {shown}")
        print(f"   predicted: {'; '.join(predicted(rates))}", flush=True)


def loaded(target, draft, tokens):
    return Ways(specdec.load(target=str(target), draft=str(draft)), tokens)


def speed(args):
    """Speed over mlx-lm's plain decoding, whole answers."""
    ways = loaded(released.qwen(), released.qwen_draft(), args.tokens)
    print("| text | temperature | " + " | ".join(args.ways) + " |\n|" + "---|" * (len(args.ways) + 2))
    for temperature, number in ((0.0, args.prompts), (1.0, args.sampled)):
        if not number:
            continue
        chosen = answers(ways, temperature, args.ways)
        ways.warm_up(chosen.values(), ways.pair.chat_tokens("Say hello."))
        everything = {way: [] for way in chosen}
        for kind, name in KINDS.items():
            positions = Positions()

            def note(_, way, positions=positions):
                if way == "K = 3":
                    positions.count(ways.rounds)

            units = [ways.pair.chat_tokens(text) for _, text in prompts(kind, number)]
            found = interleaved(chosen, units, note)
            row(name, temperature, found)
            if not temperature:
                positions.report("float32", name)
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
    ways = loaded(*(released.through_four_bits(made()) for made in (released.qwen, released.qwen_draft)), args.tokens)
    answer = ways.ours(k=POSITIONS, drafter="model")
    for kind, name in KINDS.items():
        positions = Positions()
        for _, text in prompts(kind, args.prompts):
            answer(ways.pair.chat_tokens(text))
            positions.count(ways.rounds)
        positions.report("4 bits", name)


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
