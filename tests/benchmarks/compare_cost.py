"""What it costs to compare every byte: `python tests/benchmarks/compare_cost.py [--megabytes 512] [--repeats 7]`.

Prints seconds a gigabyte for the two ways: bytes digested while they arrive, as every pull does (the same download from
a Hub on loopback, with the digest and with one that does nothing, in turns), and bytes read again, as `--verify` does.
The digest's own processor seconds stand beside them: other work on the machine does not change those.
A loopback is faster than any line, so the first figure is the most a pull can lose; on a line slower than the digest
the waiting for the next bytes hides it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.hub_server import HubServer

NAME = "org/big"
WEIGHTS = "model.safetensors"


class Nothing:
    """A digest that reads nothing, and comes to what was expected."""

    def __init__(self, expected: str) -> None:
        self._expected = expected

    def update(self, data: bytes) -> None:
        pass

    def hexdigest(self) -> str:
        return self._expected


def pull_seconds(expected: str, comparing: bool) -> float:
    """Seconds of one pull into an empty cache."""
    from specdec_cli import hub
    from specdec_cli.hub import comparing as module

    real = module.hashlib
    if not comparing:
        module.hashlib = type("Hashlib", (), {"sha256": lambda: Nothing(expected), "sha1": real.sha1})
    try:
        snapshot = hub.resolve(NAME)
        began = time.perf_counter()
        hub.fetch(snapshot)
        seconds = time.perf_counter() - began
    finally:
        module.hashlib = real
    hub.remove(hub.removal(NAME))
    return seconds


def verify_seconds() -> float:
    from specdec_cli import hub

    snapshot = hub.resolve(NAME)
    hub.fetch(snapshot)
    began = time.perf_counter()
    assert hub.verify(snapshot) == []
    seconds = time.perf_counter() - began
    hub.remove(hub.removal(NAME))
    return seconds


def digest_processor_seconds(data: bytes) -> float:
    """Processor seconds of sha256 over all of `data`, in the pieces a download comes in."""
    digest, began = hashlib.sha256(), time.process_time()
    for at in range(0, len(data), 1 << 20):
        digest.update(data[at : at + (1 << 20)])
    return time.process_time() - began


def told(label: str, seconds: list[float], gigabytes: float) -> str:
    values = sorted(value / gigabytes for value in seconds)
    spread = f"{values[0]:.2f} to {values[-1]:.2f}"
    return f"{label:34} {statistics.median(values):6.2f} s a gigabyte   (N {len(values)}, {spread})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    data = Random(0).randbytes(1 << 20) * options.megabytes
    gigabytes, expected = len(data) / 1e9, hashlib.sha256(data).hexdigest()
    with HubServer() as server, tempfile.TemporaryDirectory() as home:
        here = {"HF_ENDPOINT": server.url, "HF_HOME": home, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*"}
        os.environ.update(here)
        server.commit(NAME, {"config.json": b"{}", "tokenizer.json": b"{}", WEIGHTS: data})
        server.repos[NAME][server.refs[NAME, "main"]][WEIGHTS] = Known(data, expected)
        pull_seconds(expected, True)  # the first one warms up
        compared, plain, again = [], [], []
        for _ in range(options.repeats):
            compared.append(pull_seconds(expected, True))
            plain.append(pull_seconds(expected, False))
            again.append(verify_seconds())
    alone = [digest_processor_seconds(data) for _ in range(options.repeats)]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(
        f"{gigabytes:.2f} GB from a Hub on loopback; {machine}, load {os.getloadavg()[0]:.1f}, sha256 through hashlib"
    )
    print(told("pull, comparing", compared, gigabytes))
    print(told("pull, not comparing", plain, gigabytes))
    print(told("cost while arriving (paired)", [a - b for a, b in zip(compared, plain, strict=True)], gigabytes))
    print(told("sha256 alone, processor seconds", alone, gigabytes))
    print(told("pull --verify, reading again", again, gigabytes))


class Known:
    """A big file whose digest is computed once, so that the server's own hashing is not measured."""

    def __init__(self, data: bytes, sha256: str) -> None:
        self.path, self.data, self.is_big, self.sha256, self.etag = WEIGHTS, data, True, sha256, sha256
        self.git_sha1 = "0" * 40


if __name__ == "__main__":
    main()
