# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "tokenizers>=0.22", "safetensors>=0.6", "numpy>=2"]
# ///
"""Train the demo pair from this machine's own Python: `uv run train.py --out FOLDER`.

Six stages, each kept in --work so that a rerun goes on where it stopped: tokenizer, target, the target
unlearning its loops (Welleck et al., arXiv:1908.04319), the target's own text, the draft (distilled on
that text and on the corpus), measurement and export.
Speculative acceptance is won by the draft's agreement with the target on text the *target* writes
(DistillSpec, Zhou et al., arXiv:2310.08461), so the draft learns on exactly that.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from agreement import measure
from continuation import continue_text, repeats, repetition_rate
from corpus import (
    END_OF_TEXT,
    TURN_END,
    VOCABULARY,
    held_out_prompts,
    standard_library,
    train_tokenizer,
    training_streams,
)
from export import write_model
from network import Network, Shape

TARGET = Shape(layers=8, width=256, hidden=512, heads=4, kv_heads=2, vocabulary=VOCABULARY)
DRAFT = Shape(layers=2, width=256, hidden=320, heads=4, kv_heads=2, vocabulary=VOCABULARY)
TOKENS_PER_STEP = 8192
SHORT, LONG = 512, 1024
SAY_EVERY = 25
OWN_TOKENS = 192
CALM = 0.65
PEAK_MUON, PEAK_ADAM = 5e-3, 4e-3
WARMUP, COOLDOWN = 0.02, 0.6  # shares of the run: linear up, flat, linear down to zero


def say(**fields: object) -> None:
    print(json.dumps({"time": time.strftime("%H:%M:%S"), **fields}), flush=True)


def windows(streams: list[tuple[float, np.ndarray]], length: int, rng: np.random.Generator) -> Tensor:
    """[TOKENS_PER_STEP / length, length + 1] ids cut at random from the streams by their shares."""
    shares = np.array([share for share, _ in streams])
    rows = []
    for which in rng.choice(len(streams), TOKENS_PER_STEP // length, p=shares / shares.sum()):
        ids = streams[which][1]
        start = rng.integers(0, len(ids) - length - 1)
        rows.append(ids[start : start + length + 1].astype(np.int64))
    return torch.from_numpy(np.stack(rows))


def optimizers(network: Network, share_of_peak: float) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the hidden matrices, AdamW for embeddings and norms."""
    hidden = [p for n, p in network.named_parameters() if p.dim() == 2 and "embed" not in n]
    rest = [p for n, p in network.named_parameters() if p.dim() != 2 or "embed" in n]
    return [
        torch.optim.Muon(hidden, lr=PEAK_MUON * share_of_peak, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=PEAK_ADAM * share_of_peak, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def fit(
    name: str,
    network: Network,
    steps: int,
    batch: Callable[[int], Tensor],
    loss_of: Callable[[Tensor], Tensor],
    checkpoint: Path,
    share_of_peak: float = 1.0,
) -> None:
    """Minimise `loss_of` over `batch(step)`; resumes from `checkpoint` and writes it every 200 steps."""
    chosen = optimizers(network, share_of_peak)
    peaks = [group["lr"] for optimizer in chosen for group in optimizer.param_groups]
    begin = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        network.load_state_dict(state["network"])
        for optimizer, kept in zip(chosen, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        begin = state["step"]
    clock, mean = time.time(), 0.0
    for step in range(begin, steps):
        share = step / steps
        scale = min(1.0, (share + 1 / steps) / WARMUP, (1 - share) / COOLDOWN)
        for optimizer, peak in zip(chosen, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * scale
        loss = loss_of(batch(step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in chosen:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        mean += loss.item()
        if (step + 1) % SAY_EVERY == 0:
            rate = SAY_EVERY / (time.time() - clock)
            say(stage=name, step=step + 1, loss=round(mean / SAY_EVERY, 4), steps_per_second=round(rate, 3))
            clock, mean = time.time(), 0.0
        if (step + 1) % 200 == 0 or step + 1 == steps:
            kept = [optimizer.state_dict() for optimizer in chosen]
            torch.save({"network": network.state_dict(), "optimizers": kept, "step": step + 1}, checkpoint)


def length_of(step: int) -> int:
    """Mostly short windows; every fourth batch teaches the full context."""
    return LONG if step % 4 == 3 else SHORT


def train_target(streams: list[tuple[float, np.ndarray]], steps: int, work: Path) -> Network:
    network = Network(TARGET)
    forward = torch.compile(network, dynamic=False)

    def loss_of(ids: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = forward(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    def batch(step: int) -> Tensor:
        return windows(streams, length_of(step), np.random.default_rng(step))

    fit("target", network, steps, batch, loss_of, work / "target.pt")
    return network


def unlearn_loops(network: Network, streams: list[tuple[float, np.ndarray]], steps: int, work: Path) -> Network:
    """Half likelihood of the corpus, half unlikelihood of what the network's own greedy text repeats.

    The weights are then averaged with those from before (Wortsman et al., arXiv:2109.01903): all the way loops are
    gone but held-out loss is worse by 0.8 nats, a CALM share of the way keeps most of both.
    """
    before = {name: value.clone() for name, value in network.state_dict().items()}
    forward = torch.compile(network, dynamic=False)
    prompt = 96

    def loss_of(both: Tensor) -> Tensor:
        corpus, own = both
        with torch.autocast("cpu", dtype=torch.bfloat16):
            wanted, unwanted = forward(corpus[:, :-1]), forward(own[:, :-1])
        likelihood = F.cross_entropy(wanted.flatten(0, 1).float(), corpus[:, 1:].flatten())
        chosen = unwanted.float().log_softmax(-1).gather(-1, own[:, 1:, None])[..., 0]
        looping = torch.from_numpy(np.stack([repeats(row[prompt:].numpy()) for row in own]))
        penalty = -torch.log1p(-chosen[:, prompt - 1 :].exp().clamp(max=1 - 1e-4))
        return likelihood + (penalty * looping).sum() / looping.sum().clamp(min=1)

    def batch(step: int) -> Tensor:
        rng = np.random.default_rng(30_000 + step)
        prompts = windows(streams, SHORT, rng)[:, :prompt]
        own = continue_text(network, prompts, SHORT + 1 - prompt, 0.0, step)
        if step % SAY_EVERY == 0:
            rates = [repetition_rate(row[prompt:].numpy()) for row in own]
            say(stage="loops", step=step, repetition_rate=round(float(np.mean(rates)), 4))
        return torch.stack((windows(streams, SHORT, rng), own))

    fit("loops", network, steps, batch, loss_of, work / "calm.pt", share_of_peak=0.1)
    after = network.state_dict()
    network.load_state_dict({name: torch.lerp(value, after[name], CALM) for name, value in before.items()})
    return network.requires_grad_(False)


def write_own_text(target: Network, streams: list[tuple[float, np.ndarray]], batches: int, work: Path) -> Tensor:
    """[rows, SHORT]: training prompts continued by the target, half greedy, half at temperature 1, without loops."""
    prompt, width = SHORT - OWN_TOKENS, 256
    kept = []
    for index in range(batches):
        part = work / f"own-{index}.pt"
        if not part.exists():
            rng = np.random.default_rng(10_000 + index)
            cuts = [windows(streams, SHORT, rng)[:, :prompt] for _ in range(width * SHORT // TOKENS_PER_STEP)]
            ids = continue_text(target, torch.cat(cuts), OWN_TOKENS, float(index % 2), index)
            ids = ids[torch.tensor([repetition_rate(row[prompt:].numpy()) < 0.5 for row in ids])]
            torch.save(ids.to(torch.int16), part)
            say(stage="text", batch=index, rows=len(ids), of=width)
        kept.append(torch.load(part).long())
    return torch.cat(kept)


def train_draft(
    target: Network, streams: list[tuple[float, np.ndarray]], text: Tensor, steps: int, work: Path
) -> Network:
    network = Network(DRAFT)
    network.model.embed_tokens.load_state_dict(target.model.embed_tokens.state_dict())
    student = torch.compile(network, dynamic=False)
    teacher = torch.compile(target, dynamic=False)

    def loss_of(ids: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                taught = teacher(ids).float().flatten(0, 1)
            logits = student(ids).float().flatten(0, 1)
        learned = logits.log_softmax(-1)
        divergence = F.kl_div(learned, taught.log_softmax(-1), reduction="batchmean", log_target=True)
        return divergence + 0.5 * F.nll_loss(learned, taught.argmax(-1))

    def batch(step: int) -> Tensor:
        rng = np.random.default_rng(20_000 + step)
        length = length_of(step)
        if length == LONG or rng.random() < 0.4:
            return windows(streams, length, rng)[:, :length]
        return text[torch.from_numpy(rng.integers(0, len(text), TOKENS_PER_STEP // length))]

    fit("draft", network, steps, batch, loss_of, work / "draft.pt")
    return network.requires_grad_(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets target/ and draft/")
    parser.add_argument("--work", type=Path, default=Path("demo-training"), help="checkpoints of each stage")
    parser.add_argument("--target-steps", type=int, default=2200)
    parser.add_argument("--loop-steps", type=int, default=75)
    parser.add_argument("--text-batches", type=int, default=4)
    parser.add_argument("--draft-steps", type=int, default=1900)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.work.mkdir(parents=True, exist_ok=True)

    sources = standard_library()
    kept = args.work / "tokenizer.json"
    if not kept.exists():
        train_tokenizer(sources).save(str(kept))
    tokenizer = Tokenizer.from_file(str(kept))
    streams = training_streams(tokenizer, sources)
    say(stage="corpus", files=len(sources), tokens=[len(ids) for _, ids in streams])

    target = train_target(streams, args.target_steps, args.work)
    target = unlearn_loops(target, streams, args.loop_steps, args.work)
    text = write_own_text(target, streams, args.text_batches, args.work)
    draft = train_draft(target, streams, text, args.draft_steps, args.work)
    figures = measure(target, draft, held_out_prompts(tokenizer, sources, 256, 128))
    say(stage="measure", **figures)
    ends = tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(TURN_END)
    for network, folder in ((target, args.out / "target"), (draft, args.out / "draft")):
        write_model(network, tokenizer, ends, folder)
    say(stage="done", out=str(args.out))


if __name__ == "__main__":
    main()
