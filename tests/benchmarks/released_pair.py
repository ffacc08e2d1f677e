"""An ordinary released pair, `python tests/benchmarks/released_pair.py`: what drafting gains, in whole answers.

Qwen2.5-Coder-1.5B-Instruct with its 0.5B, dequantised from Q4_K_M to float32 (`tests/real/released.py`; 1.4 GB once).
Prompts are the shortest bundled ones of each kind, in the chat template. Each is answered in every way before the
next, in an order that turns, in one process; the prompt is the unit. Seconds are those of the whole answer, reading
the prompt included. Greedy answers are compared token for token. `--parts acceptance` counts acceptance by position,
which does not depend on the machine, for these weights and for those that mlx-lm's 4-bit conversion leaves, and what
it predicts at published costs of rows.
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

from specdec_cli import blas

BLAS = blas.load() or "its own BLAS"  # before mlx is imported

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler
from paired import Ratio, environment, interleaved

import specdec_cli as specdec
from fakes.chips import CURVES
from fakes.machine import Machine
from real import released
from specdec_cli import gain
from specdec_cli.bench.prompts import load

KINDS = {"code": "code", "prose": "prose", "chat": "questions", "edit": "edits"}
WAYS = ("mlx-lm K = 3", "K = 2", "K = 3", "auto, model alone", "defaults")
POSITIONS = 4


def prompts(kind, count):
    """The shortest of that kind, by name."""
    shortest = sorted(load([kind]), key=lambda prompt: (len(prompt.text), prompt.name))[:count]
    return [(prompt.name, prompt.text) for prompt in shortest]


class Ways:
    """Every way to answer, with the same two networks."""

    def __init__(self, target, draft, tokens):
        self.pair, self.tokens, self.said = specdec.load(target=str(target), draft=str(draft)), tokens, {}
        slot = self.pair.session().slot
        self.networks = [one.network.module for one in (slot.target, slot.draft)]

    def all(self, temperature):
        return {
            "plain": self.theirs(None, temperature),
            "mlx-lm K = 3": self.theirs(3, temperature),
            "K = 2": self.ours(temperature, k=2, drafter="model"),
            "K = 3": self.ours(temperature, k=3, drafter="model"),
            "auto, model alone": self.ours(temperature, k="auto", drafter="model"),
            "defaults": self.ours(temperature),
        }

    def theirs(self, k, temperature):
        """mlx-lm's own loops."""

        def answer(text):
            mx.random.seed(0)
            ids = mx.array(self.pair.session().chat_tokens(text))
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
            ids = session.chat_tokens(text)
            settings = {"temperature": temperature, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0, "seed": None}
            began = time.perf_counter()
            events = list(session.reply(ids, max_tokens=self.tokens, **settings, **options))
            said = [token for event in events if event.event == "round" for token in event.round.emitted]
            return self.took(began, text, said, temperature)

        return answer

    def took(self, began, text, said, temperature):
        """Seconds a token; greedy answers are compared."""
        seconds = time.perf_counter() - began
        if not temperature and self.said.setdefault(text, said) != said:
            print(f"  answers differ after {text[:40]!r}: a near-tie, or a fault", flush=True)
        return seconds / len(said)


def speed(args):
    """Speed over mlx-lm's plain decoding, whole answers."""
    ways = Ways(released.qwen(), released.qwen_draft(), args.tokens)
    print("| text | temperature | " + " | ".join(WAYS) + " |\n|" + "---|" * (len(WAYS) + 2))
    for way in ways.all(0.0).values():
        way("Say hello.")  # warm-up, discarded
    for temperature, count in ((0.0, args.prompts), (1.0, args.sampled)):
        everything = {way: [] for way in ("plain", *WAYS)}
        for kind, name in KINDS.items():
            units = [text for _, text in prompts(kind, count)]
            found = interleaved(ways.all(temperature), units)
            row(name, temperature, found)
            for way, seconds in found.items():
                everything[way] += seconds
        row("all", temperature, everything)


def row(name, temperature, found):
    cells = [str(Ratio(found["plain"], found[way])) if len(found["plain"]) > 1 else "" for way in WAYS]
    print(f"| {name} ({len(found['plain'])}) | {temperature:g} | " + " | ".join(cells) + " |", flush=True)


def acceptance(args):
    """Accepted by position, and what that predicts at published costs of rows."""
    for weights, change in (("float32", lambda path: path), ("4 bits", released.through_four_bits)):
        ways = Ways(*(change(made()) for made in (released.qwen, released.qwen_draft)), args.tokens)
        for kind, name in KINDS.items():
            judged = [[0, 0] for _ in range(POSITIONS)]
            for _, text in prompts(kind, args.prompts):
                session, k = ways.pair.session(), POSITIONS
                options = {"temperature": 0.0, "repetition_penalty": 1.0, "drafter": "model", "k": k}
                for event in session.reply(session.chat_tokens(text), max_tokens=args.tokens, **options):
                    if event.event == "round":
                        for place in range(min(event.round.accepted + 1, len(event.round.draft))):
                            judged[place][1] += 1
                            judged[place][0] += place < event.round.accepted
            rates = [yes / every if every else 0.0 for yes, every in judged]
            shown = ", ".join(f"{rate:.2f} ({every})" for rate, (_, every) in zip(rates, judged, strict=True))
            print(f"{weights}, {name}: accepted where the tokens before were, by position (judged): {shown}")
            print(f"   predicted: {'; '.join(predicted(rates))}", flush=True)


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
    parser.add_argument("--prompts", type=int, default=3, help="of each kind")
    parser.add_argument("--sampled", type=int, default=1, help="of each kind, at temperature 1")
    parser.add_argument("--tokens", type=int, default=40)
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
