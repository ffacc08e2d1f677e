"""Tiny pairs over bytes, of every kind of cache and of draft: what the laws of whole conversations range over.

A pair's `kind` is a key of CACHES, whose draft is the same network moved a little, or a name of KINDS.
"""

from __future__ import annotations

from fakes.chat import BYTES, NEVER_STOP, loaded, networks, tokenizer_in
from fakes.drafting import translated
from fakes.gemma import agreeing_assistant
from fakes.heads import agreeing_head, cached_head, tiny_target, trained_medusa
from specdec_cli.core.events import RoundDone
from specdec_cli.core.request import Request
from specdec_cli.engine.model import CachedModel
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot

CACHES = {
    "plain": "qwen3",
    "window": "gemma3_text",
    "chunks": "llama4",
    "recurrent": "qwen3_5",
    "state": "mamba2",
    "recurrent and window": "recurrent_gemma",
}
# Heads by the network of their target.
HEADS = {"head": "qwen3_5", "head of experts": "qwen3_5_moe", "bounded head": "qwen3_5", "medusa": "qwen3_5"}
ASSISTANTS = {"assistant": ("gemma4_text", {}), "assistant of clusters": ("gemma4", {"clusters": 16, "best": 8})}
KINDS = (*CACHES, "quantized", "draft of the end", "translated", "alone", *HEADS, *ASSISTANTS)
BOUND = 64  # tokens that a draft reads where it is bounded
MUTE = range(5, BYTES, 9)  # tokens that a translated draft has no word for
PROMPT = [3 + (7 * i * i + i) % 97 for i in range(57)]
OTHER = [3 + (7 * i) % 97 for i in range(41)]


def slot_of(kind: str, recent: int | None = None, draft: str | None = None) -> Slot:
    """The first conversation of such a pair; its draft reads `recent` tokens, and has the caches `draft`."""
    if kind in ASSISTANTS:
        name, clusters = ASSISTANTS[kind]
        target = tiny_target(name)
        return Slot(target, agreeing_assistant(target, **clusters))
    if kind in HEADS:
        target = tiny_target(HEADS[kind])
        made = trained_medusa(target) if kind == "medusa" else agreeing_head(target)
        reads = {"medusa": 1, "bounded head": BOUND}.get(kind, recent)
        return Slot(target, cached_head(target, made, recent=reads))
    bits = {"kv_bits": 8} if kind == "quantized" else {}
    target, other = networks(CACHES.get(kind, "qwen3"), **({"head_dim": 32} if bits else {}))
    other = networks(CACHES[draft])[1] if draft else other
    if kind == "translated":
        return Slot(CachedModel(target, "t"), translated(other, MUTE, recent=recent))
    recent = BOUND if kind == "draft of the end" else recent
    drafting = None if kind == "alone" else CachedModel(other, "d", recent=recent, **bits)
    return Slot(CachedModel(target, "t", **bits), drafting)


def pair_of(kind: str, folder, **more) -> LoadedPair:
    return loaded(slot_of(kind), tokenizer_in(folder), **more)


def asked(k, seed=None, tokens=40, drafter="model", **more) -> Request:
    """Greedy, or at 0.8 under a seed; it never stops by itself."""
    usual = {"logit_bias": NEVER_STOP, "sampling": {"temperature": 0.8} if seed is not None else {}}
    return Request(tokens, k=k, seed=seed, drafter=drafter, **usual | more)


def rounds_of(events):
    return [event.round for event in events if isinstance(event, RoundDone)]


def said(events) -> list[int]:
    return [token for round in rounds_of(events) for token in round.emitted]


def plain(pair: LoadedPair, prompt, request: Request) -> list[int]:
    """What mlx-lm's own decoding says."""
    return [step.token for step in pair.session().plain(prompt, request)]
