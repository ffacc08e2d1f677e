"""What people type who come from ollama, mlx-lm, LM Studio or llama.cpp: it is done, or a line says what does it here.

A word or an option that becomes specdec's own leaves its table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

import typer

from specdec_cli.cli.config import is_on_the_line
from specdec_cli.cli.load import forbid_network
from specdec_cli.cli.options import ModelOptions
from specdec_cli.cli.table import pair_names
from specdec_cli.core.errors import SpecdecError, UsageError

# fmt: off
RUN = "specdec run -p NAME 'your prompt'"
KEPT = "models are unloaded when a command ends; specdec serve --idle-unload TIME does so while it runs"
UPGRADE = "uv tool upgrade specdec-cli, or pip install --upgrade specdec-cli"
LEAVE, CONTEXT = "leave it out: mlx decides that itself", "--max-context N"
# Commands of others: one of ours, or what there is instead.
COMMANDS: Mapping[str, str] = {
    "-v": "--version", "version": "--version", "ls": "pairs", "list": "pairs", "models": "pairs", "show": "check",
    "get": "pull", "generate": "run",
    "convert": "mlx_lm.convert writes a folder; then specdec check FOLDER",
    "cp": "specdec pairs add NAME --target ID --draft ID",
    "create": "specdec pairs add NAME --target ID --draft ID",
    "import": "nothing is imported: set SPECDEC_MODEL_FOLDERS to your folder, and specdec pairs lists it",
    "load": f"every command loads what it needs: {RUN}",
    "log": "specdec serve --log FILE writes every prompt and answer",
    "push": "specdec uploads nothing; hf upload does",
    "search": "specdec pairs --all lists what is known; others are at huggingface.co/mlx-community",
    "server": "specdec serve -p NAME",
    "status": "specdec doctor shows what works here",
    "unload": KEPT,
    "update": UPGRADE, "upgrade": UPGRADE,
}
# Options of others, and what there is instead.
OPTIONS: Mapping[str, str] = {
    "--ctx-size": CONTEXT, "--context-length": CONTEXT, "--max-kv-size": CONTEXT,
    "-md": "--draft ID", "--draft-model": "--draft ID", "--draft-max": "-k N", "--k": "-k N", "-hf": "-p ID",
    "-ngl": LEAVE, "--gpu": LEAVE, "--threads": LEAVE, "--keepalive": KEPT, "--ttl": KEPT,
    "--temperature": "--temp T",
    "-sys": "-s TEXT", "--system-prompt": "-s TEXT", "--format": "--schema FILE", "--json-schema": "--schema FILE",
    "--repeat-penalty": "--repetition-penalty X", "--ignore-chat-template": "--raw", "-cnv": "specdec chat -p NAME",
    "--adapter-path": "--adapter FOLDER",
    "--prompt": f"a prompt needs no option: {RUN}",
    "--prompt-cache-file": "specdec chat --save FILE, and --resume FILE another time",
    "--trust-remote-code": "leave it out: specdec runs no code of a model's repository",
}
# fmt: on
# What names a model that need not be here: before a prompt, a Hub id or a name like Qwen3-8B or qwen3:8b; alone, only
# what can hardly be a prompt, ORGANISATION/Qwen3-8B.
BEFORE = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|(?=.*\d)[\w.]+[:-][\w.:-]+")
ALONE = re.compile(r"[\w.-]+/(?=[\w.-]*\d)[\w.]+-[\w.-]+")


def translate(arguments: list[str]) -> list[str]:
    """The command line in specdec's own words. Raises: UsageError for a word of others that is none of specdec's."""
    words = [*takewhile(lambda one: one != "--", arguments)]
    for option in (word.partition("=")[0] for word in words[1:]):
        if option in OPTIONS:
            raise UsageError(f"specdec has no option {option}", OPTIONS[option])
    ours, rest = "".join(COMMANDS.get(word, word) for word in words[:1]), arguments[len(words) :]
    if " " in ours and ours not in words:
        raise UsageError(f"specdec has no command {words[0]}", ours)
    words = [ours, *words[1:]] if words else []
    return [new for word in words for new in (("--drafter", "none") if word == "--no-draft" else (word,))] + rest


def name_first(
    context: typer.Context, models: ModelOptions, first: str | None, prompt: str | None
) -> tuple[ModelOptions, str | None]:
    """`specdec run MODEL 'prompt'`: the models with that one, and the prompt, which an only argument may be as well.

    Raises: UsageError for two arguments of which the first names no model, or is a second one.
    """
    forbid_network(models.offline)  # before the look for models imports what obeys it
    named = is_on_the_line(context, "pair") or is_on_the_line(context, "target")
    if first is None or (prompt is None and (named or not names_a_model(first, ALONE))):
        return models, first
    if named or not names_a_model(first, BEFORE):
        hint = "put quotes around a prompt of several words; name a model once, first or after -p"
        raise UsageError(f"{first} is followed by another argument, {prompt}", hint)
    return replace(models, pair=first, target=None), prompt


def names_a_model(word: str, ids: re.Pattern[str]) -> bool:
    """Whether a first argument names a pair or a model; `ids` is the shape of those that need not be here."""
    if len(word.split()) != 1 or len(word.encode()) > 255:  # no path is longer
        return False
    if word.replace(":", "-") in pair_names("") or ids.fullmatch(word):
        return True
    from specdec_cli import hub
    from specdec_cli.pairs.names import settle

    try:
        if settle(word) != word:
            return True
    except SpecdecError:  # GGUF, or the name of several
        return True
    with suppress(SpecdecError, RuntimeError):
        return (hub.locate(word) / "config.json").is_file()
    return False
