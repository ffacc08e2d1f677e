# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "tokenizers>=0.22", "safetensors>=0.6", "numpy>=2"]
# ///
"""Train the demo pair from this machine's own Python: `uv run train.py --out FOLDER`.

Stages, each kept in --work so that a rerun goes on where it stopped: tokenizer, a shallow target, the target
grown to its full depth, the target unlearning its loops, the target's own text, the draft, both learning from each
other, measurement, export. Speculative acceptance is won by the draft's agreement with the target on text the *target*
writes (DistillSpec, Zhou et al., arXiv:2310.08461), so the draft learns on exactly that.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from agreement import measure
from continuation import continue_text, repetition_rate
from corpus import (
    END_OF_TEXT,
    TURN_END,
    VOCABULARY,
    held_out_prompts,
    standard_library,
    train_tokenizer,
    training_streams,
    validation_prompts,
)
from export import write_model
from fitting import Log, Schedule, fit
from loops import unlearn_loops
from mutual import learn_mutually, lesson
from network import Network, Shape
from windows import Streams, windows

TARGET = Shape(layers=24, width=192, hidden=512, heads=3, kv_heads=1, vocabulary=VOCABULARY)
SHALLOW = replace(TARGET, layers=12)
DRAFT = Shape(layers=1, width=256, hidden=768, heads=4, kv_heads=2, vocabulary=VOCABULARY)
SHALLOW_STEPS, TARGET_STEPS, DRAFT_STEPS = 2000, 2400, 2800
SHORT, LONG = 256, 1024
OWN_PROMPT, OWN_TOKENS, OWN_ROWS, OWN_BATCHES = 128, 256, 512, 5


def length_of(step: int) -> int:
    """Mostly short windows; every sixth batch teaches the full context."""
    return LONG if step % 6 == 5 else SHORT


def language_loss(network: Network, streams: Streams, seed: int):
    """Cross-entropy of the corpus in bfloat16 passes, as `fit` takes it."""

    @torch.compile(dynamic=False)
    def loss(ids: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = network(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    return lambda step: loss(windows(streams, length_of(step), np.random.default_rng(seed + step)))


def train_target(streams: Streams, work: Path, log: Log) -> Network:
    """Half the depth first, then all of it, each shallow layer begun twice (Gong et al. 2019, progressive stacking)."""
    shallow, network = Network(SHALLOW), Network(TARGET)
    if not (work / "target.pt").exists():
        loss = language_loss(shallow, streams, 0)
        fit("shallow", shallow, Schedule(SHALLOW_STEPS, cooldown=0.0), loss, work / "shallow.pt", log)
        network.load_state_dict(stacked(shallow.state_dict()))
    loss = language_loss(network, streams, 100_000)
    fit("target", network, Schedule(TARGET_STEPS, cooldown=0.6), loss, work / "target.pt", log)
    return network


def stacked(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of `SHALLOW` as those of `TARGET`: its layers, and the same layers again above them."""
    deep = dict(state)
    for name, value in state.items():
        if name.startswith("model.layers."):
            layer, rest = name.removeprefix("model.layers.").split(".", 1)
            deep[f"model.layers.{int(layer) + SHALLOW.layers}.{rest}"] = value.clone()
    return deep


def write_own_text(
    target: Network, streams: Streams, work: Path, log: Log, batches: int = OWN_BATCHES, of_rows: int = OWN_ROWS
) -> Tensor:
    """[rows, OWN_PROMPT + OWN_TOKENS]: training prompts continued, half greedy, half at temperature 1, no loops."""
    kept = []
    for index in range(batches):
        part = work / f"own-{index}.pt"
        if not part.exists():
            rng = np.random.default_rng(10_000 + index)
            prompts = windows(streams, OWN_PROMPT, rng, of_rows)[:, :OWN_PROMPT]
            ids = continue_text(target, prompts, OWN_TOKENS, float(index % 2), index)
            ids = ids[torch.tensor([repetition_rate(row[OWN_PROMPT:].numpy()) < 0.5 for row in ids])]
            torch.save(ids.to(torch.int16), part)
            log.say(stage="text", batch=index, rows=len(ids), of=of_rows)
        kept.append(torch.load(part).long())
    return torch.cat(kept)


def train_draft(target: Network, streams: Streams, text: Tensor, work: Path, log: Log) -> Network:
    """KL to the target's distribution and half a cross-entropy to its argmax, on its own text and on the corpus."""
    network = Network(DRAFT)
    with torch.no_grad():  # the first columns of the draft's embedding begin as the target's
        network.model.embed_tokens.weight[:, : TARGET.width] = target.model.embed_tokens.weight

    @torch.compile(dynamic=False)
    def loss(ids: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                taught = target(ids).float().log_softmax(-1)
            return lesson(taught, network(ids).float().log_softmax(-1))

    def loss_of(step: int) -> Tensor:
        rng = np.random.default_rng(20_000 + step)
        if length_of(step) == LONG or rng.random() < 0.3:
            return loss(windows(streams, length_of(step), rng)[:, :-1])
        rows, width = 4096 // text.shape[1], text.shape[1]
        return loss(text[torch.from_numpy(rng.integers(0, len(text), rows))][:, :width])

    fit("draft", network, Schedule(DRAFT_STEPS, cooldown=0.6), loss_of, work / "draft.pt", log)
    return network.requires_grad_(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets target/ and draft/")
    parser.add_argument("--work", type=Path, default=Path("demo-training"), help="checkpoints of each stage")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.work.mkdir(parents=True, exist_ok=True)
    log = Log(args.work / "log.jsonl")

    sources = standard_library()
    kept = args.work / "tokenizer.json"
    if not kept.exists():
        train_tokenizer(sources).save(str(kept))
    tokenizer = Tokenizer.from_file(str(kept))
    streams = training_streams(tokenizer, sources)
    log.say(stage="corpus", files=len(sources), tokens=[len(ids) for _, ids in streams], threads=args.threads)

    target = train_target(streams, args.work, log)
    validation = validation_prompts(tokenizer, sources, 64, 128)
    target = unlearn_loops(target, streams, validation, args.work, log)
    text = write_own_text(target, streams, args.work, log)
    draft = train_draft(target, streams, text, args.work, log)
    learn_mutually(target, draft, streams, validation, args.work, log)
    log.say(stage="measure", **measure(target, draft, held_out_prompts(tokenizer, sources, 256, 128)))
    ends = tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(TURN_END)
    for network, folder in ((target, args.out / "target"), (draft, args.out / "draft")):
        write_model(network, tokenizer, ends, folder)
    log.say(stage="done", out=args.out.name)


if __name__ == "__main__":
    main()
