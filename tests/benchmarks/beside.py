"""What one client's long request costs another's short one: seconds of the short one, alone and beside it.

`body`: a chat of two letters beside a body of 8 MB, at the demo pair with its own context and with one of 262,144
tokens. `prefill`: an answer of 10 tokens beside a prompt of 2,000, at random weights of some size. Each of N pairs is
alone, alone again (the control) and beside, in turns; medians and quartiles. The long requests come from a process of
their own.

    python tests/benchmarks/beside.py body|prefill [N]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx

BODY_BYTES, BODIES = 8_000_000, 3
TEXT = "def read_lines(path): return [line.rstrip() for line in open(path)] # 12345\n"
CHAT = "/v1/chat/completions"


def quartiles(values):
    """`median (lower to upper)`."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} s ({low:.3f} to {high:.3f})"


def asked(text, tokens):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0}


def timed(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def report(name, alone, again, beside):
    ratios = [two / one for one, two in zip(alone, beside, strict=True)]
    print(f"{name}, {len(alone)} pairs")
    print(f"  alone {quartiles(alone)}; again {quartiles(again)}; beside {quartiles(beside)}")
    print(f"  beside / alone, median of the pairs: {statistics.median(ratios):.2f}", flush=True)


def poster(url):
    """The other process: for each line a body of 8 MB, made before; prints status and seconds."""
    lines = (f"{line * 7919 % 104_729} {TEXT}" for line in range(BODY_BYTES // len(TEXT) + 1))
    body = json.dumps(asked("".join(lines)[:BODY_BYTES], 4)).encode()
    for _ in sys.stdin:
        began = time.perf_counter()
        said = httpx.post(url + CHAT, content=body, headers={"Content-Type": "application/json"}, timeout=600)
        print(said.status_code, time.perf_counter() - began, said.text[:120], flush=True)


@contextmanager
def posting(url):
    command = [sys.executable, __file__, "post", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        yield process
        process.stdin.close()


def body(pairs):
    import specdec_cli
    from fakes.server import serving
    from specdec_cli.serve.model import Model
    from specdec_cli.serve.scheduler import Scheduler, SchedulerOptions

    pair = specdec_cli.load("demo")
    model = Model.of(pair, specdec_cli.Request(k=2), 0)
    desk = Scheduler(lambda: pair, SchedulerOptions(idle_seconds=None))
    for limit in (model.context_limit, 262_144):
        with serving(replace(model, context_limit=limit), desk) as (url, _), posting(url) as long:
            said = []

            def chat(url=url):
                assert httpx.post(url + CHAT, json=asked("Hi", 4), timeout=600).status_code == 200

            chat()
            alone, again, beside = [], [], []
            for _ in range(pairs):
                alone.append(timed(chat))
                again.append(timed(chat))
                long.stdin.write("go\n" * BODIES)
                said.append(long.stdout.readline().split(maxsplit=2))
                time.sleep(0.03)
                beside.append(timed(chat))  # beside the second and the third
                said += [long.stdout.readline().split(maxsplit=2) for _ in range(BODIES - 1)]
            report(f"a chat of two letters, 8 MB beside it, context {limit}", alone, again, beside)
            print(f"  the body: {said[0][0]} after {quartiles([float(one[1]) for one in said])}: {said[0][2].strip()}")
    desk.close()


def prefill(pairs):
    from fakes.chat import networks, tokenizer_in
    from fakes.serving import Client, desk_of, ids, job
    from specdec_cli.engine.model import CachedModel
    from specdec_cli.events import Reading
    from specdec_cli.pairs.pair import Pair
    from specdec_cli.session.session import LoadedPair
    from specdec_cli.session.slot import Slot

    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "head_dim": 64}
    target = CachedModel(networks("qwen3", **sizes, num_attention_heads=4, num_key_value_heads=2)[0], "t")
    with tempfile.TemporaryDirectory() as folder:
        pair = LoadedPair(Pair("random", "t", None), ("t", None), tokenizer_in(Path(folder)), Slot(target))
        desk = desk_of(pair)
        short = iter(job(ids(20, number), 10, k=0) for number in range(10_000))

        def answer():
            return timed(lambda: Client(desk, next(short)).wait())

        answer()
        alone, again, beside, chunk = [], [], [], []
        for number in range(pairs):
            alone.append(answer())
            again.append(answer())
            begun, ends = threading.Event(), []

            def heard(client, event, begun=begun, ends=ends):
                if isinstance(event, Reading):
                    ends.append(time.perf_counter())
                    begun.set()

            long = Client(desk, job(ids(2000, 100 + number), 2, k=0), heard)
            begun.wait()
            beside.append(answer())
            long.ticket.cancel()
            long.wait()
            chunk.append(ends[1] - ends[0])
        report("10 tokens, a prefill of 2,000 beside them", alone, again, beside)
        print(f"  the chunk that ran when they were asked for: {quartiles(chunk)}")
        wanted = [3 * one + whole for one, whole in zip(alone, chunk, strict=True)]
        print(
            f"  3 x alone and that chunk: {quartiles(wanted)}; beside is less in "
            f"{sum(took <= most for took, most in zip(beside, wanted, strict=True))} of {pairs}"
        )
        desk.close()


if __name__ == "__main__":
    if sys.argv[1] == "post":
        poster(sys.argv[2])
    else:
        {"body": body, "prefill": prefill}[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 12)
