"""Requests that overlap: `specdec serve` beside `mlx_lm.server` on the same target, in turns, at several client counts.

In every round each server answers the same prompts, new ones each time, from so many clients at once; who begins
changes. Both have the same BLAS and threads. Prints, for each count, tokens a second of both, the ratio with its 95 %
interval over the rounds, p50 and p95 of the answers' seconds and p95 of the first word's; and whether the answers of
`specdec` are those that it gives to one client alone. `--mixed`: every other answer is four times as long.

    python tests/benchmarks/serve_load.py TARGET [--draft DRAFT] [--theirs PYTHON] [--clients 1,2,4,8,16] [--rounds 5]
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
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

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


def interval(logs):
    """Geometric mean and 95 % interval of ratios by Student's t."""
    t = {1: 12.7, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}[max(len(logs) - 1, 1)]
    mean = statistics.fmean(logs)
    half = t * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


def quantile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def main(options):
    counts = [int(count) for count in options.clients.split(",")]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1"}
    if options.blas:
        environment["LD_PRELOAD"] = options.blas
    ours, theirs = free_port(), free_port()
    specdec = [sys.executable, "-m", "specdec_cli", "serve", "--target", options.target, "--port", str(ours)]
    specdec += ["--parallel", str(max(counts)), "--quiet"] + (
        ["--draft", options.draft] if options.draft else ["-k", "0"]
    )
    mlx_lm = [options.theirs, "-m", "mlx_lm", "server", "--model", options.target, "--port", str(theirs)]
    with (
        serving(specdec, ours, "/health", environment) as ours_pid,
        serving(mlx_lm, theirs, "/health", environment) as theirs_pid,
    ):
        sides, number = {"specdec": (ours, ""), "mlx_lm": (theirs, "default_model")}, 0
        pids = {"specdec": ours_pid, "mlx_lm": theirs_pid}
        for side in sides.values():  # compiles, and learns what passes cost
            asyncio.run(load(*side, [prompt(1000 + i) for i in range(max(counts))], [8] * max(counts)))
            asyncio.run(load(*side, [prompt(2000)], [32]))
        print("clients  specdec   mlx_lm tok/s  ratio                    p50 s          p95 s          first word p95")
        for count in counts:
            rates, taken, firsts, used, alike = {}, {}, {}, {}, []
            for turn in range(options.rounds):
                prompts = [prompt(number + i) for i in range(count)]
                lengths = [options.tokens * (4 if options.mixed and i % 2 else 1) for i in range(count)]
                number += count
                for name in sorted(sides, reverse=turn % 2 == 0):
                    before = cpu_seconds(pids[name])
                    seconds, answers = asyncio.run(load(*sides[name], prompts, lengths))
                    tokens = sum(one[1] for one in answers)
                    rates.setdefault(name, []).append(tokens / seconds)
                    used.setdefault(name, []).append(tokens / (cpu_seconds(pids[name]) - before))
                    taken.setdefault(name, []).extend(one[2] for one in answers)
                    firsts.setdefault(name, []).extend(one[3] for one in answers)
                    if name == "specdec" and turn == 0:
                        alone = [asyncio.run(ask(*sides[name], *one))[0] for one in zip(prompts, lengths, strict=True)]
                        alike = [one[0] == text for one, text in zip(answers, alone, strict=True)]
            ratio, cpu = (
                interval([math.log(a / b) for a, b in zip(values["specdec"], values["mlx_lm"], strict=True)])
                for values in (rates, used)
            )
            means = [statistics.fmean(rates[name]) for name in ("specdec", "mlx_lm")]
            shown = [
                " ".join(f"{quantile(values[name], share):6.2f}" for name in ("specdec", "mlx_lm"))
                for values, share in ((taken, 0.5), (taken, 0.95), (firsts, 0.95))
            ]
            print(f"{count:7} {means[0]:8.1f} {means[1]:8.1f}        {ratio:25} {'  '.join(shown)}", flush=True)
            print(f"        tokens a CPU second {cpu}; as alone: {sum(alike)} of {len(alike)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("--draft")
    parser.add_argument("--theirs", default=sys.executable, help="Python of an environment with mlx-lm")
    parser.add_argument("--clients", default="1,2,4,8,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blas", help="a BLAS library for both")
    parser.add_argument("--mixed", action="store_true")
    main(parser.parse_args())
