"""Plain constrained decoding that shares nothing with the engine: mlx-lm's loop, and llguidance one token at a time."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from llguidance import LLMatcher, LLTokenizer
from mlx_lm.generate import generate_step
from tokenizers import AddedToken

from fakes.models import TINY, byte_tokenizer

STOPS = frozenset({0, 2})
BYTES = byte_tokenizer().to_str()
WIDTH = 259
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
    matcher = LLMatcher(LLTokenizer(BYTES, n_vocab=WIDTH, eos_token=sorted(STOPS)), grammar, log_level=0)

    def mask():
        return np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")[:WIDTH] > 0

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


# A tiny model that thinks: the test itself finds the end of the thinking.


BEGIN, END, V = 259, 260, 261
THINKS = TINY | {"vocab_size": V}


def thinking_tokenizer(special: bool):
    """`<think>` and `</think>` as tokens of their own: special ones, or, as Qwen's, ordinary ones."""
    tokenizer = byte_tokenizer()
    tokens = [AddedToken(text, special=special, normalized=False) for text in ("<think>", "</think>")]
    (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(tokens)
    assert tokenizer.encode("</think>").ids == [END]
    return tokenizer


# A random model stops thinking now and then, and writes ASCII: text must be UTF-8, which bytes at random are not.
BIAS = ((END, 2.5), *((byte, -100.0) for byte in range(3, 259) if not byte_tokenizer().decode([byte]).isascii()))


class Watched:
    """Masks of `expression` behind the end of the thinking, which is found by comparing ids; free before."""

    def __init__(self, tokenizer, expression: str, special: bool) -> None:
        made = LLTokenizer(tokenizer.to_str(), n_vocab=V, eos_token=sorted(STOPS))
        self._matcher = LLMatcher(made, LLMatcher.grammar_from_regex(f"\n{{0,2}}({expression})"), log_level=0)
        never = [*range(3), *([BEGIN] if special else [])]
        self._free = np.array([token not in never for token in range(V)])
        self._thinks = True

    def take(self, token: int) -> None:
        if self._thinks:
            self._thinks = token != END
        else:
            assert self._matcher.consume_token(token) or token in STOPS

    def mask(self) -> np.ndarray:
        """[V] of bool."""
        if self._thinks:
            return self._free
        return np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")[:V] > 0


def plainly_thinking(network, watched, prompt, max_tokens, noise=None):
    """Token ids by mlx-lm's loop, the stop token included; `noise(position)` [V] is added before the best is taken."""
    added = np.zeros(V, np.float32)
    for token, value in BIAS:
        added[token] = value
    return plainly_masked(network, prompt, max_tokens, watched.take, watched.mask, noise, added)
