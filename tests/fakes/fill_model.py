"""A tiny model over bytes with Qwen's marks for filling in, and a draft of it that often guesses right."""

from __future__ import annotations

from fakes.models import TINY, byte_tokenizer, tiny_network, write_model

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>")


def fill_folder(folder, marks=MARKS, noise=0.0, context=1024):
    """A loadable folder with random weights."""
    config = TINY | {"vocab_size": 259 + len(marks), "max_position_embeddings": context}
    return write_model(folder, tiny_network(config, seed=5, noise=noise), config, byte_tokenizer(marks=marks))
