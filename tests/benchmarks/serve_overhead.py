"""What a request over HTTP costs beside `Session.reply` on the same ids, at the demo pair.

The client is a process of its own, as clients are: it writes each request on a connection that it keeps, reads to the
end of the stream, and keeps the time. Prints milliseconds of a round trip (one token) and of a longer answer, each in
turns with the session's own: N pairs, medians and quartiles.

    python tests/benchmarks/serve_overhead.py [N]
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

ASKED = [{"role": "user", "content": "Return the lines of a file."}]
TEXT = "def read_lines(path):"
K = 2


def quartiles(values):
    """`median (lower to upper)`."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def timed(work):
    """Seconds on the clock."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def client(host):
    """The other process: for each line of JSON, [path, body], a line with the seconds until its answer had ended.

    It speaks through a bare socket: what a client's own library costs is not the server's.
    """
    name, port = host.split(":")
    connection = socket.create_connection((name, int(port)), timeout=60)
    for line in sys.stdin:
        path, body = json.loads(line)
        said = json.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(said)}\r\n\r\n{said}".encode()

        def ask(request=request):
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"\r\n0\r\n\r\n"):
                answer += connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 200") and b"data: [DONE]" in answer, answer

        print(timed(ask), flush=True)


@contextmanager
def asking(url):
    """`ask(path, body)` of the other process -> seconds."""
    command = [sys.executable, __file__, "--client", url.removeprefix("http://")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(path, **body):
            process.stdin.write(json.dumps([path, {**body, "stream": True}]) + "\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield ask
        process.stdin.close()


def main(count):
    """Prints a line for each kind of request."""
    import specdec_cli
    from fakes.server import serving
    from fakes.serving import model_of
    from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions

    pair = specdec_cli.load("demo")
    base = specdec_cli.Request(k=K, sampling={"temperature": 0.0})
    desk = Scheduler(lambda name: pair, SchedulerOptions(idle_seconds=None))
    # A conversation each, as the desk keeps them: one session would read its prompt anew at every change.
    chat, text = pair.session(), pair.session()
    ids, texts = pair.message_tokens(ASKED), pair.text_tokens(TEXT)

    def reply(session, prompt, tokens, raw=False):
        request = specdec_cli.Request(k=K, max_tokens=tokens, sampling={"temperature": 0.0})
        return timed(lambda: list(session.reply(prompt, request, raw=raw)))

    with serving(model_of(pair, base, 1), desk) as (url, _), asking(url) as ask:
        ways = {
            "one token": (
                lambda: reply(chat, ids, 1),
                lambda: ask("/v1/chat/completions", messages=ASKED, max_tokens=1),
            ),
            "96 tokens": (
                lambda: reply(text, texts, 96, True),
                lambda: ask("/v1/completions", prompt=TEXT, max_tokens=96),
            ),
        }
        seconds = {name: ([], []) for name in ways}
        for turn in range(-5, count):  # the first ones warm up
            for name, both in ways.items():
                for place in (0, 1) if turn % 2 else (1, 0):
                    took = both[place]()
                    if turn >= 0:
                        seconds[name][place].append(1e3 * took)
    desk.close()
    print(f"N {count}, ms on the clock, median (quartiles)")
    for name, (own, served) in seconds.items():
        more = [b - a for a, b in zip(own, served, strict=True)]
        print(f"{name}: session {quartiles(own)}, over HTTP {quartiles(served)}, more {quartiles(more)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        client(sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
