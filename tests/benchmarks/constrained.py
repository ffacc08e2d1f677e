"""What a schema costs and what it gains: `python tests/benchmarks/constrained.py --pair FOLDER`.

FOLDER is a pair that `inflate.py --out FOLDER` wrote; without it the demo pair answers. Every prompt is answered under
a schema in every way before the next one, in an order that turns, in one process; the prompt is the unit, and speeds
are tokens after the first by their seconds. Plain ways are mlx-lm's own loop, under the schema with our masks. Greedy
answers under the schema must be equal token for token, or the run stops. Host time is what the matcher takes of a
round, in processor time: forced tokens, the cut of the draft, its masks, the advance; for the pair's vocabulary, and
for one of 150,000 tokens that is trained here on the standard library, along documents that its own masks allow.
"""

import argparse
import json
import os
import statistics
import sysconfig
import time
from pathlib import Path
from random import Random

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import numpy as np
from paired import Ratio, environment, interleaved, timed
from speed import CLOCKS
from texts import of_kind
from tokenizers import Tokenizer as Trained
from tokenizers import decoders, models, pre_tokenizers, trainers

from specdec_cli.engine.baseline import baseline
from specdec_cli.events import Finish, RoundDone
from specdec_cli.kinds import FORCED
from specdec_cli.models.grammar import Vocabulary
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import MAX_DRAFT, Constraint, Request
from specdec_cli.session.load import load

TEXT = {"type": "string", "maxLength": 40}
PARAMETER = {
    "type": "object",
    "properties": {
        "parameter_name": TEXT,
        "type": {"enum": ["string", "integer", "boolean"]},
        "required": {"type": "boolean"},
    },
    "required": ["parameter_name", "type", "required"],
    "additionalProperties": False,
}
FUNCTION = {
    "type": "object",
    "properties": {
        "function_name": TEXT,
        "description": TEXT,
        "parameters": {"type": "array", "items": PARAMETER, "minItems": 2, "maxItems": 4},
        "returns_a_value": {"type": "boolean"},
        "number_of_lines": {"type": "integer", "minimum": 0, "maximum": 9999},
    },
    "required": ["function_name", "description", "parameters", "returns_a_value", "number_of_lines"],
    "additionalProperties": False,
}
SCHEMA = Constraint("schema", json.dumps(FUNCTION))
ASKED = ("forced", "legal", "masks", "advance")
K = 4


class Always:
    """Drafts are masked, or never."""

    def __init__(self, masked):
        self.masked = masked

    def observe(self, round, legal, drafted):
        pass


class Ways:
    """The ways to answer a prompt; `said` holds what plain decoding says under the schema."""

    def __init__(self, session, tokens):
        self._session, self._tokens, self._clock = session, tokens, session.clock
        self.said, self.stats = {}, []

    def free(self, prompt):
        """mlx-lm, without a schema."""
        network = self._session.slot.target.network.module
        began = first = None
        tokens = []
        for round in baseline(network, prompt, self._tokens, frozenset(), self._clock):
            began = self._clock()
            first = first or began
            tokens.append(round.next)
        return (began - first) / (len(tokens) - 1)

    def plain(self, prompt):
        """mlx-lm, under the schema."""
        tokens, first, last = [], None, None
        for step in self._session.plain(prompt, Request(self._tokens, k=0, constraint=SCHEMA)):
            last = self._clock()
            first = first or last
            tokens.append(step.token)
        self.said[tuple(prompt)] = tokens
        return (last - first) / (len(tokens) - 1)

    def ours(self, drafter, k, name, masking=None):
        """`masking`: whether drafts are masked, or not; None: as the product chooses."""
        session = self._session.pair.session(self._session.slot, self._clock)
        if masking is not None:
            session._controller.masking = lambda prompt: masking

        def answer(prompt):
            session.slot.forget()
            request = Request(self._tokens, k=k, drafter=drafter, constraint=SCHEMA)
            events = list(session.reply(prompt, request, raw=True))
            rounds = [event.round for event in events if isinstance(event, RoundDone)]
            tokens = [token for round in rounds for token in round.emitted]
            if tokens != self.said[tuple(prompt)]:
                raise SystemExit(f"{name} says something else than plain decoding")
            stats = next(event.stats for event in events if isinstance(event, Finish))
            self.stats.append((name, stats))
            return stats["decode_seconds"] / (len(tokens) - 1)

        return answer


def speed(session, args):
    """Tokens a second against both plain ways, tokens a pass, and the share of forced tokens."""
    ways = Ways(session, args.tokens)
    named = {"plain": ways.plain, "free": ways.free}
    for drafter, k in (("none", 0), ("model", K), ("auto", "auto")):
        named[f"{drafter} k {k}"] = ways.ours(drafter, k, f"{drafter} k {k}")
    for name, masked in (("masked", True), ("unmasked", False)):
        named[name] = ways.ours("model", K, name, Always(masked))
    prompts = of_kind("code", args.prompts, session.pair.tokenizer)
    for prompt in prompts:  # what all others must say; it warms the machine as well
        ways.plain(prompt)
    ways.free(prompts[0])
    found = interleaved(named, prompts)
    print(f"{args.prompts} prompts, up to {args.tokens} tokens, greedy; median [95 % interval] of paired ratios")
    print(f"{args.clock} time; plain under the schema over plain without: {Ratio(found['free'], found['plain'])}")
    for name in list(named)[2:]:
        stats = [one for other, one in ways.stats if other == name]
        tokens = sum(one["emitted_tokens"] for one in stats)
        forced = sum(one["accepted_by"].get(FORCED.name, 0) for one in stats)
        passes = sum(one["target_passes"] for one in stats)
        print(f"{name:>11}: over plain under the schema {Ratio(found['plain'], found[name])}, ", end="")
        print(f"over plain without {Ratio(found['free'], found[name])}, ", end="")
        print(f"{tokens / passes:.2f} tokens a pass, {forced / tokens:.0%} forced")
    print(f"as the product chooses over always masked: {Ratio(found['masked'], found[f'model k {K}'])}, ", end="")
    print(f"over never: {Ratio(found['unmasked'], found[f'model k {K}'])}")


def host(vocabulary, label, args):
    """Seconds that the matcher takes of each round of K drafted tokens, along random documents."""
    rounds, rows = [], []
    for seed in range(args.documents):
        meter, rng = [], Random(seed)
        matcher = vocabulary.matcher(SCHEMA)
        instead = {name: timed(getattr(matcher, name), meter.append, time.thread_time) for name in ASKED}
        done = False
        while not done:
            meter.clear()
            draft = instead["forced"]()[:MAX_DRAFT]
            if not draft:
                for _ in range(K):  # as a masked draft model asks
                    token = _legal_token(instead["masks"](draft)[-1], vocabulary, rng)
                    draft.append(token)
                    if token in vocabulary.stop_tokens:
                        break
            draft = draft[: instead["legal"](draft)]
            instead["masks"](draft)
            instead["advance"](draft)
            done = any(token in vocabulary.stop_tokens for token in draft)
            rounds.append(sum(meter))
            rows.append(len(draft) + 1)
    ordered = sorted(1e6 * seconds for seconds in rounds)
    late = ordered[int(0.99 * len(ordered))]
    print(f"host time a round, {label}: median {statistics.median(ordered):.0f} µs, ", end="")
    print(f"99th percentile {late:.0f} µs, largest {ordered[-1]:.0f} µs; ", end="")
    print(f"N = {len(ordered)} rounds of {statistics.mean(rows):.1f} rows in {args.documents} documents")


def _legal_token(row, vocabulary, rng):
    """Any allowed token; the end of a text or list is as likely as all others together."""
    allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
    ends = [token for token in allowed[:400] if vocabulary.ends[token]]
    return int(rng.choice(ends if ends and rng.random() < 0.3 else allowed))


def trained(size):
    """A byte-level tokenizer of about `size` tokens, from the standard library's own sources."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    texts = (path.read_bytes().decode("utf-8", "ignore") for path in files)
    tokenizer = Trained(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials, alphabet = ["<|endoftext|>", "<|im_end|>"], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class Listed:
    """A vocabulary with which of its tokens end something."""

    def __init__(self, vocabulary, texts):
        self.matcher, self.stop_tokens = vocabulary.matcher, vocabulary.stop_tokens
        self.ends = [text[:1] in '"}],' for text in texts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, metavar="FOLDER")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="of speeds; host time is processor time")
    parser.add_argument("--only", choices=["speed", "host"])
    args = parser.parse_args()
    print(environment())
    parts = ("target", "draft")
    names = [str(args.pair / part) if args.pair else f"specdec:demo/{part}" for part in parts]
    if args.only != "host":
        loaded = load(Pair("pair", *names), drafter="model")
        speed(loaded.session(loaded.first, CLOCKS[args.clock]), args)
    if args.only != "speed":
        loaded = load(Pair("pair", *names), drafter="none")
        width, tokenizer = loaded.first.target.vocab_size, loaded.tokenizer
        host(Listed(loaded.vocabulary(), map(tokenizer.piece, range(width))), f"{width} tokens", args)
        big = trained(150_000)
        width = big.get_vocab_size()
        began = time.perf_counter()
        vocabulary = Vocabulary.of_model(big.to_str(), width, frozenset({0, 1}))
        print(f"a vocabulary of {width} tokens is built in {time.perf_counter() - began:.2f} s")
        host(Listed(vocabulary, (big.decode([token]) for token in range(width))), f"{width} tokens", args)


if __name__ == "__main__":
    main()
