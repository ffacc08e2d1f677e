"""What a schema costs the host: `python tests/benchmarks/mask_cost.py`, for the demo's vocabulary and a big one.

The big one has 150,000 tokens and is trained here on the standard library (a minute; `--tokenizer FILE` keeps it).
Random documents that its own masks allow are replayed round by round, as one answer each: K drafted tokens, masked one
by one, or what is forced. Counted are forced tokens, the cut of the draft, its masks and the advance.

Two figures. *Processor time* is that of all threads. The *wait* is what a device that works beside the host loses: the
host's wall time while nothing is queued (forced tokens, the cut, the advance), and what a mask takes longer than the
draft step or the pass it is computed behind. Those last `--step-ms` and `--pass-ms`, in which the host sleeps.
"""

import argparse
import os
import statistics
import sysconfig
import time
from pathlib import Path
from random import Random

os.environ.setdefault("MLX_ENABLE_TF32", "0")

import numpy as np
from constrained import SCHEMA, K
from paired import environment
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from specdec_cli.hub import locate
from specdec_cli.models.grammar import Vocabulary
from specdec_cli.request import MAX_DRAFT

BOUND = 0.05  # of a round, as in overhead.py


def document(vocabulary, ends, rng):
    """Rounds of one random document: (whether the draft is forced, its tokens)."""
    matcher, rounds, done = vocabulary.matcher(SCHEMA), [], False
    while not done:
        forced = matcher.forced()[:MAX_DRAFT]
        draft = list(forced)
        while not forced and len(draft) < K and not vocabulary.stop_tokens & set(draft):
            draft.append(_legal_token(matcher.masks(draft)[-1], ends, rng))
        draft = draft[: matcher.legal(draft)]
        matcher.advance(draft)
        rounds.append((bool(forced), draft))
        done = bool(vocabulary.stop_tokens & set(draft))
    return rounds


def _legal_token(row, ends, rng):
    """Any allowed token; the end of a text or list is as likely as all others together."""
    allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
    ending = [token for token in allowed[:400] if ends[token]]
    return int(rng.choice(ending if ending and rng.random() < 0.3 else allowed))


class Device:
    """A device that takes `step` or `full` seconds for a pass, and how long it stood still."""

    def __init__(self, step, full):
        self.step, self.full = step, full
        self.processor = self.waited = self.worked = 0.0

    def alone(self, ask, *given):
        """The host answers while nothing is queued."""
        self.waited += self._seconds(ask, *given)

    def behind(self, seconds, ask, *given):
        """The host answers while a pass of `seconds` is computed."""
        left = seconds - self._seconds(ask, *given)
        self.waited -= min(left, 0.0)
        self.worked += seconds
        time.sleep(max(left, 0.0))

    def _seconds(self, ask, *given):
        began, used = time.perf_counter(), time.process_time()
        ask(*given)
        self.processor += time.process_time() - used
        return time.perf_counter() - began


def measured(vocabulary, rounds, args):
    """(processor seconds, waited seconds, device seconds, rows) of every round."""
    matcher, found = vocabulary.matcher(SCHEMA), []
    matcher.masks([])  # while the prompt is read: the thread's own matcher is made
    for forced, draft in rounds:
        device = Device(1e-3 * args.step_ms, 1e-3 * args.pass_ms)
        device.alone(matcher.forced)
        for place in range(0 if forced else len(draft)):
            device.behind(device.step, matcher.masks, draft[:place])
        device.alone(matcher.legal, draft)
        device.behind(device.full, matcher.masks, draft)
        device.alone(matcher.advance, draft)
        found.append((device.processor, device.waited, device.worked, len(draft) + 1))
    return found


def report(label, found):
    """Median and 99th percentile of all rounds."""
    processor, waited, _, rows = zip(*found, strict=True)
    shares = sorted(wait / (wait + worked) for _, wait, worked, _ in found)
    late = shares[int(0.99 * len(shares))]
    print(f"{label}: N = {len(found)} rounds of {statistics.mean(rows):.1f} rows")
    for name, values in (("processor time", processor), ("the device waits", waited)):
        ordered = sorted(1e6 * value for value in values)
        print(f"  {name:17} median {statistics.median(ordered):5.0f} µs, 99th percentile ", end="")
        print(f"{ordered[int(0.99 * len(ordered))]:5.0f} µs, largest {ordered[-1]:.0f} µs")
    print(f"  share of a round  median {statistics.median(shares):.2%}, 99th percentile {late:.2%}; ", end="")
    print(f"bound {BOUND:.0%}: {'met' if late <= BOUND else f'MISSED by {late - BOUND:.1%}'}", flush=True)


def cost(tokenizer, args):
    width = tokenizer.get_vocab_size()
    began = time.perf_counter()
    vocabulary = Vocabulary.of_model(tokenizer.to_str(), width, frozenset({0, 1}))
    print(f"\na vocabulary of {width} tokens, built in {time.perf_counter() - began:.2f} s")
    ends = [tokenizer.decode([token])[:1] in '"}],' for token in range(width)]
    began = time.perf_counter()
    vocabulary.matcher(SCHEMA).masks([])
    print(f"an answer's first row, its matchers made before: {1e3 * (time.perf_counter() - began):.0f} ms")
    documents = [document(vocabulary, ends, Random(seed)) for seed in range(args.documents)]
    report("drafts are masked", [round for rounds in documents for round in measured(vocabulary, rounds, args)])


def trained(size):
    """A byte-level tokenizer of about `size` tokens, from the standard library's own sources."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    texts = (path.read_bytes().decode("utf-8", "ignore") for path in files)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials, alphabet = ["<|endoftext|>", "<|im_end|>"], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--step-ms", type=float, default=2.0, help="of a draft step")
    parser.add_argument("--pass-ms", type=float, default=20.0, help="of a target pass over K + 1 rows")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="of the big vocabulary: read, or written")
    args = parser.parse_args()
    print(environment())
    print(f"draft steps of {args.step_ms} ms, target passes of {args.pass_ms} ms, K = {K}, {args.documents} documents")
    cost(Tokenizer.from_file(str(locate("specdec:demo/target") / "tokenizer.json")), args)
    if args.tokenizer and args.tokenizer.exists():
        big = Tokenizer.from_file(str(args.tokenizer))
    else:
        big = trained(150_000)
        if args.tokenizer:
            big.save(str(args.tokenizer))
    cost(big, args)


if __name__ == "__main__":
    main()
