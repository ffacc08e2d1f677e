"""A tiny Gemma 4 target and its assistant, from folders as the product reads them."""

from fakes.raw_gemma import (
    SIZE,
    assistant_config,
    assistant_tensors,
    target_config,
    target_tensors,
)
from fakes.raw_qwen import write_checkpoint
from specdec_cli.engine.heads.cached_head import CachedHead, Head
from specdec_cli.engine.heads.load_head import load_head
from specdec_cli.engine.load import load
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import read_head


def gemma_target(folder, kind, kv_bits=None):
    """A CachedModel."""
    folder = write_checkpoint(folder / kind, target_tensors(kind), target_config(kind))
    return load(read_checkpoint(folder, kind), kv_bits)


def assistant_folder(folder, kind, tensors=None, config=None):
    """An assistant's folder; `tensors` and `config` in place of its own."""
    tensors = assistant_tensors(kind) if tensors is None else tensors
    return write_checkpoint(folder, tensors, assistant_config(kind) if config is None else config)


def cached_assistant(folder, target, kind, **own):
    """One conversation's assistant over `target`, which nobody asked whether they agree."""
    files = read_head(assistant_folder(folder / f"{kind}-assistant", kind, **own), "assistant")
    return CachedHead(Head(load_head(files, SIZE), target.network, "assistant", recent=files.recent))
