"""Questions to released models, and what mlx-lm's own `generate_step` answers."""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.generate import generate_step

TEXTS = (
    "def add(a, b):\n    return a",
    "The capital of France is",
    "import json\n\ndef read(path):\n",
    "1, 2, 3, 5, 8, 13,",
    "Dear Sir or Madam,\n",
)
SETTINGS = [("model", 1), ("model", 4), ("model", "auto"), ("ngram", 4), ("auto", "auto")]
# More than Gemma's window of 512 tokens, and the answer repeats some of it.
LONG = "".join(f"Line {i}: the value of item {i} is {i * i % 97}.\n" for i in range(45)) + "Line 45:"


_PLAIN = {}


def plain(pair, ids, tokens):
    """mlx-lm's tokens, a stop token included: its loop and caches, one row at a time; each answer once."""
    key = (pair.names[0], tuple(ids), tokens)
    if key not in _PLAIN:
        said = _PLAIN[key] = []
        for token, _ in generate_step(mx.array(ids), pair.session().slot.target.network.module, max_tokens=tokens):
            said.append(int(token))
            if token in pair.tokenizer.stop_tokens:
                break
    return _PLAIN[key]


def spoken(pair, ids, tokens, **options):
    """(tokens, a stop token included; the Finish) of a fresh session's reply."""
    events = list(pair.session().reply(ids, max_tokens=tokens, **options))
    rounds = [event.round for event in events if event.event == "round"]
    return [token for one in rounds for token in one.emitted], events[-1]


def equal(pair, ids, tokens, **options):
    """The Finish of a greedy reply, after it was found to be mlx-lm's, token for token."""
    said, finish = spoken(pair, ids, tokens, temperature=0, **options)
    assert said == plain(pair, ids, tokens), options
    return finish
