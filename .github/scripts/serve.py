"""serve.py SPECDEC FOLDER: one request for each protocol; a second server that reads the conversation from FOLDER."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

LONG = "def read_lines(path):\n    with open(path) as handle:\n        return handle.readlines()\n" * 6
TALK = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 8, "temperature": 0}
ASKED = {
    "/v1/chat/completions": TALK,
    "/v1/messages": TALK,
    "/v1/responses": {"input": "def f(", "max_output_tokens": 8},
    "/v1/completions": {"prompt": "def f(", "max_tokens": 8},
    "/tokenize": {"content": "def f("},
}


@contextmanager
def server(specdec: str, folder: str) -> Iterator[str]:
    """The address of a server that keeps its conversations in `folder`."""
    words = [specdec, "serve", "-p", "demo", "--port", "0", "--no-panel", "--cache-dir", folder]
    child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        yield next(found[0] for line in child.stderr or () if (found := re.search(r"http://127[\d.:]+", line)))
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=120)


def answer(address: str, path: str, body: dict[str, object]) -> dict:
    request = Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request, timeout=120) as reply:
        return json.load(reply)


def main(specdec: str, folder: str) -> str | None:
    with server(specdec, folder) as address:
        for path, body in ASKED.items():
            print(path, len(json.dumps(answer(address, path, body))), "bytes")
        first = answer(address, "/v1/chat/completions", TALK)
    with server(specdec, folder) as address:
        second = answer(address, "/v1/chat/completions", TALK)
    texts = [reply["choices"][0]["message"]["content"] for reply in (first, second)]
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    print("after a restart", cached, "of", second["usage"]["prompt_tokens"], "tokens were kept")
    if texts[0] != texts[1] or not cached:
        return f"error: before the restart {texts[0]!r}, after it {texts[1]!r}, {cached} tokens kept\nhint: --cache-dir"
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
