"""What was typed although it is no command, and the command that was probably meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from typer.exceptions import TyperException

from specdec_cli.errors import UsageError

HELP = "specdec --help lists commands, specdec COMMAND --help options"
# Names from other tools: (after "specdec pairs", at the top).
MEANT = {
    "ls": "specdec pairs",
    "list": "specdec pairs",
    "models": "specdec pairs",
    "version": "specdec --version",
    "download": "specdec pull",
    "install": "specdec pull",
    "remove": "specdec rm",
    "delete": "specdec rm",
    "show": "specdec check",
    "info": "specdec doctor",
}
MEANT_OF_PAIRS = {"ls": "", "list": "", "rm": "remove", "delete": "remove", "default": "use", "set": "use"}
ASKING = ("generate", "ask", "prompt", "complete")
UNKNOWN = re.compile(r"No such command '(.*?)'\.( Did you mean)?", re.S)
EXTRA = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", re.S)


def explained(error: TyperException, message: str, typed: Sequence[str]) -> UsageError:
    """Typer's complaint `message` about the command line `typed`, with the command that was probably meant."""
    if found := UNKNOWN.search(message):
        hint = None if found[2] else _meant(found[1], typed)
        return UsageError(message, hint or HELP)
    context = getattr(error, "ctx", None)
    first = context.params.get("prompt") if context is not None else None
    if isinstance(first, str) and (more := EXTRA.search(message)):
        words = [first, *more[1].split()]
        quoted = shlex.join(["specdec", *_joined(typed, words)])
        return UsageError(f"the prompt came as {len(words)} words: put quotes around it", quoted)
    return _of_another_type(error) or UsageError(message, _help_of(context, typed))


def _help_of(context: Any, typed: Sequence[str]) -> str:
    """Where the options of the command stand."""
    if context is None:  # so it is where an option lacks its value
        return HELP if not typed or typed[0].startswith("-") else f"specdec {typed[0]} -h lists its options"
    return HELP if context.parent is None else f"{context.command_path} -h lists its options"


# What pydantic calls a value that is none of a type -> (that type, a value that works everywhere).
WANTED = {
    "float_parsing": ("not a number", "1"),
    "int_parsing": ("not a whole number", "8"),
    "bool_parsing": ("neither 1 nor 0", "1"),
}


def _of_another_type(error: TyperException) -> UsageError | None:
    """A value that is no number, or no switch, with the option or the variable that has it."""
    option: Any = getattr(error, "param", None)
    errors = getattr(error.__cause__, "errors", None)
    found = errors()[0] if option is not None and errors is not None else {}
    if found.get("type") not in WANTED:
        return None
    wanted, example = WANTED[found["type"]]
    if isinstance(option.default, int | float) and not isinstance(option.default, bool):
        example = f"{option.default:g}"
    source = error.ctx.get_parameter_source(option.name)  # type: ignore[attr-defined]  # Typer's class is private
    name, joint = (option.envvar, "=") if source.name == "ENVIRONMENT" else (option.opts[0], " ")
    return UsageError(f"{name}{joint}{found['input']} is {wanted}", f"for example: {name}{joint}{example}")


def _meant(name: str, typed: Sequence[str]) -> str | None:
    """A whole command line in place of the one with `name`."""
    rest = list(typed[typed.index(name) + 1 :]) if name in typed else []
    if typed[:1] == ["pairs"]:
        known = MEANT_OF_PAIRS.get(name)
        return None if known is None else shlex.join(["specdec", "pairs", *([known, *rest] if known else [])])
    if name in MEANT:
        return shlex.join([*MEANT[name].split(), *([] if MEANT[name] == "specdec pairs" else rest)])
    if name in ASKING and rest:
        return f"specdec run {shlex.quote(' '.join(rest))}"
    if rest or " " in name:  # several words that are no command are a prompt
        return f"specdec run {shlex.quote(' '.join([name, *rest]))}"
    return None


def _joined(typed: Sequence[str], words: Sequence[str]) -> list[str]:
    """`typed` with `words`, found in their order, as one word in the place of the first."""
    left, found = list(words), list[str]()
    for one in typed:
        parts = one.split()
        if left and parts == left[: len(parts)] and parts:
            if len(left) == len(words):
                found.append(" ".join(words))
            del left[: len(parts)]
        else:
            found.append(one)
    return found
