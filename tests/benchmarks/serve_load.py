"""Requests that overlap: `specdec serve` beside `mlx_lm.server` on the same target, in turns, at several client counts.

In every round both servers start anew, since one process may be faster than the next throughout, and answer the same
prompts, from so many clients at once; who begins changes. Both have the same BLAS and threads, and specdec knows no
costs from before. Prints, for each count, tokens a second of both, the ratio with its 95 % interval over the rounds,
that of tokens a second of processor time, p50 and p95 of the answers' seconds and p95 of the first word's; and how many
answers of `specdec` were those that it gave to one client alone. `--mixed`: every other answer is four times as long.

    python tests/benchmarks/serve_load.py TARGET [--draft DRAFT] [--clients 1,2,4,8,16] [--rounds 5]

`--theirs PYTHON` is that of an environment with mlx-lm. `--other CHECKOUT`: another checkout of specdec answers in the
place of mlx-lm.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from paired import Ratio
from paired import environment as environment_line

SUBJECTS = (
    "reads the lines of a file", "returns the largest of three numbers", "counts the words of a text",
    "sorts a list of pairs by the second", "joins two dictionaries", "removes doubled spaces", "parses a date",
    "walks a folder and sums sizes", "finds the first repeated item", "turns seconds into hours and minutes",
    "checks brackets", "groups words by length", "reverses a linked list", "merges two sorted lists",
    "rounds to a multiple", "caches the results of a function",
)  # fmt: skip


def prompt(number):
    """A short prompt of its own for each number."""
    subject = SUBJECTS[number % len(SUBJECTS)]
    return f'def function_{number}(value):\n    """A function that {subject}, version {number}."""\n'


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def serving(command, port, path, environment):
    """The server of `command`, once it answers at `path`."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, f"{command[:3]} ended"
                time.sleep(0.2)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


async def ask(port, model, text, tokens):
    """(text, tokens, seconds, seconds to the first word) of one streamed completion."""
    began, first, said = time.perf_counter(), None, []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = {"model": model, "prompt": text, "max_tokens": tokens, "temperature": 0.0, "stream": True}
    payload = json.dumps({**body, "stream_options": {"include_usage": True}}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    writer.write(head.encode() + payload)
    used = 0
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        values = json.loads(line[6:])
        used = (values.get("usage") or {}).get("completion_tokens") or used
        if values.get("choices") and values["choices"][0].get("text"):
            first = first or time.perf_counter() - began
            said.append(values["choices"][0]["text"])
    writer.close()
    return "".join(said), used, time.perf_counter() - began, first or 0.0


async def load(port, model, prompts, lengths):
    """(seconds until the last answer ended, the answers) of all `prompts` at once."""
    began = time.perf_counter()
    answers = await asyncio.gather(*(ask(port, model, text, n) for text, n in zip(prompts, lengths, strict=True)))
    return time.perf_counter() - began, answers


def cpu_seconds(pid):
    """That a process has used so far, all threads; on a shared machine they tell more than the clock. Linux only."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


@dataclass
class Side:
    """A server, and what came of all rounds, by the number of clients."""

    name: str
    model: str
    command: list[str]
    path: str = ""
    rates: dict[int, list[float]] = field(default_factory=dict)
    cpu_rates: dict[int, list[float]] = field(default_factory=dict)
    answers: dict[int, list[tuple[str, int, float, float]]] = field(default_factory=dict)

    @contextmanager
    def serving(self, environment, state):
        """Anew, without what was learned before; with the port and the process."""
        port = free_port()
        environment = environment | {"XDG_STATE_HOME": state} | ({"PYTHONPATH": self.path} if self.path else {})
        with serving([*self.command, "--port", str(port)], port, "/health", environment) as pid:
            yield port, pid

    def answer(self, port, pid, prompts, lengths):
        """The texts of so many clients at once."""
        count, before = len(prompts), cpu_seconds(pid)
        seconds, answers = asyncio.run(load(port, self.model, prompts, lengths))
        tokens = sum(one[1] for one in answers)
        self.rates.setdefault(count, []).append(tokens / seconds)
        self.cpu_rates.setdefault(count, []).append(tokens / (cpu_seconds(pid) - before))
        self.answers.setdefault(count, []).extend(answers)
        return [text for text, *_ in answers]


def main(options):
    counts = [int(count) for count in options.clients.split(",")]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1"}
    if options.blas:
        environment["LD_PRELOAD"] = options.blas
    own = ["-m", "specdec_cli", "serve", "--target", options.target, "--parallel", str(max(counts)), "--quiet"]
    own = [sys.executable, "-P", *own, *(["--draft", options.draft] if options.draft else ["-k", "0"])]
    sides = [Side("specdec", "", own, str(Path(__file__).parents[2]))]
    if options.other:
        sides.append(Side("the other", "", own, options.other))
    else:
        sides.append(
            Side("mlx_lm", "default_model", [options.theirs, "-m", "mlx_lm", "server", "--model", options.target])
        )
    number, alike = 0, {count: [0, 0] for count in counts}
    for turn in range(options.rounds):
        with tempfile.TemporaryDirectory() as state, ExitStack() as stack:
            places = [stack.enter_context(side.serving(environment, f"{state}/{side.name}")) for side in sides]
            both = list(zip(sides, places, strict=True))[:: 1 if turn % 2 else -1]
            for side, (port, _) in both:  # compiles, and learns what passes cost
                asyncio.run(load(port, side.model, [prompt(1000 + i) for i in range(max(counts))], [8] * max(counts)))
                asyncio.run(load(port, side.model, [prompt(2000)], [32]))
            for count in counts:
                prompts = [prompt(number + i) for i in range(count)]
                lengths = [options.tokens * (4 if options.mixed and i % 2 else 1) for i in range(count)]
                number += count
                for side, (port, pid) in both:
                    said = side.answer(port, pid, prompts, lengths)
                    if side is sides[0] and not turn:
                        alone = [asyncio.run(ask(port, "", *one))[0] for one in zip(prompts, lengths, strict=True)]
                        same = sum(text == other for text, other in zip(said, alone, strict=True))
                        alike[count] = [same, count]
    names = " ".join(side.name for side in sides)
    print(f"{environment_line()}; {options.tokens} tokens an answer, {options.rounds} rounds; {names}")
    for count in counts:
        ratio, cpu = (Ratio(*(getattr(side, of)[count] for side in sides)) for of in ("rates", "cpu_rates"))
        means = " ".join(f"{statistics.fmean(side.rates[count]):.1f}" for side in sides)
        shown = [
            " ".join(f"{quantile([one[at] for one in side.answers[count]], share):.2f}" for side in sides)
            for at, share in ((2, 0.5), (2, 0.95), (3, 0.95))
        ]
        print(f"{count:3} clients: {means} tokens/s, ratio {ratio}, a CPU second {cpu}; p50 and p95 of an answer")
        print(f"    {shown[0]} and {shown[1]} s, of the first word {shown[2]} s; as alone: {alike[count]}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("--draft")
    parser.add_argument("--theirs", default=sys.executable, help="Python of an environment with mlx-lm")
    parser.add_argument("--other", help="another checkout of specdec")
    parser.add_argument("--clients", default="1,2,4,8,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blas", help="a BLAS library for both")
    parser.add_argument("--mixed", action="store_true")
    main(parser.parse_args())
