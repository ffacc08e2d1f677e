"""What an answer loses while an entry of the disk cache is written: `python tests/benchmarks/disk_writer.py TARGET`.

A conversation of `--read` tokens is written as an entry when an answer to another, short prompt begins, as a server
does it; the same answer follows without. N pairs, in turns, in one process; seconds of the answer alone, median and the
95 % interval of the ratio. Beside it what the caller waits for the bytes, and how much memory the process has had.
"""

# ruff: noqa: E402 - mlx takes the BLAS that is loaded before it
import argparse
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("MLX_ENABLE_TF32", "0")
sys.path.insert(0, str(Path(__file__).parents[1]))

from specdec_cli.system import blas

BLAS = blas.load() or "its own BLAS"  # before mlx is imported

from paired import Ratio, environment

import specdec_cli as specdec
from specdec_cli.core.events import Finish
from specdec_cli.core.format import size
from specdec_cli.session.disk_cache import DiskCache
from specdec_cli.session.disk_entries import entry_files

PROMPT = "def read_lines(path):"


def answered(pair, prompt, tokens):
    """(seconds behind the first token, the tokens)."""
    events = pair.session().reply(prompt, max_tokens=tokens, k=0, temperature=0.0, ignore_eos=True)
    finish = next(event for event in events if isinstance(event, Finish))
    return finish.stats["decode_seconds"], finish.tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--read", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    pair = specdec.load(target=args.target, drafter="none")
    short = pair.text_tokens(PROMPT)
    session, long = pair.session(), (pair.text_tokens(Path(__file__).read_text("utf-8")) * args.read)[: args.read]
    list(session.reply(long, max_tokens=1, k=0))
    _, expected = answered(pair, short, args.tokens)
    seconds, waited, whole = {"quiet": [], "written": []}, [], []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        cache = DiskCache(Path(folder) / "disk", 10**11, sys.exit)
        for turn in range(args.rounds):
            for way in sorted(seconds, reverse=turn % 2 == 1):
                began = time.perf_counter()
                if way == "written":
                    cache.write("benchmark", session.slot, str(turn))
                    waited.append(time.perf_counter() - began)
                took, said = answered(pair, short, args.tokens)
                seconds[way].append(took)
                assert said == expected
                cache.finish()
                if way == "written":
                    whole.append(time.perf_counter() - began)
        nbytes = entry_files(cache.folder)[0].stat().st_size
        shutil.rmtree(cache.folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    step = 1e3 * statistics.median(seconds["quiet"]) / args.tokens
    print(f"{environment()}, {BLAS}")
    print(f"an entry of {size(nbytes)}; {args.tokens} tokens of {step:.0f} ms; N {args.rounds}")
    print(f"speed while it is written, over that without: {Ratio(seconds['quiet'], seconds['written'])}")
    print(f"the caller waits {statistics.median(waited):.2f} s; it is there after {statistics.median(whole):.1f} s")
    print(f"most memory of the process: {size(peak)}")


if __name__ == "__main__":
    main()
