"""A tiny Qwen3.5 that counts, and an MTP head that counts with it: built by hand, in the original layout.

The bytes have an order, each one's embedding is a rotation of the one's before it, and the target's next token is the
next one in that order. Half of the planes turn once in 16 tokens, the others once in 256 or a few times. Of the fast
planes the head asks the token, of the slow ones the state, so it needs both. Channels change their sign at each norm,
so that no state is like the one beside it. What the random layers add decides now and then. Over the byte tokenizer,
so that the whole product can run it.
"""

import json

import numpy as np

from fakes.models import byte_tokenizer, write_tokenizer
from fakes.raw_qwen import TEXT, raw_tensors, write_checkpoint

SIZE, SPECIALS, WORDS = 32, 3, 256
SMALL = TEXT | {
    "hidden_size": SIZE,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": SPECIALS + WORDS,
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 1,
}
CONFIG = {"model_type": "qwen3_5", "dtype": "float32", "text_config": SMALL, "eos_token_id": [2, 0]}
NO_HEAD = CONFIG | {"text_config": SMALL | {"mtp_num_hidden_layers": 0}}
HEAD_CONFIG = CONFIG | {"model_type": "qwen3_5_mtp", "block_size": 3}
TURNS = np.array([16, 48, 80, 112, 16, 48, 80, 112, *range(1, 9)])  # of each plane in 256 tokens
FAR = 95
# Ends with the beginning of the message, so that what the target goes on with differs.
TEMPLATE = "{%- for m in messages -%}{{ m['content'][::-1] }}{%- endfor -%}"
ADDING = ("o_proj.weight", "out_proj.weight", "down_proj.weight")


def words(later):
    """[256, SIZE]: the embeddings of what comes `later` in the order than each byte; the next byte is far away."""
    angles = 2 * np.pi * np.outer(np.arange(WORDS) * FAR + later, TURNS) / WORDS
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(WORDS, SIZE)


def turning():
    """[SIZE, SIZE]: from a token's embedding to the next one's."""
    found = np.zeros((SIZE, SIZE))
    for plane, angle in enumerate(2 * np.pi * TURNS / WORDS):
        at = slice(2 * plane, 2 * plane + 2)
        found[at, at] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return found


def counting_tensors(seed=13, noise=0.1, head_noise=0.7):
    """Every tensor by its original name: norms less 1. The noises scale what layers add to target and head."""
    tensors = raw_tensors(seed=seed, text=SMALL)
    for name, value in tensors.items():
        if name.endswith(ADDING):
            tensors[name] = value * (head_noise if name.startswith("mtp.") else noise)
    drawn = np.random.Generator(np.random.PCG64(seed))
    before, inside, token = drawn.choice([-1.0, 1.0], (3, SIZE))
    last = before * np.exp(0.2 * drawn.standard_normal(SIZE))
    fast = np.repeat(TURNS >= 16, 2)
    none = np.zeros((SPECIALS, SIZE))
    fuse = inside[:, None] * np.concatenate([np.diag(fast * token), turning() * ~fast[:, None]], axis=1)
    made = {
        "model.language_model.embed_tokens.weight": np.concatenate([none + 0.1, words(0)]),
        "lm_head.weight": np.concatenate([none, words(-1) / last]),
        "model.language_model.norm.weight": last - 1,
        "mtp.fc.weight": fuse,
        "mtp.pre_fc_norm_embedding.weight": token - 1,
        "mtp.pre_fc_norm_hidden.weight": 1 / last - 1,
        "mtp.norm.weight": inside * last - 1,
    }
    return tensors | {name: value.astype(np.float32) for name, value in made.items()}


def random_head(tensors, seed=5):
    """The same target with a head that never learned anything."""
    drawn = raw_tensors(seed=seed, text=SMALL)
    return tensors | {name: value for name, value in drawn.items() if name.startswith("mtp.")}


def counting_folder(folder, tensors=None, config=CONFIG, files=None):
    """A folder that the product can load; `tensors` and `files` as of `write_checkpoint`."""
    write_checkpoint(folder, counting_tensors() if tensors is None else tensors, config, files)
    write_tokenizer(folder, byte_tokenizer(), chat_template=TEMPLATE)
    return folder


def head_or_trunk(tensors, head):
    return {name: value for name, value in tensors.items() if name.startswith("mtp.") == head}


def in_fp8(data):
    """The same file, whose `mtp.fc.weight` says that it is in FP8."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    begin, end = header["mtp.fc.weight"]["data_offsets"]
    shape = header["mtp.fc.weight"]["shape"]
    header["mtp.fc.weight"] |= {"dtype": "F8_E4M3", "shape": [shape[0], (end - begin) // shape[0]]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]
