"""Another checkout's seconds ÷ this one's: `python tests/benchmarks/checkouts.py OTHER [--pair FOLDER]`.

Each prompt is answered by both, in turns, each in a process of its own with one thread. `control` is this checkout made
5 % slower: an interval of it that holds 1 says that this machine is too busy to tell, and the exit status is 1. With
`--clock cpu` processor time is counted, which a busy machine changes less. FOLDER holds `target` and `draft`, as
inflate.py writes them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
WAYS = {"K 0": {"k": 0, "drafter": "none"}, "K 3": {"k": 3}, "auto": {"k": "auto", "drafter": "auto"},
        "K 3, T 1": {"k": 3, "temperature": 1.0, "seed": 7}}  # fmt: skip


def work(folder, tokens, slower, clock):
    """Answers {"way", "prompt"} of each line with [seconds to the last token, text]."""
    sys.path.insert(0, str(Path.cwd()))
    import specdec_cli as specdec

    pair = specdec.load(**({part: f"{folder}/{part}" for part in ("target", "draft")} if folder else {"pair": "demo"}))
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        given = {"temperature": 0.0, "raw": True, "max_tokens": tokens} | WAYS[asked["way"]]
        began = clock()
        done = list(pair.session().reply(asked["prompt"], **given))[-1]
        print(json.dumps([(clock() - began) * slower, done.text]), flush=True)


def start(checkout, args, slower=1.0):
    words = [
        sys.executable,
        __file__,
        str(checkout),
        "--work",
        str(slower),
        "--tokens",
        str(args.tokens),
        "--clock",
        args.clock,
    ]
    # Threads of a process that waits would spin beside the one that works.
    given = {"cwd": checkout, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "text": True}
    words += ["--clock", args.clock, *(["--pair", args.pair] if args.pair else [])]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **given)
    assert child.stdout.readline() == "ready\n"
    return child


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--pair")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--work", type=float)
    args = parser.parse_args()
    if args.work:
        return work(args.pair, args.tokens, args.work, CLOCKS[args.clock])
    from paired import Ratio, environment
    from texts import prompts

    texts = prompts(args.prompts, 400)
    workers = {
        "other": start(args.other.resolve(), args),
        "this": start(ROOT, args),
        "control": start(ROOT, args, 1.05),
    }
    print(environment(), flush=True)
    noticed = True
    for way in WAYS:
        took = {name: [] for name in workers}
        for i in range(args.prompts):
            names = list(workers)
            for name in names[i % 3 :] + names[: i % 3]:
                workers[name].stdin.write(json.dumps({"way": way, "prompt": texts[i]}) + "\n")
                workers[name].stdin.flush()
                took[name].append(json.loads(workers[name].stdout.readline()))
            assert len({answer[-1][-1] for answer in took.values()}) == 1, f"{way}: other words"
        seconds = {name: [answer[0] for answer in answers] for name, answers in took.items()}
        control = Ratio(seconds["this"], seconds["control"])
        noticed = noticed and control.high < 1
        print(f"{way:9} other ÷ this {Ratio(seconds['other'], seconds['this'])}   control {control}", flush=True)
    for child in workers.values():
        child.stdin.close()
    return 0 if noticed else 1


if __name__ == "__main__":
    sys.exit(main())
