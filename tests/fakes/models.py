"""Fakes and tiny real models for the tests: no weights from anywhere, no network."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import qwen3
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TINY = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": 259,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eos_token_id": [2, 0],
    "dtype": "float32",
}
# A model with Qwen's marks for filling in.
FILLS = {
    "config": TINY | {"max_position_embeddings": 1024},
    "marks": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
    "seed": 5,
}
CHAT_TEMPLATE = (
    "{%- for m in messages -%}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


def tiny_network(config=TINY, seed=0, noise=0.0, gain=0.25):
    """A random float32 Qwen3 whose greedy output varies; `noise` perturbs a network of the same seed."""
    mx.random.seed(seed)
    network = qwen3.Model(qwen3.ModelArgs.from_dict(config))
    _shake(network, gain)
    if noise:
        _shake(network, noise)
    mx.eval(network.parameters())
    return network


def _shake(network, scale):
    network.update(
        tree_map(lambda p: p + mx.random.normal(p.shape) * scale if p.ndim == 2 else p, network.parameters())
    )


def byte_tokenizer(words=(), marks=(), special=()):
    """Ids 0-2 are special, 3-258 the bytes: every split of a character over tokens happens.

    Then `words`, which are never read, and tokens that a text is searched for: `marks`, and `special` ones.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    names = [level.pre_tokenize_str(word)[0][0] for word in words]
    vocabulary = {token: i for i, token in enumerate(SPECIALS + alphabet + names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = level
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in marks])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer


STRIPPED = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)


def sentence_piece(special=(), decoder=STRIPPED):
    """One as Llama's: a space before every text, pieces with U+2581, a token that begins every text."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefxy", "▁a", "▁b"]
    vocabulary, merges = {piece: i for i, piece in enumerate(pieces)}, [("▁", "a"), ("▁", "b")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("<s>", "</s>", *special)])
    return tokenizer


def write_tokenizer(folder: Path, tokenizer, **extra):
    tokenizer.save(str(folder / "tokenizer.json"))
    values = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(values | extra))


def swap_two_ids(tokenizer_json: bytes) -> bytes:
    """The same tokenizer but for its ids 40 and 41."""
    tokenizer = json.loads(tokenizer_json)
    names = {i: name for name, i in tokenizer["model"]["vocab"].items()}
    tokenizer["model"]["vocab"] |= {names[40]: 41, names[41]: 40}
    return json.dumps(tokenizer).encode()


def other_letters(tokenizer_json: bytes) -> bytes:
    """The same tokenizer, of which the ids from 40, F to ~, stand for three of their kind: it says little of a text."""
    tokenizer = json.loads(tokenizer_json)
    words = tokenizer["model"]["vocab"].items()
    tokenizer["model"]["vocab"] = {name * 3 if 40 <= i <= 96 else name: i for name, i in words}
    return json.dumps(tokenizer).encode()


def write_model(folder: Path, weights, config, tokenizer=None, **extra) -> Path:
    """A folder that the product can load; `weights` are a network, or arrays by name."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = dict(tree_flatten(weights.parameters())) if isinstance(weights, nn.Module) else weights
    mx.save_safetensors(str(folder / "model.safetensors"), arrays)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, tokenizer or byte_tokenizer(), **extra)
    return folder


def tiny_folder(folder: Path, config=TINY, seed=0, noise=0.0, endless=False, marks=(), special=(), **extra) -> Path:
    """A loadable model folder with random weights and the byte tokenizer; `endless` never says a special token.

    `marks` and `special` tokens are more of them; `extra` is said in tokenizer_config.json.
    """
    config = config | {"vocab_size": config["vocab_size"] + len(marks) + len(special)}
    weights = dict(tree_flatten(tiny_network(config, seed, noise).parameters()))
    if endless:
        head = weights["lm_head.weight"]
        weights["lm_head.weight"] = mx.concatenate([mx.zeros((len(SPECIALS), head.shape[1])), head[len(SPECIALS) :]])
    return write_model(folder, weights, config, byte_tokenizer(marks=marks, special=special), **extra)
