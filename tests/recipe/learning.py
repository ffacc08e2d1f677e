"""Minimising a loss; losses of a draft and of repetition; own text. Letters: B batch, T tokens, V vocabulary."""

from copy import deepcopy
from itertools import count

import numpy as np
import torch
import torch.nn.functional as F

from corpus import windows

MUON_RATE, ADAM_RATE = 4e-3, 3e-3
LOOP_GRAM = 8
OWN_PROMPT, FRESH_EVERY = 96, 8  # tokens of the corpus before own text; steps after which it is written anew
WANTED_REPETITION = 0.12


def fit(name, network, loss, batches, steps, cooldown=0.6, peak=1.0):
    """Minimise `loss(*batch)` by Muon (Jordan et al. 2024) for the hidden matrices and AdamW for embeddings and norms.

    The rates, times `peak`, rise over the first 2 % of the steps and fall to 0 over their last share, `cooldown`."""
    hidden = [p for n, p in network.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in network.named_parameters() if p.dim() != 2 or "embed" in n]
    muon = torch.optim.Muon(hidden, lr=MUON_RATE, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    compiled = torch.compile(loss, dynamic=False)
    for step, batch in zip(range(steps), batches, strict=False):
        falling = (steps - step) / (cooldown * steps) if cooldown else 1.0
        scale = peak * min(1.0, (step + 1) / (0.02 * steps), falling)
        muon.param_groups[0]["lr"], adam.param_groups[0]["lr"] = MUON_RATE * scale, ADAM_RATE * scale
        with torch.autocast("cpu", torch.bfloat16):
            error = compiled(*batch)
        error.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in (muon, adam):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 25 == 0 or step + 1 == steps:
            print(f"{name}: step {step + 1} of {steps}, loss {error.item():.4f}", flush=True)


def cross_entropy(logits, ids):
    """Nats a token: logits [B, T, V], ids [B, T]."""
    return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


def divergence(p, q):
    """[B, T]: KL(p ‖ q) of log-probabilities [B, T, V]."""
    return (p.exp() * (p - q)).sum(-1)


def lesson(p, q):
    """What a draft learns of its target, of log-probabilities q and p [B, T, V]: KL, and half a cross-entropy to p's
    argmax; p gets no gradient."""
    p = p.detach()
    return divergence(p, q).mean() + 0.5 * F.nll_loss(q.flatten(0, 1), p.argmax(-1).flatten())


def unlikelihood(log_probs, own, looping):
    """-log(1 - p) of the tokens that repeat, their mean (Welleck et al., arXiv:1908.04319): log_probs [B, width, V]."""
    chosen = log_probs.gather(-1, own[:, 1:, None])[:, OWN_PROMPT - 1 :, 0]
    penalty = -torch.log1p(-chosen.exp().clamp(max=1 - 1e-4))
    return (penalty * looping).sum() / looping.sum().clamp(min=1)


@torch.no_grad()
def continue_text(network, prompts, tokens, temperature=0.0, seed=0):
    """[B, T + tokens] ids: the prompts [B, T] and what the network writes after them; temperature 0 is greedy."""
    generator, pasts = torch.Generator().manual_seed(seed), [{} for _ in network.model.layers]
    ids = last = prompts
    for _ in range(tokens):
        with torch.autocast("cpu", torch.bfloat16):
            logits = network(last, pasts)[:, -1].float()
        if temperature:
            last = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        else:
            last = logits.argmax(-1, keepdim=True)
        ids = torch.cat((ids, last), 1)
    return ids


def repeats(ids):
    """[B, T] of 0 and 1: this id completes a LOOP_GRAM-gram that occurred before in its row."""
    marks = torch.zeros(ids.shape)
    for row, mark in zip(ids.tolist(), marks, strict=True):
        seen = set()
        for end in range(LOOP_GRAM, len(row) + 1):
            gram = tuple(row[end - LOOP_GRAM : end])
            mark[end - 1] = gram in seen
            seen.add(gram)
    return marks


def repetition_rates(ids):
    """[B]: share of the LOOP_GRAM-grams of a row that occurred before in it: 0 never repeats, near 1 is a loop."""
    return repeats(ids)[:, LOOP_GRAM - 1 :].mean(1)


def own_text(network, streams, rows, width, seed):
    """A step's ids [rows / FRESH_EVERY, width + 1] of corpus prompts that the network in training continued greedily,
    FRESH_EVERY steps ago at most, and their repeats [.., width + 1 - OWN_PROMPT]; without end."""
    for group in count():
        prompts = windows(streams, OWN_PROMPT, np.random.default_rng(seed + group), rows)[:, :OWN_PROMPT]
        text = continue_text(network, prompts, width + 1 - OWN_PROMPT)
        print(f"own text: repetition {repetition_rates(text[:, OWN_PROMPT:]).mean():.4f}", flush=True)
        yield from ((own, repeats(own[:, OWN_PROMPT:])) for own in text.chunk(FRESH_EVERY))


def take_least_step(network, before, target, validation, shares):
    """Average `network` with its state `before` (Wortsman et al., arXiv:2109.01903): take the least of `shares` of the
    way whose `target` repeats at most WANTED_REPETITION after `validation` prompts, else the one that repeats least."""
    after, tried = deepcopy(network.state_dict()), []

    def load(share):
        network.load_state_dict({name: torch.lerp(value, after[name], share) for name, value in before.items()})

    for share in shares:
        load(share)
        text = continue_text(target, validation, 128)
        tried.append((repetition_rates(text[:, validation.shape[1] :]).mean().item(), share))
        print(f"average at {share}: repetition {tried[-1][0]:.4f}", flush=True)
        if tried[-1][0] <= WANTED_REPETITION:
            return
    load(min(tried)[1])
