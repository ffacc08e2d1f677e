"""Never slower: specdec against mlx-lm and against itself, `python tests/benchmarks/speed.py --pair FOLDER`.

FOLDER holds `target` and `draft` as `inflate.py --out FOLDER` writes them; without it the demo pair decodes. Every
prompt is answered in every way before the next one, in an order that turns, in one process; the prompt is the unit.
Seconds are those of the whole answer: both models' reading of the prompt and every token. Greedy answers must be equal
token for token, or the run stops. On a CPU preload a real BLAS. `--clock cpu` counts processor time, which a machine
that is busy with other things changes less.
"""

import argparse
import os
import sys
import time
from itertools import cycle, islice
from pathlib import Path

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler
from paired import Ratio, environment, interleaved
from texts import HELD_OUT, KINDS, library_text, of_kind

from specdec_cli.core.events import Round
from specdec_cli.core.kinds import drafting
from specdec_cli.engine.decode import decode
from specdec_cli.engine.load import load_network
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.hub import locate
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.session.drafting import DraftController

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
NOWHERE = [10**9]  # a context that shares nothing with any other


def code(place, tokens, encode):
    """A held-out module from some line on, and those after it, until there are enough tokens."""
    names = islice(cycle(HELD_OUT), place, place + len(HELD_OUT))
    return encode("\n".join(library_text(name) for name in names)[: 8 * tokens])[:tokens]


class Pair:
    """Both models, and the ways to answer with them."""

    def __init__(self, folder, args):
        names = [folder / part for part in ("target", "draft")] if folder else ["demo/target", "demo/draft"]
        places = [name if folder else locate(f"specdec:{name}") for name in names]
        checkpoints = [read_checkpoint(place, str(place)) for place in places]
        self.networks = [load_network(checkpoint) for checkpoint in checkpoints]
        self.tokenizer = Tokenizer.load(checkpoints[0].folder, "target", checkpoints[0].config)
        self.clock, self.tokens, self.seed = CLOCKS[args.clock], args.tokens, args.seed
        self.said, self.ks, self.decoding = {}, {}, {}
        self.target, self.draft = (CachedModel(network, "model") for network in self.networks)
        if args.draft_context:
            self.draft = CachedModel(self.networks[1], "model", recent=args.draft_context)
        self.drafting = DraftController(self.target, self.draft)

    def forget(self):
        """As a new session would begin: nothing read, nothing learned."""
        self.drafting = DraftController(self.target, self.draft)

    def begin(self, drafter, k, rule, prompt, tokens, prefill_seconds):
        """The drafters of a reply to `prompt`, which the target took `prefill_seconds` to read."""
        meant = drafting(drafter, k)
        found = self.drafting.begin(meant.kind, meant.k, rule, prompt, tokens)
        self.drafting.prompt_was_read(len(prompt), prefill_seconds)
        return found

    def ours(self, k, drafter="model", temperature=0.0, cold=False, tokens=None):
        def answer(prompt):
            if cold:
                self.forget()
            for model in (self.target, self.draft):
                model.reuse(NOWHERE)
            began = self.clock()
            for _ in self.target.prefill(prompt):
                pass
            seconds = self.clock() - began
            rule = make_rule("block", Sampler(Sampling(temperature), self.seed, prompt, self.target.vocab_size))
            limit = tokens or self.tokens
            chosen = self.begin(drafter, k, rule, prompt, limit, seconds)
            context = list(prompt)
            steps = decode(self.target, chosen, rule, context, limit, frozenset(), self.clock)
            rounds = [step for step in steps if isinstance(step, Round)]
            seconds = self.clock() - began
            self.ks[k, drafter] = [len(round.draft) for round in rounds]
            late = [one.draft_seconds + one.verify_seconds for one in rounds[1:]]
            self.decoding[k] = sum(late) / sum(len(one.emitted) for one in rounds[1:])
            return self.took(seconds, prompt, context[len(prompt) :], temperature)

        return answer

    def plain(self, temperature=0.0, tokens=None):
        def answer(prompt):
            began = self.clock()
            sampler = make_sampler(temp=temperature) if temperature else None
            steps = generate_step(mx.array(prompt), self.networks[0], max_tokens=tokens or self.tokens, sampler=sampler)
            said = [int(token) for token, _ in steps]
            return self.took(self.clock() - began, prompt, said, temperature)

        return answer

    def mlx_lm(self, k, temperature=0.0):
        def answer(prompt):
            began = self.clock()
            sampler = make_sampler(temp=temperature) if temperature else None
            steps = speculative_generate_step(
                mx.array(prompt), *self.networks, num_draft_tokens=k, max_tokens=self.tokens, sampler=sampler
            )
            said = [int(token) for token, _, _ in steps]
            return self.took(self.clock() - began, prompt, said, temperature)

        return answer

    def took(self, seconds, prompt, said, temperature):
        """Seconds a token; greedy answers are compared."""
        if not temperature:
            known = self.said.setdefault(tuple(prompt), said)
            shorter = min(len(known), len(said))
            if known[:shorter] != said[:shorter]:
                at = next(i for i in range(shorter) if known[i] != said[i])
                print(f"  answers differ at token {at} of {shorter}: a near-tie, or a fault", file=sys.stderr)
        return seconds / len(said)


def line(name, ratio, least=None):
    goal = "" if least is None else f"  goal {least:.2f}: {ratio.verdict(least)}"
    print(f"{name:58} {ratio}  n {ratio.count}{goal}", flush=True)


def fixed(pair, args):
    """Fixed K against mlx-lm's own speculative loop, and K = 0 against its plain one."""
    prompts = of_kind("code", args.prompts, pair.tokenizer)
    ways = {"plain": pair.plain(), "K 0": pair.ours(0)}
    for k in (1, 2, 4, 8):
        ways |= {f"K {k}": pair.ours(k), f"mlx-lm {k}": pair.mlx_lm(k)}
    found = interleaved(ways, prompts)
    line("K = 0 ÷ mlx-lm's generate_step", Ratio(found["plain"], found["K 0"]), 0.98)
    for k in (1, 2, 4, 8):
        line(f"K = {k} ÷ mlx-lm's speculative loop", Ratio(found[f"mlx-lm {k}"], found[f"K {k}"]), 0.99)
        line(f"  K = {k} ÷ plain", Ratio(found["plain"], found[f"K {k}"]))
        line(f"  mlx-lm's loop at {k} ÷ plain", Ratio(found["plain"], found[f"mlx-lm {k}"]))


def adaptive(pair, args):
    """-k auto against every fixed K on four kinds of text; one session all through, as a user's would be."""
    pair.forget()
    ways = {k: pair.ours(k, temperature=args.temperature) for k in (0, 1, 2, 3, 4, 8, "auto")}
    of = {kind: of_kind(kind, args.prompts, pair.tokenizer) for kind in KINDS}
    units = [(kind, prompt) for row in zip(*of.values(), strict=True) for kind, prompt in zip(of, row, strict=True)]
    chosen = {kind: [] for kind in KINDS}

    def note(unit, way):
        if way == "auto":
            chosen[unit[0]] += pair.ks["auto", "model"][1:]

    found = interleaved({way: lambda unit, way=way: ways[way](unit[1]) for way in ways}, units, note)
    for kind in (*KINDS, "all"):
        rows = [i for i, unit in enumerate(units) if kind in (unit[0], "all")]
        taken = {way: [found[way][i] for i in rows] for way in ways}
        best = min((way for way in ways if way != "auto"), key=lambda way: sum(taken[way]))
        share = "" if kind == "all" else f", K chosen: {spread(chosen[kind])}"
        line(f"{kind}: auto ÷ plain (K = 0)", Ratio(taken[0], taken["auto"]), 0.97)
        line(
            f"{kind}: auto ÷ best fixed K ({best})", Ratio(taken[best], taken["auto"]), None if kind == "all" else 0.97
        )
        print(f"   fixed over plain: {', '.join(f'{k}: {Ratio(taken[0], taken[k]).median:.2f}' for k in ways)}{share}")
        if kind == "all":
            total = {way: sum(values) for way, values in taken.items()}
            best = min((way for way in ways if way != "auto"), key=total.get)
            gain = total[best] / total["auto"]
            print(
                f"all four together, total seconds: best single K is {best}; auto is {gain:.3f} times as fast", end=""
            )
            print(f"  goal 1.05: {'met' if gain >= 1.05 else f'MISSED by {1.05 - gain:.3f}'}")


def spread(ks):
    return ", ".join(f"{k}: {ks.count(k) / len(ks):.0%}" for k in sorted(set(ks)))


def hostile(pair, args):
    """Random text, and a random draft, from a cold start: what finding out costs."""
    ways = {"plain": pair.plain(tokens=256), "auto": pair.ours("auto", cold=True, tokens=256)}
    found = interleaved(ways, of_kind("random", args.prompts, pair.tokenizer))
    line("random text, 256 tokens: auto, cold ÷ plain", Ratio(found["plain"], found["auto"]), 0.97)
    kept = pair.draft
    pair.draft = CachedModel(shuffled(pair.networks[1]), "noise")
    ways = {"plain": pair.plain(tokens=256), "auto": pair.ours("auto", cold=True, tokens=256)}
    found = interleaved(ways, of_kind("code", args.prompts, pair.tokenizer))
    line("a random draft, 256 tokens: auto, cold ÷ plain", Ratio(found["plain"], found["auto"]), 0.97)
    pair.draft = kept
    pair.forget()


def shuffled(network):
    """The same network with the rows of its embedding turned round: it proposes nonsense at the same cost."""
    import copy

    other = copy.deepcopy(network)
    table = other.model.embed_tokens
    table.weight = table.weight[::-1]
    return other


def long(pair, args):
    """Long prompts of code: the whole answer and its decoding alone, beside decoding after 256 tokens."""

    def gains(length, tokens, prompts):
        """(ratio of whole times, ratio of decoding, decoding's share of plain time)."""
        whole, decoding = {0: [], "auto": []}, {0: [], "auto": []}
        ways = {k: pair.ours(k, "auto", tokens=tokens) for k in whole}
        for place in range(prompts + 1):  # the first one only teaches the costs
            prompt = code(place, length, pair.tokenizer.encode)
            for k in (ways, reversed(ways))[place % 2]:
                seconds = ways[k](prompt)
                if place:
                    whole[k].append(seconds)
                    decoding[k].append(pair.decoding[k])
        share = sum(decoding[0]) * (tokens - 1) / (sum(whole[0]) * tokens)
        return Ratio(whole[0], whole["auto"]), Ratio(decoding[0], decoding["auto"]), share

    for tokens in args.answers:
        pair.forget()
        _, short, _ = gains(256, tokens, args.prompts)
        pair.forget()
        whole, late, share = gains(args.length - tokens, tokens, args.prompts)
        predicted = 1 / (1 - share * (1 - 1 / short.median))
        line(f"{tokens} tokens after {args.length - tokens}: plain ÷ auto", whole, 0.99)
        print(f"   decoding is {share:.0%} of it: {predicted:.3f} predicted by its gain after 256 tokens, {short}")
        line(f"   decoding alone, over its gain after 256: {late.median / short.median:.3f}", late)


PARTS = {"long": long, "fixed": fixed, "adaptive": adaptive, "hostile": hostile}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, help="folder with target and draft; default: the demo pair")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["fixed", "adaptive", "hostile"])
    parser.add_argument("--length", type=int, default=4096, help="of a long prompt and its answer")
    parser.add_argument("--answers", type=int, nargs="+", default=[16, 64, 256], help="tokens after a long prompt")
    parser.add_argument("--draft-context", type=int, default=1024, help="0: all of the context")
    parser.add_argument("--prompts", type=int, default=8, help="of each kind")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0, help="of the adaptive part")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    pair = Pair(args.pair, args)
    sizes = [model.weight_bytes / 1e6 for model in (pair.target, pair.draft)]
    print(environment())
    print(f"target {sizes[0]:.0f} MB, draft {sizes[1]:.0f} MB, float32; {args.prompts} prompts of a kind, ", end="")
    print(f"{args.tokens} tokens, {args.clock} clock. Ratios of speed: median [95 % t-interval of the mean log ratio]")
    for way in (pair.plain(tokens=8), pair.ours(4, tokens=8), pair.mlx_lm(2)):
        way(of_kind("code", 2, pair.tokenizer)[0][:32])  # warm-up, discarded
    for part in args.parts:
        began = time.perf_counter()
        print(f"\n{PARTS[part].__doc__}")
        PARTS[part](pair, args)
        print(f"({part}: {time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()
