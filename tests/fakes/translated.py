"""A draft of another vocabulary: a tiny network whose rows stand elsewhere, and what the ids of both mean."""

from __future__ import annotations

import random
from dataclasses import replace

import mlx.core as mx
from mlx.utils import tree_flatten

from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.translated import TranslatedModel
from specdec_cli.models.translation import Translation
from specdec_cli.models.vocab import TokenTable

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
