"""A trained head against plain decoding and mlx-vlm's MTP loop: `python tests/benchmarks/heads.py --target FOLDER`.

FOLDER is a target with its own MTP head, as `inflate_hybrid.py --out FOLDER` writes it; without it the demo hybrid
answers. Every prompt is answered in every way before the next one, in an order that turns; the prompt is the unit.
Speeds are tokens after the first by their seconds, or with `--whole` all tokens by the seconds of the whole answer, the
reading of the prompt included; no token ends an answer. Greedy answers must be equal token for token; where float32
decides otherwise, it is said. `--peer PYTHON` is an interpreter that has mlx-vlm (`tests/tools/answer_mtp.py`): its
loop runs beside on the same weights, and its K is the most it drafts. On a CPU preload a real BLAS.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx
from mlx_lm.generate import generate_step
from paired import Ratio, environment, interleaved
from texts import KINDS, of_kind

from specdec_cli.engine.decode import decode, rounds_of
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.hub import locate
from specdec_cli.kinds import drafting
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.drafting import DraftController
from specdec_cli.session.load import load
from specdec_cli.session.session import read_prompt

PEER = Path(__file__).parents[1] / "tools" / "answer_mtp.py"
KS = (1, 2, 3, 4)


class Ways:
    """The ways to answer a prompt in seconds per token; `said` holds what the first of them said."""

    def __init__(self, pair, tokens, whole):
        """`whole`: of an answer all seconds count, not only those after its first token."""
        self.whole = whole
        self.slot, self.tokens, self.clock = pair.first, tokens, time.perf_counter
        self.head_kind = pair.head_kind
        self.controller = DraftController(self.slot.target, None, head=self.slot.head)
        self.said, self.rounds, self.differ = {}, {}, []

    def ours(self, drafter, k, name):
        def answer(prompt):
            target = self.slot.target
            self.slot.forget()
            meant = drafting(drafter, k, True, self.head_kind)
            began, context, rule = self.clock(), list(prompt), greedy(target.vocab_size)
            chosen, length = self.controller.begin(meant.kind, meant.k, rule, context, self.tokens)
            reading = read_prompt(target, chosen, context, self.clock, lambda: False)
            while True:
                try:
                    next(reading)
                except StopIteration as end:
                    _, seconds = end.value
                    break
            self.controller.prompt_was_read(seconds)
            steps = rounds_of(decode(target, chosen, rule, length, context, self.tokens, frozenset(), self.clock))
            first, at = next(steps), self.clock()
            self.rounds.setdefault(name, []).extend([first, *steps])
            return self.took(self.clock() - began, at - began, prompt, context[len(prompt) :], name)

        return answer

    def mlx_lm(self, prompt):
        began = self.clock()
        steps = generate_step(mx.array(prompt), self.slot.target.network.module, max_tokens=self.tokens)
        first, at = int(next(steps)[0]), self.clock()
        said = [first, *(int(token) for token, _ in steps)]
        return self.took(self.clock() - began, at - began, prompt, said, "mlx-lm")

    def peer(self, process, k):
        def answer(prompt):
            asked = {"prompt": list(prompt), "k": k, "tokens": self.tokens}
            print(json.dumps(asked), file=process.stdin, flush=True)
            found = json.loads(process.stdout.readline())
            return self.took(found["seconds"], found["first"], prompt, found["tokens"], f"mlx-vlm {k}")

        return answer

    def took(self, seconds, first, prompt, said, name):
        """Seconds a token of an answer of so many, whose first token took `first` of them."""
        known = self.said.setdefault(tuple(prompt), said)
        if known[: len(said)] != said[: len(known)]:
            at = next(i for i, (a, b) in enumerate(zip(known, said, strict=False)) if a != b)
            self.differ.append(f"{name} at token {at} of {len(said)}")
        return seconds / len(said) if self.whole else (seconds - first) / (len(said) - 1)


def report(ways, found, ks):
    """Ratios of speed, and what was drafted and accepted."""
    print("                        over mlx-lm's plain loop   over mlx-vlm's, same K     tokens a pass, accepted")
    for name in found:
        if name == "mlx-lm":
            continue
        k = name.rpartition(" ")[2]
        peer = f"mlx-vlm {k}"
        beside = Ratio(found[peer], found[name]) if peer in found and peer != name else ""
        print(f"{name:>22}  {Ratio(found['mlx-lm'], found[name])!s:25}  {beside!s:25}", end="")
        if rounds := ways.rounds.get(name):
            drafted = sum(len(round.draft) for round in rounds)
            accepted = sum(round.accepted for round in rounds)
            emitted = sum(len(round.emitted) for round in rounds)
            share = f"{accepted / drafted:.0%} of {drafted}" if drafted else "nothing drafted"
            print(f"  {emitted / len(rounds):.2f}, {share}", end="")
        print(flush=True)
    best = min((f"mtp {k}" for k in ks), key=lambda name: sum(found[name]))
    print(f"auto over the best fixed K ({best}): {Ratio(found[best], found['mtp auto'])}")
    if "mlx-vlm 0" in found:
        peers = [f"mlx-vlm {k}" for k in (0, *ks)]
        best = min(peers, key=lambda name: sum(found[name]))
        print(f"auto over mlx-vlm's best ({best}): {Ratio(found[best], found['mtp auto'])}")
    print(f"answers that differ: {'; '.join(ways.differ) or 'none'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, metavar="FOLDER")
    parser.add_argument("--peer", type=Path, metavar="PYTHON", help="an interpreter that has mlx-vlm")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--kind", choices=KINDS, default="code")
    parser.add_argument("--whole", action="store_true", help="count the reading of the prompt too")
    parser.add_argument("--ks", type=int, nargs="+", choices=KS, default=list(KS))
    args = parser.parse_args()
    source = str(args.target) if args.target else "specdec:demo/hybrid"
    pair = load(Pair("hybrid", source, None), drafter="mtp")
    prompts = of_kind(args.kind, args.prompts, pair.tokenizer)
    ways = Ways(pair, args.tokens, args.whole)
    named = {"mlx-lm": ways.mlx_lm, "plain 0": ways.ours("none", 0, "plain 0")}
    named |= {f"mtp {k}": ways.ours("model", k, f"mtp {k}") for k in args.ks}
    for name, drafter in (("mtp auto", "model"), ("ngram auto", "ngram")):
        named[name] = ways.ours(drafter, "auto", name)
    peer = None
    if args.peer:
        folder = args.target or locate(source)
        peer = subprocess.Popen([args.peer, PEER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        named |= {f"mlx-vlm {k}": ways.peer(peer, k) for k in (0, *args.ks)}
    print(environment())
    sizes = [part / 1e6 for part in (pair.first.target.weight_bytes, pair.first.head.step_bytes)]
    print(f"{sizes[0]:.0f} MB, and {sizes[1]:.0f} for a step of the head; float32, greedy; ", end="")
    print(f"{args.prompts} prompts ({args.kind}), {args.tokens} tokens; median [95 % t-interval of the mean log ratio]")
    for name, way in named.items():  # warm-up, discarded
        began = time.perf_counter()
        way(prompts[0][:16])
        print(f"  {name} warmed in {time.perf_counter() - began:.1f} s", file=sys.stderr)
    ways.rounds.clear()
    report(ways, interleaved(named, prompts), args.ks)
    if peer:
        peer.stdin.close()
        peer.wait()


if __name__ == "__main__":
    main()
