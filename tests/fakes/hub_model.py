"""A repository as careless authors publish it, where a pull puts it, and the answers that a client gives.

The code in PULL, LOCATE and VERIFY is for `hub_client.ask`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

NAME = "org/tiny"
SHARD_BYTES = 3 << 20
PULL = "result = hub.fetch(hub.resolve('org/tiny'), hear).name"
LOCATE = "result = hub.locate('org/tiny').name"
VERIFY = "result = [p.path for p in hub.verify(hub.resolve('org/tiny'))]"
AGAIN = "run the same command again: complete files are kept, the one in progress restarts"


def shard(seed: int, size: int = SHARD_BYTES) -> bytes:
    return (seed.to_bytes(4, "big") * (size // 4 + 1))[:size]


def model(**changed: bytes) -> dict[str, bytes]:
    """A repository of two shards with everything a careless author adds; `changed` replaces by stem."""
    weights = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"weight_map": {"a": weights[0], "b": weights[1]}}
    return {
        "config.json": b'{"model_type": "qwen3"}',
        "tokenizer.json": b'{"model": {}}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        weights[0]: changed.get("one", shard(1)),
        weights[1]: changed.get("two", shard(2)),
        "merges.txt": changed.get("merges", b"a b\n"),
        "chat_template.jinja": b"{{ messages }}",
        "README.md": b"# tiny",
        "modeling_tiny.py": b"raise SystemExit('code ran')",
        "pytorch_model.bin": b"pickle",
        "onnx/config.json": b"{}",
        "original/model-a.safetensors": b"twice",
    }


MODEL_FILES = sorted(p for p in model() if "/" not in p and not p.endswith((".md", ".py", ".bin")))
MODEL_BYTES = sum(len(model()[path]) for path in MODEL_FILES)
ONE, TWO = (path for path in MODEL_FILES if path.endswith(".safetensors"))


def repository(home: Path) -> Path:
    return home / "hub" / "models--org--tiny"


def held(home: Path, commit: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (repository(home) / "snapshots" / commit).iterdir()}


def blob_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in repository(home).glob("blobs/*"))


def expected(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: files[path] for path in MODEL_FILES}


def wait_for(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def unavailable(message: str, hint: str) -> dict[str, object]:
    return {"error": "NotAvailable", "message": message, "hint": hint, "exit": 3}


def unanswered(message: str, hint: str) -> dict[str, object]:
    return unavailable(message, hint) | {"error": "Unanswered"}


def partly(message: str, hint: str) -> dict[str, object]:
    return unavailable(f"{NAME} is only partly here: {message}", hint) | {"error": "PartlyHere"}
