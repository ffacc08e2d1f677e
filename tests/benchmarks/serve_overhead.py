"""What a request over HTTP costs beside `Session.reply` on the same ids, at the demo pair.

Prints milliseconds of a round trip (one token) and tokens per second of a longer answer, streamed, each in turns with
the session's own: N pairs, median and quartiles of the differences.

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
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(count):
    """Prints the two tables' lines."""
    pair = specdec_cli.load("demo")
    base = specdec_cli.Request(k=K, sampling={"temperature": 0.0})
    desk = make_desk(lambda: pair, idle_seconds=None)
    session, ids = pair.session(), pair.message_tokens(ASKED)

    def reply(prompt, tokens, raw=False):
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
        trips, longer = [], []
        for _ in range(count):
            own = timed(lambda: reply(ids, 1))
            trips.append(1e3 * (timed(lambda: ask("/v1/chat/completions", messages=ASKED, max_tokens=1)) - own))
            own = timed(lambda: reply(texts, 96, True))
            longer.append(100 * (timed(lambda: ask("/v1/completions", prompt=TEXT, max_tokens=96)) / own - 1))
    desk.close()
    print(f"round trip of one token over Session.reply: {quartiles(trips)} ms, N {count}")
    print(f"time of 96 streamed tokens over Session.reply: {quartiles(longer)} %, N {count}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
