"""What commands share: options in groups, and a question before something is done."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from specdec_cli.errors import SpecdecError, UsageError

T = TypeVar("T")
# Every command's help ends with these, in this order, whichever group they come from.
LAST = (
    *("drafter", "target_revision", "draft_revision", "max_context", "on_overflow", "kv_bits"),
    *("trace", "offline", "force"),
)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer reads it: a parameter that is a dataclass of options becomes one parameter for each field.

    A group's defaults are its fields' own, or those of the instance that is the parameter's default.
    """
    types = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
    options: list[Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            options.append(parameter.replace(annotation=types[name], kind=Parameter.KEYWORD_ONLY))
            continue
        members = get_type_hints(groups[name], include_extras=True)
        default = groups[name]() if parameter.default is Parameter.empty else parameter.default
        for field in fields(default):
            value, kind = getattr(default, field.name), members[field.name]
            options.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=value, annotation=kind))
    options.sort(key=lambda option: LAST.index(option.name) if option.name in LAST else -1)

    @wraps(command)
    def wrapped(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    wrapped.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # read by inspect.signature
    wrapped.__annotations__ = {option.name: option.annotation for option in options}
    return wrapped


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def require_answer(question: str, yes: bool) -> None:
    """Raises: UsageError where nobody can answer: stdin is no terminal, and no --yes was given."""
    if not (yes or sys.stdin.isatty()):
        raise UsageError(f"there is no terminal to ask on: {question}", "add --yes to go on without asking")


def ask(question: str, yes: bool, *, usual: bool = False) -> None:
    """`usual` is the answer of Enter alone.

    Raises: UsageError where stdin is no terminal, SpecdecError on a no, KeyboardInterrupt on Ctrl-C.
    """
    require_answer(question, yes)
    answers = {"": usual, "y": True, "yes": True, "n": False, "no": False}
    if not (yes or choose(f"{question} {'[Y/n]' if usual else '[y/N]'}", answers)):
        raise SpecdecError("nothing was done", "answer y, or add --yes")


def choose(question: str, answers: Mapping[str, T]) -> T:
    """What belongs to the answer that a person types; "" is Enter alone. Raises: KeyboardInterrupt on end of input."""
    typed = _answer(question)
    while typed not in answers:
        *first, last = (word for word in answers if len(word) == 1)
        typed = _answer(f"{typed} is no answer: type {', '.join(first)} or {last}")
    return answers[typed]


def _answer(question: str) -> str:
    """What a person types behind `question`, in small letters. Raises: KeyboardInterrupt at the end of the input."""
    from specdec_cli.ui.display import print_question

    print_question(sys.stderr, question)
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt
    return line.strip().lower()
