"""Folders that cannot be loaded: what was done to a copy of one that can, by the name that rows of `refusals` give it.

`WRONG` has them by what they are a copy of.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from fakes.models import other_letters
from specdec_cli.core.safetensors import INDEX

Change = Callable[[Path], object]
CONFIG, TOKENIZER, GENERATION = "config.json", "tokenizer_config.json", "generation_config.json"
WEIGHTS = "model.safetensors"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 99\n"


def keyed(file: str, **values: object) -> Change:
    """With these in that file, in its `text_config` if that has them."""

    def change(folder: Path) -> None:
        there = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        for name, value in values.items():
            inner = there.get("text_config", {})
            (inner if name in inner and name not in there else there)[name] = value
        (folder / file).write_text(json.dumps(there))

    return change


def configured(**values: object) -> Change:
    return keyed(CONFIG, **values)


def holding(file: str, text: str) -> Change:
    return lambda folder: (folder / file).write_text(text)


def only(**files: str) -> Change:
    """Nothing but these files, of which __ is the point."""

    def change(folder: Path) -> None:
        for path in folder.iterdir():
            path.unlink()
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(text)

    return change


def marked(file: str) -> Change:
    """With a byte order mark, as Windows' editors write it."""

    def change(folder: Path) -> None:
        path = folder / file
        path.write_bytes(b"\xef\xbb\xbf" + (path.read_bytes() if path.exists() else b"{}"))

    return change


def pointing(file: str) -> Change:
    """A clone without git-lfs."""

    def change(folder: Path) -> None:
        if file == "tokenizer.model":
            (folder / "tokenizer.json").unlink()
        (folder / file).write_text(POINTER)

    return change


def renamed(name: str) -> Change:
    return lambda folder: (folder / WEIGHTS).rename(folder / name)


def cut(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:1000])


def cut_short(folder: Path) -> None:
    """Its header says how large it is."""
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-64])


def named_zz(folder: Path) -> None:
    """Two strings have one id."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {"zz": 50}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def relettered(folder: Path) -> None:
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_bytes(other_letters(tokenizer.read_bytes()))


def tokenized(file: str = "", text: str | None = None) -> Change:
    """Of a type that transformers makes an empty tokenizer for, with `file` alone or none: `check` said "runs".

    `text` is its content; None: a tokenizer of special tokens only.
    """

    def change(folder: Path) -> None:
        values = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        (folder / "tokenizer.json").unlink()
        special = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(special))
        values["model"]["vocab"] = {}
        if file:
            (folder / file).write_text(json.dumps(values) if text is None else text)

    return change


def stored(change: Callable[[dict[str, np.ndarray]], object]) -> Change:
    """With its tensors changed."""

    def apply(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / WEIGHTS)

    return apply


def having(name: str, *shape: int) -> Change:
    return stored(lambda tensors: tensors.update({name: np.zeros(shape, np.float32)}))


def lacking(word: str) -> Change:
    return stored(lambda tensors: [tensors.pop(name) for name in list(tensors) if word in name])


def named_medusa(file: str, **tensors: np.ndarray) -> Change:
    """Heads of others' in `file`; without tensors a pickle."""

    def change(folder: Path) -> None:
        only(config__json=json.dumps({"model_type": "medusa", "medusa_num_heads": 2}))(folder)
        save_file(tensors, folder / file) if tensors else (folder / file).write_bytes(b"\x80\x02")

    return change


def in_bitsandbytes(tensors: dict[str, np.ndarray]) -> None:
    for name in [name for name in tensors if "proj" in name]:
        tensors[name] = np.zeros((tensors[name].size // 2, 1), np.uint8)
        tensors[f"{name}.absmax"] = np.zeros(4, np.uint8)


# What mlx-lm refuses by the configuration alone: `check` said "runs", and the load asked for another download.
FOREIGN = {
    "fp8-dynamic": {"quant_method": "compressed-tensors", "format": "float-quantized"},
    "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8"},
    "gptq-8": {"quant_method": "gptq", "bits": 8},
    "packed-in-4": {"quant_method": "compressed-tensors", "format": "pack-quantized"},
    "nvfp4-of-modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "unnamed": {"quantization": {"quant_algo": "FP8"}},
}


def packed_by(method: str) -> Change:
    def change(folder: Path) -> None:
        configured(quantization_config={"quant_method": method})(folder)
        stored(in_bitsandbytes)(folder)

    return change


def fewer(tensors: dict[str, np.ndarray]) -> None:
    for name in tensors:
        if name.endswith(("q_proj.weight", "o_proj.weight")):
            axis = int(name.endswith("o_proj.weight"))
            tensors[name] = np.take(tensors[name], range(3 * tensors[name].shape[axis] // 4), axis)


def heads_of_three(folder: Path) -> None:
    stored(fewer)(folder)
    configured(num_attention_heads=3)(folder)


def drawn_anew(tensors: dict[str, np.ndarray]) -> None:
    drawn = np.random.default_rng(3)
    for name, value in tensors.items():
        if value.ndim > 1:
            tensors[name] = drawn.standard_normal(value.shape).astype(np.float32) / value.shape[-1] ** 0.5


def cut_states(tensors: dict[str, np.ndarray]) -> None:
    tensors["post_projection.weight"] = tensors["post_projection.weight"][:48]


def named_twice(tensors: dict[str, np.ndarray]) -> None:
    tensors["masked_embedding.token_ordering"][0] = tensors["masked_embedding.token_ordering"][1]


SHARDS = {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}
LORA = json.dumps({"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen2-VL-2B"})
PACKED = {
    "mtp.fc.weight": np.zeros((32, 8), np.uint32),
    "mtp.fc.scales": np.zeros((32, 3), np.float32),
    "mtp.fc.biases": np.zeros((32, 3), np.float32),
}
FOUR = np.zeros((4, 4), np.float32)
OURS = {"blocks.0.layers.0.weight": FOUR}
OWN_KEYS = {"model.layers.1.self_attn.k_proj.weight": np.ones((64, 64), np.float32)}
SIDECARS = {
    "an-mtp": {"model_type": "qwen3_5_mtp"},
    "an-eagle": {"architectures": ["LlamaForCausalLMEagle3"]},
    "a-medusa": {"medusa_num_heads": 4},
    "an-assistant": {"model_type": "gemma4_assistant"},
    "a-speculator": {"speculators_config": {}},
}
# Only jinja2's own errors were refused in words: a division by zero ended a chat.
TEMPLATES = {
    "division": "{{ 1 / 0 }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "attribute": "{{ messages[0].content.x.y }}",
    "syntax": "{% if %}",
    "never": "{{ raise_exception('never on a ' + messages[0].role) }}",
}
MARKED = ("config.json", "tokenizer_config.json", "tokenizer.json", "chat_template.jinja", "special_tokens_map.json")
POINTERS = (WEIGHTS, "tokenizer.json", "config.json", INDEX, "tokenizer.model", "mtp.safetensors")
OF_TARGET = {
    "weightless": lambda folder: (folder / WEIGHTS).unlink(),
    "in-bin": renamed("pytorch_model.bin"),
    "of-another-name": renamed("weights.safetensors"),
    "lacks-a-shard": keyed(INDEX, weight_map=SHARDS),
    "torn": cut,
    "riddle": configured(model_type="riddle"),
    "with-code": configured(model_file="evil.py"),
    "with-code-beside": keyed(TOKENIZER, model_file="evil.py"),
    "not-causal": configured(
        model_type="phi3small", ff_intermediate_size=64, gegelu_limit=20.0, layer_norm_epsilon=1e-5,
        dense_attention_every_n_layers=2, vocab_size=100352,
    ),
    "other-letters": relettered,
    "bare": tokenized(),
    "special-only": tokenized("tokenizer.json"),
    "listed": tokenized("tokenizer.json", "[]"),
    "no-merges": tokenized("vocab.json", '{"a": 0}'),
    "emptied": tokenized("tokenizer.json", ""),
    "emptied-model": tokenized("tokenizer.model", ""),
    "emptied-tiktoken": tokenized("qwen.tiktoken", ""),
    **{name: configured(**values) for name, values in SIDECARS.items()},
    # One nested so deep ended in exit 1 and `RecursionError`.
    **{f"deep-{file}": holding(file, "[" * 100_000) for file in (CONFIG, TOKENIZER, INDEX)},
    **{f"null-{file}": holding(file, "null") for file in (CONFIG, TOKENIZER, INDEX)},
    "of-type-5": configured(model_type=5),
    "architecture-text": configured(architectures="Qwen"),
    "text-text": configured(text_config="x"),
    "quantization-list": configured(quantization=[4]),
    **{f"ends-{end}-{file}": keyed(file, eos_token_id=value)
       for file in (CONFIG, GENERATION) for end, value in {"abc": "abc", "x": [2, "x"], "true": True}.items()},
    "wide-abc": configured(hidden_size="abc"),
    "no-heads": configured(num_attention_heads=0),
    "rope-x": configured(rope_theta="x"),
    **{f"marked-{file}": marked(file) for file in MARKED},
    **{f"pointer-{file}": pointing(file) for file in POINTERS},
    "bitsandbytes": packed_by("bitsandbytes"),
    "packed-fp8": packed_by("fp8"),
    **{f"packed-{name}": configured(quantization_config=values) for name, values in FOREIGN.items()},
    "cut-short": cut_short,
    "tokenizer-open": holding("tokenizer.json", "{"),
    "tokenizer-riddle": holding("tokenizer.json", '{"model": {"type": "riddle"}}'),
    # Which of the two a reader took was chance, and so was the verdict of `check`.
    "two-names": named_zz,
    **{f"template-{name}": keyed(TOKENIZER, chat_template=text) for name, text in TEMPLATES.items()},
    "adapter-bare": only(),
    "adapter-empty": only(adapter_config__json="{}"),
    "adapter-of-peft": only(adapter_config__json=LORA, adapter_model__safetensors=""),
    # mlx#1463: `lora_layers`, what is now `num_layers`.
    "adapter-old": only(adapter_config__json='{"lora_layers": 1}'),
    "medusa-pickle": named_medusa("medusa_lm_head.pt"),
    "medusa-blocks": named_medusa("medusa_lm_head.safetensors", **OURS | {"0.0.linear.weight": FOUR}),
    "medusa-rows": named_medusa(WEIGHTS, **OURS | {"lm_heads.0.weight": FOUR}),
}  # fmt: skip
OF_HEAD = {
    "head-cut": cut_short,
    "head-lacks-q": lacking("q_norm"),
    "head-lacks-fc": lacking("fc.weight"),
    "head-packed": stored(lambda tensors: tensors.update(PACKED)),
    "head-narrow": having("mtp.fc.weight", 32, 32),
    "head-of-two": having("mtp.layers.1.input_layernorm.weight", 32),
    "head-embeds": having("mtp.embed_tokens.weight", 8, 32),
}
OF_ASSISTANT = {
    "anew": stored(drawn_anew),
    "cut-states": stored(cut_states),
    "another-window": configured(sliding_window=32),
    "narrow-keys": configured(global_head_dim=16),
    "three-heads": heads_of_three,
    "other-layers": configured(layer_types=["chunked_attention", "full_attention"]),
    "own-keys": stored(lambda tensors: tensors.update(OWN_KEYS)),
    "named-twice": stored(named_twice),
    "clusters-many": configured(num_centroids="many"),
    "clusters-36": configured(num_centroids=36),
    "another-kind": configured(model_type="muse_glimmer_assistant"),
}
WRONG: dict[str, dict[str, Change]] = {
    "target": OF_TARGET,
    "counting": {"announced": configured(mtp_num_hidden_layers=1)},
    "head": OF_HEAD,
    "assistant": OF_ASSISTANT,
}
