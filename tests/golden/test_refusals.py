"""Golden (e): what the command line refuses, in one table: a state of the home, a command, its exit code, two lines.

`data/refusals.txt` has a heading for each state, and below it each command as it is typed, its exit code with what
happened, and the hint. To add one, write the command and record. HOME is the person's home, where it is typed too.
A heading may be a line of config.toml itself, or several, with a / between two.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.command import Command
from fakes.models import TINY, tiny_folder
from fakes.ui_script import ROUNDS, script
from golden.masks import mask
from golden.record import Table
from golden.wrong import WRONG
from specdec_cli.core.events import to_dict

BIG, SMALL = "mlx-community/Llama-3.2-3B-Instruct-4bit", "mlx-community/Llama-3.2-1B-Instruct-4bit"
WEIGHTS_ARE_READ = "weights are read"  # elsewhere none is
TABLE = Table("refusals")
THEIRS = (r"(does not (?:load|run)[^:]*:|is damaged \(\d+ bytes\):) .*", r"\1 #")  # what Python and mlx say
SHARES = (r"(?<=guesses )\d+ %", "# %")


def new(home: Path) -> None:
    """Nothing was ever done in it."""


def files(home: Path) -> None:
    """Files that options may name; `target` and `draft` are beside them."""
    (home / "prompts.txt").write_text("def f(\n")
    (home / "latin1.txt").write_bytes(b"caf\xe9")
    (home / "latin1.json").write_bytes(b'{"title": "\xe9"}')
    (home / "empty").write_text("\n")
    (home / "words.jsonl").write_text('{"prompt": "fine"}\nplain words\n')
    (home / "list.txt").write_text('{"prompt": "fine"}\n["no"]\n')
    (home / "blank.jsonl").write_text('{"prompt": "  "}\n')
    for name, events in {"trace": script(), "no-start": ROUNDS, "goes-on": [*script(), *ROUNDS]}.items():
        (home / f"{name}.jsonl").write_text("".join(json.dumps(to_dict(event)) + "\n" for event in events))
    (home / "image").write_bytes(b"\x89PNG\r\n\x1a\n")
    (home / "deep.json").write_text('{"properties": {"a": ' * 300 + "{}" + "}}" * 300)
    for name, event in (("list", ["start"]), ("other", "none")):
        (home / f"{name}.jsonl").write_text(json.dumps({"event": event}) + "\n")
    (home / "Qwen3-8B-GGUF").mkdir()
    for name in ("Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf", "sha256-60e0"):
        (home / name).write_bytes(b"GGUF\3\0\0\0")
    os.mkfifo(home / "fifo")
    (home / "link").symlink_to(home / "fifo")


def default_that_is_gone(home: Path) -> None:
    """It was chosen before it was removed."""
    (home / "models.toml").write_text('schema_version = 1\ndefault_pair = "llama-3b"\n')


def own_pair(home: Path) -> None:
    """A pair of one's own, the default."""
    pair = '[pairs.mine]\ntarget = "org/t"\ndraft = "org/d"\n'
    (home / "models.toml").write_text(f'schema_version = 1\ndefault_pair = "mine"\n{pair}')


def chosen(home: Path) -> None:
    """The demo pair is the default."""
    (home / "config.toml").write_text('pair = "demo"\n[presets.reviewer]\ntemp = 0.5\n')


def ollama(home: Path) -> None:
    """A model of ollama's."""
    manifest = home / ".ollama/models/manifests/registry.ollama.ai/library/qwen3/8b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"layers": [{"mediaType": "application/vnd.ollama.image.model", "size": 9}]}')


def lm_studio(home: Path) -> None:
    """The models of the pair llama-3b, or of their names, as LM Studio keeps them; and another one."""
    models = home / ".lmstudio/models"
    tiny_folder(models / BIG, TINY | {"num_hidden_layers": 2}, seed=1)
    tiny_folder(models / SMALL, TINY | {"num_hidden_layers": 1}, seed=1)
    tiny_folder(models / "org/big-3B", TINY | {"num_hidden_layers": 1}, seed=1)
    tiny_folder(models / "org" / SMALL.rpartition("/")[2], TINY | {"num_hidden_layers": 1}, seed=1)


def folder_for_config(home: Path) -> None:
    """A folder of that name."""
    (home / "config.toml").mkdir()


def unknown_key(home: Path) -> None:
    """A models.toml with a key that there is none of."""
    (home / "models.toml").write_text('schema_version = 1\n[pairs.mine]\ntarget = "o/t"\ndraught = "o/x"\n')


def of_folders(home: Path) -> None:
    """Pairs of the target with an adapter, by the adapter's name, and one whose head is a repository's."""
    names = [name for name in WRONG["target"] if name.startswith("adapter")]
    pairs = [f'[pairs.{name}]\ntarget = "{home}/target"\ntarget_adapter = "{home}/{name}"\n' for name in names]
    pairs.append(f'[pairs.own]\ntarget = "{home}/counting"\nhead_from = "org/whole"\n')
    (home / "models.toml").write_text("schema_version = 1\n" + "".join(pairs))


STATES = {
    "a new home": new,
    "files in the folder": files,
    "the default pair is gone": default_that_is_gone,
    "a pair of one's own": own_pair,
    "the demo pair was chosen": chosen,
    "a model of ollama's": ollama,
    "models of LM Studio's": lm_studio,
    "a folder in place of config.toml": folder_for_config,
    "a models.toml with an unknown key": unknown_key,
    "folders that are wrong": new,
    "pairs of folders": of_folders,
    WEIGHTS_ARE_READ: new,
}


def written(text: str) -> Callable[[Path], object]:
    """A config.toml of these lines, below one that is a comment."""
    return lambda home: (home / "config.toml").write_text("# mine\n" + text.replace(" / ", "\n") + "\n")


STATES |= {state: written(state) for state, _ in TABLE.rows if state not in STATES}


@pytest.fixture(scope="session")
def models(tiny_pair, counting_folders, gemma_folders):
    """Folders by the names that rows give them."""
    names = ("target", "draft", "counting", "head", "gemma", "assistant")
    return dict(zip(names, (*tiny_pair, *counting_folders[:2], *gemma_folders), strict=True))


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: f"{row[0]}: {row[1]}")
def test_a_refusal_is_two_lines_and_changes_nothing(row, tmp_path, models, monkeypatch, capsys):
    """No weight is read for it, and what the person keeps stays as it was."""
    state, line = row
    STATES[state](tmp_path)
    for name, folder in models.items():
        (tmp_path / name).symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    command = Command(tmp_path, monkeypatch, capsys)
    if state != WEIGHTS_ARE_READ:
        monkeypatch.setattr("specdec_cli.session.load.load_weights", None)
    kept = [path for path in (command.models, command.config) if path.is_file()]
    before = [path.read_bytes() for path in kept]
    words = shlex.split(line.replace("HOME", str(tmp_path)))
    named = {Path(word).name for word in words}
    for kind, changes in WRONG.items():
        for name in changes.keys() & named:
            changes[name](shutil.copytree(models[kind], tmp_path / name))
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        monkeypatch.setenv(name, value)
    code, message, hint = command.refused(*words[1:])
    assert code > 1, message
    TABLE.check(*row, f"{code} {mask(message, tmp_path, THEIRS, SHARES)}", mask(hint, tmp_path))
    assert kept == [path for path in (command.models, command.config) if path.is_file()]
    assert before == [path.read_bytes() for path in kept]
