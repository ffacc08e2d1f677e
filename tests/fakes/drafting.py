"""Drafters and conversations as the product makes them, from parts that a test holds; drafts of another vocabulary."""

from __future__ import annotations

import random
from dataclasses import replace

import mlx.core as mx
from mlx.utils import tree_flatten

from fakes.heads import cached_head
from specdec_cli.core.kinds import DRAFTERS, TRANSLATED, import_named
from specdec_cli.engine.drafters.base import Parts
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.lookup import LookupDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.translated import TranslatedModel
from specdec_cli.models.translation import Translation
from specdec_cli.models.vocab import TokenTable
from specdec_cli.session.load import load


def draft_for(name, target, draft):
    """What drafts for `target` under this name: `draft`, the same with another tokenizer, or a head."""
    if DRAFTERS[name].reads_hidden:
        return cached_head(target)
    if name == TRANSLATED.name and draft.kind != name:
        return translated(draft.network.module, mute=range(5, target.vocab_size, 9))
    return draft


def drafters_of(name, target, draft, rule, k=4, constraint=None):
    """Those of the kind `name` at a fixed K; a head gets random weights."""
    kind = DRAFTERS[name]
    parts = Parts(target, draft_for(name, target, draft), rule)
    drafter = import_named(kind.make)(parts) if kind.make else None
    return Drafters(drafter, k, LookupDrafter() if kind.looks_up else None, constraint)


def open_session(pair, drafter=None, **more):
    """A conversation in the first slot of `pair`."""
    loaded = load(pair, drafter=drafter, **more)
    return loaded.session(loaded.first)


# A tiny network whose rows stand elsewhere, and what the ids of both vocabularies mean.


MORE = 7  # rows that only the draft has; the first begins every text


def tables(width, mute, seed=0):
    """(the target's, the draft's, where the target's rows stand in the draft's network).

    The draft has no id for the words `mute`, each of which is two others.
    """
    words = [b"<%d>" % token for token in range(width)]
    known = [token for token in range(width) if token not in mute]
    for token in mute:
        words[token] = words[known[-1 - token % 5]] + words[known[-2]]
    order = list(range(width + MORE))
    random.Random(seed).shuffle(order)
    own = {row: b"[%d]" % row for row in order} | {order[token]: words[token] for token in known}
    return TokenTable(dict(enumerate(words)), {}), TokenTable(own, {}), order


def translation_of(width, mute=(), seed=0):
    target, draft, order = tables(width, mute, seed)
    return Translation(target, draft, [order[width]])


def translated(network, mute=(), seed=0, recent=None):
    """`network` as a draft of a tokenizer of its own, for a target of its width."""
    old = dict(tree_flatten(network.parameters()))
    width = network.args.vocab_size
    order = mx.array(tables(width, mute, seed)[2])
    other = type(network)(replace(network.args, vocab_size=width + MORE))
    for name in [name for name in old if "embed_tokens" in name or "lm_head" in name]:
        rows = mx.random.normal((width + MORE, old[name].shape[1]), key=mx.random.key(seed))
        rows[order[:width]] = old[name]
        old[name] = rows
    other.load_weights(list(old.items()))
    mx.eval(other.parameters())
    return TranslatedModel.of(CachedModel(other, "draft", recent=recent), translation_of(width, mute, seed), width)
