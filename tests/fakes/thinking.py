"""A tiny model over bytes that thinks; where that ends, a test finds itself."""

from __future__ import annotations

from fakes.models import TINY, byte_tokenizer

STOPS = frozenset({0, 2})
BEGIN, END, V = 259, 260, 261
THINKS = TINY | {"vocab_size": V}


def thinking_tokenizer(special: bool):
    """`<think>` and `</think>` as tokens of their own: special ones, or, as Qwen's, ordinary ones."""
    tokenizer = byte_tokenizer(**{"special" if special else "marks": ("<think>", "</think>")})
    assert tokenizer.encode("</think>").ids == [END]
    return tokenizer


# A random model stops thinking now and then, and writes ASCII: text must be UTF-8, which bytes at random are not.
BIAS = ((END, 2.5), *((byte, -100.0) for byte in range(3, 259) if not byte_tokenizer().decode([byte]).isascii()))
