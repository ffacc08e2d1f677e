"""Never slower: specdec against mlx-lm and against itself, `python tests/benchmarks/speed.py --pair FOLDER`.

FOLDER holds `target` and `draft` as `inflate.py --out FOLDER` writes them; without it the demo pair decodes. Every
prompt is answered in every way before the next one, in an order that turns, in one process; the prompt is the unit.
No stop token ends an answer, so that each has all of its tokens; else the ways are those of `ways.py`. On a CPU preload
a real BLAS. `--clock cpu` counts processor time, which a machine that is busy with other things changes less.
"""

import argparse
import os
import time
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

os.environ.setdefault("MLX_ENABLE_TF32", "0")

from paired import Ratio, environment, interleaved
from texts import HELD_OUT, KINDS, library_text, of_kind
from ways import Ways

import specdec_cli as specdec
from specdec_cli.engine.model import CachedModel

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def code(place, tokens, encode):
    """A held-out module from some line on, and those after it, until there are enough tokens."""
    names = islice(cycle(HELD_OUT), place, place + len(HELD_OUT))
    return encode("\n".join(library_text(name) for name in names)[: 8 * tokens])[:tokens]


def ways_of(pair, args, tokens):
    return Ways(pair, tokens, CLOCKS[args.clock], ends=False)


def line(name, ratio, least=None):
    goal = "" if least is None else f"  goal {least:.2f}: {ratio.verdict(least)}"
    print(f"{name:58} {ratio}  n {ratio.count}{goal}", flush=True)


def fixed(pair, args):
    """Fixed K against mlx-lm's own speculative loop, and K = 0 against its plain one."""
    prompts, some = of_kind("code", args.prompts, pair.tokenizer), ways_of(pair, args, args.tokens)
    ways = {"plain": some.plain(), "K 0": some.ours(k=0)}
    for k in (1, 2, 4, 8):
        ways |= {f"K {k}": some.ours(k=k, drafter="model"), f"mlx-lm {k}": some.mlx_lm(k)}
    found = interleaved(ways, prompts)
    line("K = 0 ÷ mlx-lm's generate_step", Ratio(found["plain"], found["K 0"]), 0.98)
    for k in (1, 2, 4, 8):
        line(f"K = {k} ÷ mlx-lm's speculative loop", Ratio(found[f"mlx-lm {k}"], found[f"K {k}"]), 0.99)
        line(f"  K = {k} ÷ plain", Ratio(found["plain"], found[f"K {k}"]))
        line(f"  mlx-lm's loop at {k} ÷ plain", Ratio(found["plain"], found[f"mlx-lm {k}"]))


def adaptive(pair, args):
    """-k auto against every fixed K on four kinds of text; what a reply learned helps the next one."""
    pair.costs.clear()
    some = ways_of(pair, args, args.tokens)
    ways = {k: some.ours(args.temperature, k=k, drafter="model") for k in (0, 1, 2, 3, 4, 8, "auto")}
    of = {kind: of_kind(kind, args.prompts, pair.tokenizer) for kind in KINDS}
    units = [(kind, prompt) for row in zip(*of.values(), strict=True) for kind, prompt in zip(of, row, strict=True)]
    chosen = {kind: [] for kind in KINDS}

    def note(unit, way):
        if way == "auto":
            chosen[unit[0]] += [len(one.draft) for one in some.rounds[1:]]

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
    noise = CachedModel(shuffled(pair.first.draft.network.module), "noise")
    wrong = replace(pair, first=replace(pair.first, draft=noise), costs={})
    for name, kind, one in (("random text", "random", pair), ("a random draft", "code", wrong)):
        some = ways_of(one, args, 256)
        ways = {"plain": some.plain(), "auto": some.ours(k="auto", drafter="model", cold=True)}
        found = interleaved(ways, of_kind(kind, args.prompts, pair.tokenizer))
        line(f"{name}, 256 tokens: auto, cold ÷ plain", Ratio(found["plain"], found["auto"]), 0.97)


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
        pair.costs.clear()
        some, decoding = ways_of(pair, args, tokens), {0: [], "auto": []}

        def note(_, k):
            late = some.rounds[1:]
            seconds = sum(one.draft_seconds + one.verify_seconds for one in late)
            decoding[k].append(seconds / sum(len(one.emitted) for one in late))

        units = [code(place, length, pair.tokenizer.encode) for place in range(prompts + 1)]
        whole = interleaved({k: some.ours(k=k, drafter="auto") for k in decoding}, units, note)
        # The first one only teaches the costs.
        whole, decoding = ({k: took[1:] for k, took in one.items()} for one in (whole, decoding))
        share = sum(decoding[0]) * (tokens - 1) / (sum(whole[0]) * tokens)
        return Ratio(whole[0], whole["auto"]), Ratio(decoding[0], decoding["auto"]), share

    for tokens in args.answers:
        _, short, _ = gains(256, tokens, args.prompts)
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
    args = parser.parse_args()
    models = {part: str(args.pair / part) for part in ("target", "draft")} if args.pair else {"pair": "demo"}
    pair = specdec.load(**models, draft_context=args.draft_context or "full")
    sizes = [model.weight_bytes / 1e6 for model in (pair.first.target, pair.first.draft)]
    print(environment())
    print(f"target {sizes[0]:.0f} MB, draft {sizes[1]:.0f} MB, float32; {args.prompts} prompts of a kind, ", end="")
    print(f"{args.tokens} tokens, {args.clock} clock. Ratios of speed: median [95 % t-interval of the mean log ratio]")
    some = ways_of(pair, args, args.tokens)
    some.warm_up((some.plain(), some.ours(k=4), some.mlx_lm(2)), of_kind("code", 2, pair.tokenizer)[0][:32])
    for part in args.parts:
        began = time.perf_counter()
        print(f"\n{PARTS[part].__doc__}")
        PARTS[part](pair, args)
        print(f"({part}: {time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()
