"""What a request over HTTP costs beside `Session.reply` on the same ids, at the demo pair.

Prints milliseconds of a round trip (one token) and of a longer answer, streamed, each in turns with the session's own:
N pairs, medians and quartiles, by the clock and by computing, which other programs disturb less.

    python tests/benchmarks/serve_overhead.py [N]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

import specdec_cli
from fakes.server import serving
from specdec_cli.serve.desk import make_desk
from specdec_cli.serve.model import Model

ASKED = [{"role": "user", "content": "Return the lines of a file."}]
TEXT = "def read_lines(path):"
K = 2


def quartiles(values):
    """`median (lower to upper)`."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def timed(work):
    """(seconds on the clock, seconds of computing in this process: client, server and models)."""
    began = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def told(name, own, served):
    """The lines about one kind of request."""
    for place, clock in enumerate(("on the clock", "of computing")):
        mine, theirs = ([1e3 * one[place] for one in each] for each in (own, served))
        more = [b - a for a, b in zip(mine, theirs, strict=True)]
        print(f"{name}, ms {clock}: session {quartiles(mine)}, over HTTP {quartiles(theirs)}, more {quartiles(more)}")


def main(count):
    """Prints a line for each kind of request and clock."""
    pair = specdec_cli.load("demo")
    base = specdec_cli.Request(k=K, sampling={"temperature": 0.0})
    desk = make_desk(lambda: pair, idle_seconds=None)
    # A conversation each, as the desk keeps them: one session would read its prompt anew at every change.
    chat, text, ids = pair.session(), pair.session(), pair.message_tokens(ASKED)

    def reply(prompt, tokens, raw=False):
        session = text if raw else chat
        request = specdec_cli.Request(k=K, max_tokens=tokens, sampling={"temperature": 0.0})
        return list(session.reply(prompt, request, raw=raw))

    with serving(Model.of(pair, base, 1), desk) as (url, _), httpx.Client(base_url=url, timeout=60) as client:

        def ask(path, **body):
            with client.stream("POST", path, json={**body, "stream": True}) as answer:
                return [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]

        texts = pair.text_tokens(TEXT)
        for _ in range(5):
            reply(ids, 1), ask("/v1/chat/completions", messages=ASKED, max_tokens=1)
            reply(texts, 96, True), ask("/v1/completions", prompt=TEXT, max_tokens=96)
        ways = {
            "one token": (lambda: reply(ids, 1), lambda: ask("/v1/chat/completions", messages=ASKED, max_tokens=1)),
            "96 tokens": (lambda: reply(texts, 96, True), lambda: ask("/v1/completions", prompt=TEXT, max_tokens=96)),
        }
        seconds = {name: ([], []) for name in ways}
        for turn in range(count):
            for name, both in ways.items():
                for place in (0, 1) if turn % 2 else (1, 0):
                    seconds[name][place].append(timed(both[place]))
    desk.close()
    print(f"N {count}, median (quartiles)")
    for name, (own, served) in seconds.items():
        told(name, own, served)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
