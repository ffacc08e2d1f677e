"""What people type who come from ollama, mlx-lm, LM Studio or llama.cpp: it is done, or a line says what does it here.

A word or an option that becomes specdec's own leaves its table.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

import typer

from specdec_cli.command.config import is_by_variable, is_on_the_line
from specdec_cli.command.options import ModelOptions
from specdec_cli.command.table import pair_names
from specdec_cli.core.errors import SpecdecError, UsageError

# fmt: off
KEPT = "models are unloaded when a command ends; specdec serve --idle-unload TIME does so while it runs"
# Those of mlx-lm are on no path where specdec was installed as a tool, and specdec is in no index yet.
MLX_LM = "uvx --from mlx-lm mlx_lm"
UPGRADE = "in its checkout: git pull; then uv tool install --reinstall ., or pipx install --force ., or pip install ."
PLACES = "specdec doctor lists all that is kept here"
LEAVE = "leave it out: mlx decides that itself"
# Commands of others that are ours under another name.
COMMANDS: Mapping[str, str] = {
    "-v": "--version", "version": "--version", "ls": "pairs", "list": "pairs", "models": "pairs",
    "show": "check", "info": "check", "get": "pull", "download": "pull", "install": "pull",
    "delete": "rm", "remove": "rm", "uninstall": "rm", "generate": "run", "ask": "run", "benchmark": "bench",
    "server": "serve", "server start": "serve", "server status": "ps", "server stop": "stop",
    "history": "chats", "settings": "config show",
}
# Those that are none, and what there is instead.
INSTEAD: Mapping[str, str] = {
    "cache_prompt": "specdec chat --save FILE, and --resume FILE another time",
    "config path": PLACES, "pairs path": PLACES,
    "config edit": "specdec config show names the file",
    "convert": f"{MLX_LM}.convert writes a folder; then specdec check FOLDER",
    "cp": "specdec pairs add NAME --target ID --draft ID",
    "create": "specdec pairs add NAME --target ID --draft ID",
    "fuse": f"{MLX_LM}.fuse writes a folder; then specdec check FOLDER",
    "import": "nothing is imported: set SPECDEC_MODEL_FOLDERS to your folder, and specdec pairs lists it",
    "load": "every command loads what it needs: specdec run -p NAME 'your prompt'",
    "log": "specdec serve --log FILE writes every prompt and answer",
    "lora": f"{MLX_LM}.lora trains an adapter; then specdec pairs add NAME --target ID --adapter FOLDER",
    "manage": "specdec pairs lists models, specdec rm NAME removes one",
    "push": "specdec uploads nothing: uvx --from huggingface_hub hf upload does",
    "quantize": f"{MLX_LM}.convert writes a folder; then specdec check FOLDER",
    "search": "specdec pairs --all lists what is known; others are at huggingface.co/mlx-community",
    "status": "specdec doctor shows what works here, specdec ps the servers that run",
    "unload": KEPT,
    "update": UPGRADE, "upgrade": UPGRADE,
}
# Options of others that are ours under another name.
SAME: Mapping[str, str] = {
    "-md": "--draft", "--model-draft": "--draft", "--draft-model": "--draft",
    "--draft-max": "--num-draft-tokens", "--k": "--num-draft-tokens", "--no-draft": "--drafter=none",
    "-hf": "--pair", "--hf-repo": "--pair", "--ctx-size": "--max-context", "--context-length": "--max-context",
    "--temperature": "--temp", "-sys": "--system", "--system-prompt": "--system", "--json-schema": "--schema",
    "--repeat-penalty": "--repetition-penalty", "--ignore-chat-template": "--raw", "--adapter-path": "--adapter",
    "--think=true": "--think=on", "--think=false": "--think=off",
}
# Those that are none, and what there is instead.
OPTIONS: Mapping[str, str] = {
    "-ngl": LEAVE, "--gpu": LEAVE, "--threads": LEAVE, "--keepalive": KEPT, "--ttl": KEPT,
    "-cnv": "specdec chat -p NAME",
    "--format": """--schema FILE, or for any JSON: --schema '{"type": "object"}'""",
    "--max-kv-size": "--max-context N",
    "--prompt-cache-file": "specdec chat --save FILE, and --resume FILE another time",
    "--trust-remote-code": "leave it out: specdec runs no code of a model's repository",
}
# fmt: on
PAIR, MODEL = ("-p", "--pair"), ("-m", "--model", "-hf")
# What names a model that need not be here: before a prompt, a Hub id or a name like Qwen3-8B or qwen3:8b; alone, only
# what can hardly be a prompt, ORGANISATION/Qwen3-8B.
BEFORE = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|(?=.*\d)[\w.]+[:-][\w.:-]+")
# A family of models of which pairs are called, as llama3 or llama3.2:1b is.
FAMILY = re.compile(r"([a-z]{4,})(?:[-\d.:][\w.:-]*)?")
# A word that is hardly a prompt: alone, a name of a family, or where nobody chose a model that could answer, any name.
NUMBERED = re.compile(r"(?=.*[\d.:])[a-z][\w.:-]*\w", re.I)
ALONE = re.compile(r"[\w.-]+/(?=[\w.-]*\d)[\w.]+-[\w.-]+")


def translate(arguments: list[str]) -> list[str]:
    """The command line in specdec's own words. Raises: UsageError for a word of others that is none of specdec's."""
    words = [*takewhile(lambda one: one != "--", arguments)]
    rest = arguments[len(words) :]
    if not words:
        return arguments
    if words[0] in (*PAIR, *MODEL):
        raise UsageError(f"{words[0]} comes after a command", f"specdec run {shlex.join(arguments)}")
    for option in (word.partition("=")[0] for word in words[1:]):
        if option in OPTIONS:
            raise UsageError(f"specdec has no option {option}", OPTIONS[option])
    for length in (2, 1):
        if (typed := " ".join(words[:length])) in INSTEAD:
            raise UsageError(f"specdec has no command {typed}", INSTEAD[typed])
        if typed in COMMANDS:
            words = [*COMMANDS[typed].split(), *words[length:]]
            break
    named, talks = any(word.partition("=")[0] in MODEL for word in words), words[0] in ("run", "chat", "race")
    found: list[str] = []
    for word, after, then in zip(words, [*words[1:], ""], [*words[2:], "", ""], strict=False):
        name, equals, value = word.partition("=")
        if talks and _is_before_a_prompt(name, after, then, named):
            found += [value] * bool(equals)
        elif word == "-c" and words[0] != "chat" and after.isdecimal():  # llama.cpp's context; a chat's continues
            found.append("--max-context")
        else:
            found.append(SAME.get(word) or SAME.get(name, name) + equals + value)
    return found + rest


def _is_before_a_prompt(option: str, after: str, then: str, named: bool) -> bool:
    """--prompt, and a -p that names no pair: another option does, or words with spaces follow.

    Those that are a path, or have a prompt behind them, are a name.
    """
    path = after.startswith(("/", "~", ".")) or os.path.isdir(after)  # noqa: PTH112 - unlike Path's, it never raises
    spoken = len(after.split()) > 1 and not path and (not then or then.startswith("-"))
    return option == "--prompt" or (option == "-p" and (named or spoken))


def name_first(
    context: typer.Context, models: ModelOptions, first: str | None, prompt: str | None
) -> tuple[ModelOptions, str | None]:
    """`specdec run MODEL 'prompt'`: the models with that one, and the prompt, which an only argument may be as well.

    Raises: UsageError for two arguments of which the first names no model, or is a second one; NotAvailable for an only
    one that is like a name, and nobody's.
    """
    named = is_on_the_line(context, "pair") or is_on_the_line(context, "target")
    if first is None or (prompt is None and (named or not names_a_model(first, ALONE))):
        if first and not named and NUMBERED.fullmatch(first):
            _refuse_a_name(context, first)
        return models, first
    if named or not names_a_model(first, BEFORE):
        other = "name a model once" if named else "specdec pairs lists the models that are known"
        hint = f"put quotes around a prompt of several words; {other}"
        raise UsageError(f"{first} is followed by another argument, {prompt}", hint)
    draft = None if is_by_variable(context, "draft") else models.draft
    return replace(models, pair=first, target=None, draft=draft), prompt


def _refuse_a_name(context: typer.Context, word: str) -> None:
    """Raises: NotAvailable for a word with the name of a family, and for any where nobody chose what could answer."""
    from specdec_cli.pairs.catalog import registry

    known = registry()
    if _has_a_family(word) or not (known.default_pair or any(map(context.params.get, ("raw", "pair", "target")))):
        known.find(word)


def _has_a_family(word: str) -> bool:
    family = FAMILY.fullmatch(word.lower())
    return family is not None and bool(pair_names(family[1]))


def names_a_model(word: str, ids: re.Pattern[str]) -> bool:
    """Whether a first argument names a pair or a model; `ids` is the shape of those that need not be here."""
    if not word.strip() or len(word.encode()) > 255:  # no path is longer
        return False
    if word.replace(":", "-") in pair_names("") or ids.fullmatch(word):
        return True
    if ids is BEFORE and _has_a_family(word):
        return True
    from specdec_cli import hub
    from specdec_cli.pairs.names import settle

    try:
        if settle(word) != word:
            return True
    except SpecdecError:  # GGUF, or the name of several; a sentence may end with a word like that
        return len(word.split()) == 1 or "gguf" not in word.lower()
    with suppress(SpecdecError, RuntimeError):
        return (hub.locate(word) / "config.json").is_file()
    return False
