"""Golden (f): what a pair's way from a Hub to its removal says, and every call with its bytes, in order, as recorded.

Fifteen kinds of repository, five commands each, real calls over loopback. Small files of a pull come four at a time,
so those calls are sorted by file; all others stand in the order in which they arrived.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from fakes.counting import CONFIG, HEAD_CONFIG, NO_HEAD, counting_folder, counting_tensors, head_or_trunk, in_fp8
from fakes.hub_client import Person, own
from fakes.hub_server import BIG, Blob, Claimed, HubServer
from fakes.models import other_letters
from golden.masks import WIDTHS, mask
from golden.models import model_folders
from golden.record import agree, read, require_same

PAIRS = {
    "plain pair": 'target = "org/plain"\ndraft = "org/draft"',
    "own head": 'target = "org/whole"\ndrafter = "mtp"',
    "head alone": 'target = "org/bare"\ndraft = "org/head"',
    "original repository": 'target = "org/bare"\nhead_from = "org/whole"',
    "other tokenizer": 'target = "org/plain"\ndraft = "org/odd"',
    "too large": 'target = "org/vast"',
    "FP8 head": 'target = "org/bare"\nhead_from = "org/fp8"',
    "sidecar": 'target = "org/sidecar"\ndrafter = "mtp"',
    "pinned revision": 'target = "org/plain"\ntarget_revision = "OLD"',
    "partly here": 'target = "org/plain"',
    "assistant": 'target = "org/gemma"\ndraft = "org/gemma-it-assistant"',
    "sidecar partly here": 'target = "org/sidecar"\ndrafter = "mtp"',
    "announced head": 'target = "org/bare"\nhead_from = "org/announced"',
    "no head": 'target = "org/bare"\nhead_from = "org/bare"',
    "unknown family": 'target = "org/bare"\nhead_from = "org/unknown"',
}
GONE = {"partly here": "model.safetensors", "sidecar partly here": "mtp/model.safetensors"}
UNKNOWN = {"mtp.layers.0.mixer.q_proj.weight": np.zeros((2, 2), np.float32)}
COMMANDS = {
    "check": "check p --json",
    "pull": "pull p",
    "pairs": "pairs --json",
    "run": "run -p p --raw -k 1 -n 2 -q hi",
    "rm": "rm p --yes",
}


def publish(hub, root, gemma):
    """Every repository; returns the commit that a pair pins, which is no longer the newest."""
    models = {part: contents(folder) for part, folder in model_folders("qwen3", root / "qwen3").items()}
    tensors, tokenizer = counting_tensors(), models["draft"]["tokenizer.json"]
    bare = contents(counting_folder(root / "bare", head_or_trunk(tensors, False), NO_HEAD))
    head, whole = save(head_or_trunk(tensors, True)), bare | {"config.json": json.dumps(CONFIG).encode()}
    old = hub.commit("org/plain", models["target"] | {"README.md": b"first"})
    hub.commit("org/plain", models["target"])
    hub.commit("org/draft", models["draft"])
    hub.commit("org/odd", models["draft"] | {"tokenizer.json": other_letters(tokenizer)})
    vast = hub.commit("org/vast", models["target"])
    hub.repos["org/vast"][vast]["model.safetensors"] = Blob("model.safetensors", Claimed(b"x"))
    hub.commit("org/bare", bare)
    hub.commit("org/head", {"config.json": json.dumps(HEAD_CONFIG).encode(), "model.safetensors": head})
    hub.commit("org/sidecar", bare | {"mtp/model.safetensors": head, "other/model.safetensors": b"x" * 5000})
    hub.commit("org/whole", whole | {"model.safetensors": save(tensors)})
    for name, folder in zip(("org/gemma", "org/gemma-it-assistant"), gemma, strict=True):
        hub.commit(name, contents(folder))
    hub.commit("org/announced", whole)
    hub.commit("org/unknown", whole | {"model.safetensors": save(head_or_trunk(tensors, False) | UNKNOWN)})
    hub.commit("org/fp8", whole | {"model.safetensors": in_fp8(save(tensors))})
    return old


def contents(folder):
    """The files of a folder, sorted: a listing by the Hub has one order everywhere."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def calls(log):
    """`METHOD path range bytes` of each request."""
    runs = []
    for repository, run in groupby(log, small_files_of):
        runs += sorted(run, key=lambda call: call.path.rpartition("/")[2] if repository else "")
    return [re.sub(r"[0-9a-f]{64}", "DIGEST", f"{c.method} {c.path} {c.range or '-'} {c.sent}") for c in runs]


def small_files_of(call):
    """The repository of a call for a small file of it."""
    return "resolve" in call.path and not call.path.endswith(BIG) and re.search(r"org/\w+", call.path)[0]


@contextmanager
def person(hub, root):
    """A function: one command line -> its entry. One process runs them all, so mlx is imported once."""

    def said(line):
        hub.log.clear()
        code, out, err = child.specdec(*line.split())
        if line == COMMANDS["pairs"] and not code:
            out = json.dumps(next(row for row in json.loads(out) if row["name"] == "p"))
        out, err = (mask(text, root, *WIDTHS) for text in (out, "\n".join(err)))
        return [code, out, err, calls(hub.log)]

    with Person(hub, root / "home", **own(root), COLUMNS="80") as child:
        yield said


@pytest.mark.slow
def test_verdicts_files_and_calls_are_as_recorded(tmp_path, gemma_folders):
    items = {}
    with HubServer() as hub:
        old = publish(hub, tmp_path, gemma_folders)
        root = tmp_path / "person"
        root.mkdir()
        with person(hub, root) as said:
            for name, entry in PAIRS.items():
                for left in root.iterdir():
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
                (root / "models.toml").write_text(f"schema_version = 1\n[pairs.p]\n{entry.replace('OLD', old)}\n")
                if name in GONE:
                    assert said(COMMANDS["pull"])[0] == 0
                    next(root.rglob(f"snapshots/*/{GONE[name]}")).resolve().unlink()
                    items[f"{name}: run before"] = said(COMMANDS["run"])
                items |= {f"{name}: {command}": said(line) for command, line in COMMANDS.items()}
                assert not items[f"{name}: pull"][0] or not [*root.rglob("specdec/heads/*")]
    agree("hub", items)


def test_one_byte_of_one_call_is_found():
    """Negative control, of every call that brought any."""
    for key, (*told, recorded) in read("hub")["items"].items():
        for place, call in enumerate(recorded):
            *words, sent = call.split()
            changed = [*recorded[:place], " ".join([*words, str(int(sent) + 1)]), *recorded[place + 1 :]]
            with pytest.raises(AssertionError, match=re.escape(f"hub > {key}")):
                require_same(f"hub > {key}", [*told, recorded], [*told, changed])
