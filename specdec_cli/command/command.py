"""What commands share: options in groups, a line for a person, and a question before something is done."""

from __future__ import annotations

import inspect
import os
import select
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from specdec_cli.command.table import row_of
from specdec_cli.core.errors import SpecdecError, UsageError

T = TypeVar("T")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer reads it: each parameter is what the table says of its name.

    A parameter that is a dataclass of options becomes one for each field. Their defaults are the fields' own, or those
    of the instance that is the parameter's default.
    """
    types = get_type_hints(command)
    groups: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
    options: list[Parameter] = []

    def add(name: str, kind: Any, default: Any) -> None:
        if kind is not typer.Context:
            kind = Annotated[kind, row_of(command.__name__, name).parameter()]
        options.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))

    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            add(name, types[name], parameter.default)
            continue
        members = get_type_hints(groups[name])
        default = groups[name]() if parameter.default is Parameter.empty else parameter.default
        for field in fields(default):
            add(field.name, members[field.name], getattr(default, field.name))

    @wraps(command)
    def wrapped(**values: Any) -> None:
        if values.get("offline"):  # no library may open a connection; those that obey it read it as they are imported
            os.environ["HF_HUB_OFFLINE"] = "1"
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    wrapped.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # read by inspect.signature
    wrapped.__annotations__ = {option.name: option.annotation for option in options}
    return wrapped


def notify(sentence: str, plain: bool) -> None:
    """A dim line on stderr."""
    from specdec_cli.terminal.display import print_notice

    print_notice(sys.stderr, sentence, plain)


def say(*lines: str) -> None:
    """Each on a line of stderr."""
    from specdec_cli.terminal.display import print_line

    for line in lines:
        print_line(sys.stderr, line)


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
        typed = _answer(f"{typed} is not an answer: type {', '.join(first)} or {last}")
    return answers[typed]


def _answer(question: str) -> str:
    """What a person types behind `question`, in small letters. Raises: KeyboardInterrupt at the end of the input."""
    from specdec_cli.terminal.display import print_question

    print_question(sys.stderr, question)
    # A Ctrl-C between Python's last look for signals and its wait for a line would be heard with the next line alone.
    try:
        with suppress(OSError, ValueError):  # no terminal
            while not select.select([sys.stdin], [], [], 0.2)[0]:
                pass
        line = sys.stdin.readline()
        if not line:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        say("")  # else the shell's prompt stands behind the question
        raise
    return line.strip().lower()
