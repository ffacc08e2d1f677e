"""Plain constrained decoding that shares nothing with the engine: mlx-lm's loop, and llguidance one token at a time."""

import mlx.core as mx
import numpy as np
from llguidance import LLMatcher, LLTokenizer
from mlx_lm.generate import generate_step

from fakes.models import byte_tokenizer

STOPS = frozenset({0, 2})
BYTES = byte_tokenizer().to_str()
V = 259
TEXTS = {
    "schema": LLMatcher.grammar_from_json_schema,
    "regex": LLMatcher.grammar_from_regex,
    "grammar": LLMatcher.grammar_from_lark,
}
JSON = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf\\"',
}


def plainly_constrained(network, constraint, prompt, max_tokens, noise=None):
    """Token ids, the stop token included. `noise(position)` [V] is added before the best is taken."""
    made = TEXTS[constraint.kind]
    grammar = made(constraint.text, overrides=JSON) if constraint.kind == "schema" else made(constraint.text)
    matcher = LLMatcher(LLTokenizer(BYTES, n_vocab=V, eos_token=sorted(STOPS)), grammar, log_level=0)

    def mask():
        return np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")[:V] > 0

    return plainly_masked(network, prompt, max_tokens, lambda token: matcher.try_consume_tokens([token]), mask, noise)


def plainly_masked(network, prompt, max_tokens, take, mask, noise=None, bias=0.0):
    """Token ids by mlx-lm's loop, up to the first stop token, that one included.

    `take(token)` hears of each, and `mask()` [V] of bool says what may be next.
    `bias` [V] and `noise(position)` [V] are added before the best is taken.
    """

    def masked(tokens, logits):
        if tokens.size > len(prompt):
            take(int(tokens[-1]))
        logits = mx.where(mx.array(mask()), logits.astype(mx.float32), -mx.inf)
        return logits + mx.array(bias) + (noise(tokens.size) if noise else 0.0)

    found = []
    steps = generate_step(
        mx.array(prompt), network, max_tokens=max_tokens, sampler=lambda x: mx.argmax(x, -1), logits_processors=[masked]
    )
    for token, _ in steps:
        found.append(int(token))
        if token in STOPS:
            break
    return found
