"""Does adaptive K keep up with a fixed one while other programs come and go? `python tests/benchmarks/disturbed.py`

Each prompt is answered with `-k auto` and with the fixed K, each in turns of a few rounds with plain decoding, so that
every figure is paired (`turns`); auto ÷ fixed is the ratio of the two. `--load N` programs compute for a second or
two and rest for as long. Every reply is a session of its own that starts from what the ones before wrote down.
"""

import argparse
import multiprocessing
import os

os.environ.setdefault("MLX_ENABLE_TF32", "0")

from paired import Ratio, environment
from texts import of_kind
from turns import Paired
from verdict import busy

from specdec_cli.pairs.catalog import registry
from specdec_cli.session.load import load


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--load", type=int, default=2)
    parser.add_argument("--k", type=int, default=3)
    args = parser.parse_args()
    pair = load(registry().find("demo"))
    print(environment(), f"{args.tokens} tokens, temperature 0, own load {args.load}")
    kinds = [of_kind(kind, (args.prompts + 1) // 2, pair.tokenizer) for kind in ("code", "prose")]
    prompts = [prompt for two in zip(*kinds, strict=True) for prompt in two][: args.prompts]
    workers = [multiprocessing.Process(target=busy, args=(seed,), daemon=True) for seed in range(args.load)]
    for worker in workers:
        worker.start()
    found = {"auto": [], args.k: []}
    try:
        for number, prompt in enumerate(prompts):
            for k in list(found)[:: 1 if number % 2 else -1]:
                found[k].append(Paired(pair, prompt, args.tokens, k, "model"))
            auto, fixed = found["auto"][-1], found[args.k][-1]
            rounds = auto.stats["rounds"], fixed.stats["rounds"]
            print(
                f"auto {auto.truth:.2f}, K {args.k} {fixed.truth:.2f}, rounds {rounds[0]} and {rounds[1]}", flush=True
            )
    finally:
        for worker in workers:
            worker.terminate()
    truths = {k: [one.truth for one in replies] for k, replies in found.items()}
    for k, ratios in truths.items():
        print(f"K {k} over plain: {Ratio(ratios, [1.0] * len(ratios))}")
    print(f"auto over K {args.k}: {Ratio(truths['auto'], truths[args.k])}")
    print("load at the end", os.getloadavg()[0])


if __name__ == "__main__":
    main()
