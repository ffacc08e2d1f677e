# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "tokenizers>=0.22", "safetensors>=0.6", "numpy>=2"]
# ///
"""Train the demo's hybrid with its MTP head from this machine's own Python: `uv run train_hybrid.py --out FOLDER`.

Stages, each kept in --work so that a rerun goes on where it stopped: the target and its head together; the target
unlearning its loops; the target's own text; the head alone on that text, for its guesses are judged there
(DistillSpec, Zhou et al., arXiv:2310.08461); measurement; export. Corpus and tokenizer are the demo pair's.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from agreement import measure_head
from corpus import (
    END_OF_TEXT,
    TURN_END,
    VOCABULARY,
    held_out_prompts,
    standard_library,
    training_streams,
    validation_prompts,
)
from export import write_model
from fitting import Log, Schedule, fit
from hybrid_network import Hybrid, HybridShape
from loops import Pass, unlearn_loops
from train import SHORT, length_of, write_own_text
from windows import Streams, windows

TOKENIZER = Path(__file__).parents[1] / "target" / "tokenizer.json"
SHAPE = HybridShape(layers=8, width=192, hidden=256, heads=3, kv_heads=1, vocabulary=VOCABULARY)
JOINT_STEPS, HEAD_STEPS = 3600, 300
TOKENS = 2048  # of a batch, half as many as the demo pair's: more steps in the same time
JOINT_DEPTH, HEAD_DEPTH = 2, 3  # steps of the head that learn
HEAD_WEIGHT, HEAD_SHARE = 0.3, 4  # of the loss; one of so many rows
LOOPS = (Pass(24, 0.25, 64, 288, 2.0, 70_000), Pass(80, 0.4, 64, 288, 4.0, 80_000))
LOOP_SHARES = (0.5, 0.75, 1.0)
OWN_BATCHES, OWN_ROWS = 2, 256


def kept_streams(tokenizer: Tokenizer, work: Path) -> Streams:
    """The training streams, which take a minute to make, from `work` where an earlier run left them."""
    kept = work / "streams.npz"
    if not kept.exists():
        streams = training_streams(tokenizer, standard_library())
        np.savez(kept, shares=[share for share, _ in streams], **{f"ids{i}": ids for i, (_, ids) in enumerate(streams)})
    found = np.load(kept)
    return [(float(share), found[f"ids{i}"]) for i, share in enumerate(found["shares"])]


def train_jointly(network: Hybrid, streams: Streams, work: Path, log: Log) -> None:
    """Cross-entropy of the corpus, and HEAD_WEIGHT of the head's over some of the rows."""

    def loss_of(step: int) -> Tensor:
        length = length_of(step)
        ids = windows(streams, length, np.random.default_rng(300_000 + step), TOKENS // length)
        read, some = ids[:, :-1], max(len(ids) // HEAD_SHARE, 1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            states = network.states(read)
            logits, guesses = network.logits(states), network.guesses(read[:some], states[:some], JOINT_DEPTH)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        # Guess s of position p is of token p + 1 + s.
        ahead = [
            F.cross_entropy(guess.flatten(0, 1).float(), ids[:some, 1 + s :].flatten())
            for s, guess in enumerate(guesses, 1)
        ]
        return loss + HEAD_WEIGHT * sum(ahead) / len(ahead)

    fit("joint", network, Schedule(JOINT_STEPS, cooldown=0.5), loss_of, work / "joint.pt", log)


def train_head(network: Hybrid, streams: Streams, text: Tensor, work: Path, log: Log) -> None:
    """KL to what the target says there and half a cross-entropy to its argmax, on its own text and on the corpus."""

    def loss_of(step: int) -> Tensor:
        rng = np.random.default_rng(400_000 + step)
        if rng.random() < 0.2:
            ids = windows(streams, SHORT, rng, TOKENS // SHORT)
        else:
            ids = text[torch.from_numpy(rng.integers(0, len(text), TOKENS // text.shape[1]))]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                states = network.states(ids)
                taught = network.logits(states).float()
            guesses = network.guesses(ids, states, HEAD_DEPTH)
        return sum(distance(guess, taught[:, s:]) for s, guess in enumerate(guesses, 1)) / HEAD_DEPTH

    network.requires_grad_(False)
    network.mtp.requires_grad_(True)
    fit("head", network.mtp, Schedule(HEAD_STEPS, cooldown=0.6), loss_of, work / "head.pt", log)


def distance(guess: Tensor, taught: Tensor) -> Tensor:
    """Of logits [B, T, V] from the target's: KL, and half a cross-entropy to its argmax."""
    learned, wanted = guess.float().log_softmax(-1), taught.log_softmax(-1)
    divergence = (wanted.exp() * (wanted - learned)).sum(-1).mean()
    return divergence + 0.5 * F.nll_loss(learned.flatten(0, 1), taught.argmax(-1).flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder that gets config, weights and tokenizer")
    parser.add_argument("--work", type=Path, default=Path("hybrid-training"), help="checkpoints of each stage")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    # Compiling this network takes longer on a small machine than it saves.
    torch._dynamo.config.disable = True
    args.work.mkdir(parents=True, exist_ok=True)
    log = Log(args.work / "log.jsonl")

    sources, tokenizer = standard_library(), Tokenizer.from_file(str(TOKENIZER))
    streams = kept_streams(tokenizer, args.work)
    log.say(stage="corpus", files=len(sources), tokens=[len(ids) for _, ids in streams], threads=args.threads)

    network = Hybrid(SHAPE)
    train_jointly(network, streams, args.work, log)
    unlearn_loops(network, streams, validation_prompts(tokenizer, sources, 64, 128), args.work, log, LOOPS, LOOP_SHARES)
    text = write_own_text(network, streams, args.work, log, OWN_BATCHES, OWN_ROWS)
    train_head(network, streams, text, args.work, log)
    log.say(stage="measure", **measure_head(network, held_out_prompts(tokenizer, sources, 128, 128)))
    ends = tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(TURN_END)
    write_model(network, tokenizer, ends, args.out)
    log.say(stage="done", out=args.out.name)


if __name__ == "__main__":
    main()
