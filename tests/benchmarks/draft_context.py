"""How much of the context a draft must read: `python tests/benchmarks/draft_context.py --target FOLDER --draft FOLDER`.

The target continues each prompt greedily, by mlx-lm. The draft reads the last N tokens of the prompt at positions from
0 on, and then the target's own words: what it would guess next is right or wrong at each (teacher forcing). Of that the
judged acceptance rate of rounds of K follows. `--bits` makes the draft out of the target's own weights in so many bits,
for a released model without a smaller brother. Intervals are 95 %, over prompts; differences are paired by prompt.
"""

import argparse
import os
from itertools import cycle, islice
from pathlib import Path

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load
from paired import environment
from texts import HELD_OUT, library_text, topic_pages

from specdec_cli.core.speedup import t_interval
from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton
from specdec_cli.engine.planning.rates import SHORTEST_MATCH

KINDS = ("code", "prose", "far")
LOOP_GRAM, LOOPS = 8, 0.5
# Names that nobody can guess: an early table of them is asked for again at the prompt's end.
SYLLABLES = ("ka", "zor", "mi", "tul", "ven", "qua", "bex", "ro", "dyl", "sph", "ixa", "nom")


def code(place, tokens, encode):
    """A held-out module from some line on, and those after it, until there are enough tokens."""
    names = islice(cycle(HELD_OUT), place, place + len(HELD_OUT))
    return encode("\n".join(library_text(name) for name in names)[: 8 * tokens])[:tokens]


def prose(place, tokens, encode):
    pages = topic_pages()
    return encode("\n\n".join(islice(cycle(pages), 7 * place, 7 * place + len(pages)))[: 8 * tokens])[:tokens]


def far(place, tokens, encode):
    """A table of made-up names, code in between, and the table's beginning again."""

    def word(i):
        return "".join(SYLLABLES[(i * step + place + step) % len(SYLLABLES)] for step in (5, 7, 11))

    rows = [f'    "{word(i)}_{i}": "{word(i + 5)} {word(3 * i + 1)}",\n' for i in range(12)]
    table, again = encode("NAMES = {\n" + "".join(rows) + "}\n\n"), encode("\n\nNAMES = {\n" + "".join(rows[:2]))
    between = code(place, tokens - len(table) - len(again), encode)
    return [*table, *between, *again]


def repetition(tokens):
    grams = [tuple(tokens[i : i + LOOP_GRAM]) for i in range(len(tokens) - LOOP_GRAM + 1)]
    return 1 - len(set(grams)) / len(grams)


def agrees(draft, prompt, said, n):
    """Whether the draft, which read the last `n` tokens of `prompt`, guesses each of the tokens `said`."""
    caches, seen = make_prompt_cache(draft), prompt[-n:]
    for begin in range(0, len(seen) - 1, 512):
        draft(mx.array([seen[begin : min(begin + 512, len(seen) - 1)]]), cache=caches)
        mx.eval([cache.state for cache in caches])
    guessed = mx.argmax(draft(mx.array([[seen[-1], *said[:-1]]]), cache=caches)[0], axis=-1).tolist()
    return [guess == token for guess, token in zip(guessed, said, strict=True)]


def looked_up(prompt, said):
    """Whether lookup, which has read everything, guesses each of the tokens `said`."""
    text, right = SuffixAutomaton(prompt), []
    for place, token in enumerate(said):
        text.follow([*prompt, *said[:place]])
        right.append(text.match.length >= SHORTEST_MATCH and text.continuation(1) == [token])
    return right


def judged(agreeing, k):
    """(accepted, judged) of rounds of `k` over one answer."""
    at = accepted = judgements = 0
    while at < len(agreeing):
        drafted = agreeing[at : at + k]
        right = next((i for i, one in enumerate(drafted) if not one), len(drafted))
        accepted, judgements, at = accepted + right, judgements + min(right + 1, len(drafted)), at + right + 1
    return accepted, judgements


def packed(network, bits):
    """The same weights rounded to `bits`, in groups of 64, as numbers of their own type."""
    weights = {}
    for path, module in network.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding) and module.weight.shape[-1] % 64 == 0:
            weights[f"{path}.weight"] = mx.dequantize(*mx.quantize(module.weight, 64, bits), 64, bits)
    network.load_weights([(name, weights.get(name, value)) for name, value in tree_flatten(network.parameters())])
    return network


def interval(values):
    mean, off = t_interval([values])
    return f"{mean:.3f} ± {off:.3f}"


def measure(target, draft, kind, tokens, args, encode):
    """A line of the table: the rate that a draft of the whole prompt reaches, and what each N changes."""
    rates, lookups = {n: [] for n in (*args.contexts, "full")}, []
    skipped = 0
    for place in range(args.prompts):
        prompt = {"code": code, "prose": prose, "far": far}[kind](place, tokens, encode)
        said = [int(token) for token, _ in generate_step(mx.array(prompt), target, max_tokens=args.tokens)]
        if repetition(said) > LOOPS:
            skipped += 1
            continue
        lookups.append(sum(looked_up(prompt, said)) / len(said))
        for n in rates:
            accepted, judgements = judged(agrees(draft, prompt, said, tokens if n == "full" else n), args.k)
            rates[n].append(accepted / judgements)
        mx.clear_cache()
    if len(rates["full"]) < 2:
        print(f"{kind:6} {tokens:5}: {skipped} of {args.prompts} answers loop", flush=True)
        return
    changes = [
        f"{n}: {interval([a - b for a, b in zip(rates[n], rates['full'], strict=True)])}"
        for n in args.contexts
        if n < tokens
    ]
    print(f"{kind:6} {tokens:5}: full {interval(rates['full'])}; change at {', '.join(changes)}", end="")
    print(f"; lookup guesses {interval(lookups)} of all tokens; n {len(lookups)}, {skipped} loop", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--bits", type=int)
    parser.add_argument("--prompts", type=int, default=8, help="of each kind and length")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 3900])
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("-k", type=int, default=4)
    args = parser.parse_args()
    target, tokenizer = load(str(args.target))
    draft, _ = load(str(args.draft or args.target))
    for network in (target, draft):
        network.set_dtype(mx.float32)
    if args.bits:
        draft = packed(draft, args.bits)
    print(environment())
    print(
        f"{args.target.name}, draft {args.draft or f'its own weights in {args.bits} bits'}; greedy, {args.tokens} ",
        end="",
    )
    print(f"tokens each, K {args.k}: judged acceptance, mean over prompts ± 95 %")

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False)

    for kind in args.kinds:
        for tokens in args.lengths:
            measure(target, draft, kind, tokens, args, encode)


if __name__ == "__main__":
    main()
