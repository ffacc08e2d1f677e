"""What a model folder, a trace or an environment may hold, at random from a seed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

DEEP = "[" * 100_000 + "]" * 100_000
DAMAGE = (
    DEEP,
    '{"a":' * 100_000,
    "",
    "[1]",
    "null",
    "5",
    "NaN",
    '{"a": ',
    b"\xff\xfe\x00",
    "{}".encode("utf-16"),
    "9" * 5000,
)
VALUES = (
    None,
    "abc",
    "",
    [],
    {},
    [None],
    {"a": None},
    -1,
    0,
    1,
    10**30,
    True,
    2.5,
    1e400,
    float("nan"),
    "=cmd",
    "\x1b[2J",
)
JSON_FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"),
    *("model.safetensors.index.json", "special_tokens_map.json", "added_tokens.json", "chat_template.json"),
)


def damaged_folders(whole: Path, work: Path, dice: random.Random) -> Iterator[str]:
    """`work`, each time a copy of `whole` with one thing wrong; yields what."""
    while True:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(whole, work)
        yield dice.choice((_ill_typed, _ill_typed, _ill_typed, _damaged, _replaced, _weights))(work, dice)


def _ill_typed(work: Path, dice: random.Random) -> str:
    """One value of one file is of another kind, or missing."""
    path = work / dice.choice([name for name in JSON_FILES if (work / name).exists()])
    values = json.loads(path.read_text())
    place = dice.choice([values, *(part for part in values.values() if isinstance(part, dict) and len(part) < 50)])
    key, value = dice.choice([*place, "text_config", "quantization"]), dice.choice(VALUES)
    if dice.random() < 0.1:
        place.pop(key, None)
    else:
        place[key] = value
    path.write_text(json.dumps(values))
    return f"{path.name}: {key} = {value!r}"


def _damaged(work: Path, dice: random.Random) -> str:
    """One file is no JSON."""
    name, content = dice.choice(JSON_FILES), dice.choice(DAMAGE)
    (work / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return f"{name}: {content[:20]!r}"


def _replaced(work: Path, dice: random.Random) -> str:
    """One file is a folder, a link to nothing, or gone."""
    path = work / dice.choice((*JSON_FILES, "model.safetensors"))
    path.unlink(missing_ok=True)
    how = dice.choice(("a folder", "a dangling link", "gone"))
    if how == "a folder":
        path.mkdir()
    elif how == "a dangling link":
        path.symlink_to("nowhere")
    return f"{path.name}: {how}"


def _weights(work: Path, dice: random.Random) -> str:
    """Bytes of the weights are cut off or changed, the header's most of all."""
    path = work / "model.safetensors"
    data = bytearray(path.read_bytes())
    if dice.random() < 0.4:
        del data[dice.randrange(len(data)) :]
        what = f"cut to {len(data)}"
    else:
        at = dice.randrange(400)
        data[at] ^= 1 << dice.randrange(8)
        what = f"byte {at} changed"
    path.write_bytes(data)
    return f"{path.name}: {what}"


def damaged_lines(text: str, dice: random.Random) -> bytes:
    """A file of JSON Lines with something wrong: a line, a value, a byte, or its end."""
    lines = text.splitlines()
    at = dice.randrange(len(lines))
    how = dice.randrange(5)
    if how == 0:
        damage = dice.choice(DAMAGE)
        lines[at] = damage if isinstance(damage, str) else "\x00"
    elif how == 1:
        values = json.loads(lines[at])
        values[dice.choice(list(values))] = dice.choice(VALUES)
        lines[at] = json.dumps(values)
    elif how == 2:
        del lines[at]
    data = "\n".join(lines).encode()
    if how == 3:
        return data[: dice.randrange(len(data))]
    if how == 4:
        cut = dice.randrange(len(data))
        return data[:cut] + bytes([dice.randrange(256)]) + data[cut + 1 :]
    return data + b"\n"
