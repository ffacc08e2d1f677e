"""The command line: it assembles the commands, is the only error boundary, and the only place that exits.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from specdec_cli.command.command import choose, notify
from specdec_cli.command.config import TYPES, read_settings, use_config
from specdec_cli.command.habits import translate
from specdec_cli.command.help import prepare
from specdec_cli.command.machines import on_one_machine, require_shareable
from specdec_cli.command.process import as_user_error, drop_unwritten, prepare_streams
from specdec_cli.command.table import PREFIX, moved, require_values, row_of, variables
from specdec_cli.core.errors import NoPair, SpecdecError, UsageError
from specdec_cli.core.request import nearest
from specdec_cli.session.signals import ENDING, unwinding
from specdec_cli.version import __version__

# The help's panels, and a row for each module of commands: `rm -r` of its folder and its row remove a command.
PANELS: Mapping[str, Mapping[str, str]] = {
    "Talk": {
        "apps.run.command": "run",
        "apps.chat.command": "chat",
        "apps.chat.chats": "chats",
        "apps.serve.command": "serve ps stop",
        "apps.race.command": "race demo",
    },
    "Measure": {
        "apps.bench.command": "bench",
        "apps.tune.command": "tune",
        "apps.audit.command": "audit",
        "apps.replay.command": "replay",
        "apps.doctor.command": "doctor",
    },
    "Models": {"apps.pairs.command": "pull pairs check rm"},
    "Settings": {"apps.config.command": "config"},
    "Help": {"command.help": "help"},
}


class Commands(TyperGroup):
    """The commands as PANELS lists them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        known, self.commands = self.commands, {}
        for panel, rows in PANELS.items():
            for name in " ".join(rows.values()).split():
                self.commands[name] = known[name]
                known[name].rich_help_panel = panel  # type: ignore[attr-defined]  # every command of Typer's has it
        prepare(self)


app = typer.Typer(
    name="specdec",
    cls=Commands,
    help="Speculative decoding you can see: a draft model guesses, the target model checks, the words stay its own.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for module in (module for rows in PANELS.values() for module in rows):
    app.add_typer(import_module(f"specdec_cli.{module}").app)


def version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specdec {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    show: Annotated[bool, row_of("", "show").parameter(callback=version, is_eager=True)] = False,
) -> None:
    """Carries --version, and gives the config to all commands but those that help to mend it."""
    require_shareable(context.invoked_subcommand)
    if context.invoked_subcommand not in ("config", "help"):
        with suppress(UsageError) if {"-h", "--help"} & set(sys.argv) else nullcontext():
            use_config(context)


# With --json these write events, of which the last one is an error that ended them.
STREAMS = ("run", "race")


def fail(error: SpecdecError, arguments: Sequence[str] = ()) -> int:
    """Two lines on stderr, and an event where the command line `arguments` ask for events; returns the exit code."""
    if os.environ.get("SPECDEC_DEBUG") == "1":
        traceback.print_exception(error)
    from specdec_cli.core.events import Failure
    from specdec_cli.terminal.display import print_error, print_event

    if "--json" in arguments and arguments[0] in STREAMS and not error.told:
        print_event(sys.stdout, Failure(error.message, error.hint, error.exit_code))
    print_error(sys.stderr, error, wants_plain(arguments))
    return error.exit_code


def wants_plain(arguments: Sequence[str]) -> bool:
    """Whether the line, the variable or the config says --plain; one that is wrong says nothing here."""
    if "--plain" in arguments:
        return True
    if said := os.environ.get(f"{PREFIX}PLAIN"):
        return said.lower() in ("1", "true", "t", "yes", "y", "on")
    with suppress(UsageError):
        return bool(read_settings().values.get("plain"))
    return False


def usage_error(error: TyperException) -> UsageError:
    """Typer's complaint in one line, and where the options of the command stand."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    parameter: Any = getattr(error, "param", None)
    if parameter is not None and (wrong := getattr(error.__cause__, "errors", None)):
        return _wrong_value(parameter, str(wrong()[0]["input"]), str(wrong()[0]["type"]), sys.argv)
    context = getattr(error, "ctx", None)
    option = str(getattr(error, "option_name", ""))
    if context is not None and option == "--hosts":
        return on_one_machine(context.info_name, option, sys.argv)
    if context is not None and (instead := moved(option)):
        return UsageError(f"{context.command_path} has no option {option}", instead)
    if option and context is None:  # Typer knows no command where a value is missing, or is too many
        if "requires" in message:
            return UsageError(f"{option} has no value", f"give it one, as specdec help {option.lstrip('-')} says")
        return UsageError(f"{option} takes no value", f"write it alone: {option}")
    if context is None or context.parent is None:
        hint = "specdec --help lists commands, specdec COMMAND --help options"
    elif "Missing command" in message:
        hint = f"{context.command_path} -h lists its commands"
    elif "extra argument" in message and "prompt" in context.params:
        hint = "put quotes around a prompt of several words"
    else:
        hint = f"{context.command_path} -h lists its options"
    return UsageError(" ".join(message.split()), hint)


def _wrong_value(parameter: Any, value: str, kind: str, arguments: list[str]) -> UsageError:
    """The complaint of a value that is not of its option's type, with the option as it was typed."""
    spelled = [name for name in parameter.opts if any(a == name or a.startswith(f"{name}=") for a in arguments)]
    option = [*spelled, *sorted(parameter.opts, key=len)][0]
    what, usual = TYPES.get(kind.partition("_")[0], ("possible", ""))  # pydantic's name of the error begins with it
    default = parameter.default if isinstance(parameter.default, int | float) else usual
    return UsageError(f"{option} {value} is not {what}", f"for example: {option} {default}")


# Variables that are no option's default.
OTHERS = frozenset(
    f"{PREFIX}{name}" for name in ("API_KEY", "BLAS", "CONFIG", "DEBUG", "MODELS", "MODEL_FOLDERS", "WIRE")
)


def warn_of_variables(known: Iterable[str]) -> None:
    """A line on stderr for each variable that looks like one of ours, and is none."""
    for name in sorted(name for name in os.environ if name.startswith(PREFIX) and name not in {*known, *OTHERS}):
        close = nearest(name.removeprefix(PREFIX), sorted(one.removeprefix(PREFIX) for one in {*known, *OTHERS}))
        gone = moved(f"--{name.removeprefix(PREFIX).lower().replace('_', '-')}")
        told = gone or (f"the nearest: {PREFIX}{close}" if close else "")
        typer.echo(f"warning: no option reads {name}" + (f"; {told}" if told else ""), err=True)


def by_variable(error: UsageError, known: dict[str, set[str]], arguments: list[str]) -> UsageError:
    """`error`, naming the variable instead of the option where no argument gave the value."""
    typed = {argument.partition("=")[0] for argument in arguments}
    for name, options in known.items():
        blamed, _, rest = error.message.partition(" ")
        if name in os.environ and not options & typed and blamed in options:
            return UsageError(f"{name}={rest}", error.hint.replace(f"{blamed} ", f"{name}="))
    return error


def exit_code(arguments: list[str]) -> int:
    """Run one command line; every failure becomes two lines and an exit code."""
    known = variables() if any(name.startswith(PREFIX) for name in os.environ) else {}
    if not {"-q", "--quiet", "--json"} & set(arguments):
        warn_of_variables(known)
    try:
        arguments = translate(arguments)
        require_values(arguments)
        code = int(app(arguments, standalone_mode=False, prog_name="specdec") or 0)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise  # Typer and rich end with SystemExit where the reader of their output has gone
        drop_unwritten()  # what is still buffered must not fail again at exit
        return 0
    except KeyboardInterrupt:
        return 130
    except TyperException as error:
        return fail(by_variable(usage_error(error), known, arguments), arguments)
    except NoPair as error:
        return begin(error, arguments)
    except UsageError as error:
        return fail(by_variable(error, known, arguments), arguments)
    except Exception as error:  # noqa: BLE001 - the one boundary: a person gets two lines, never a traceback
        if isinstance(error, OSError):
            drop_unwritten()
        return fail(as_user_error(error), arguments)
    return code


def begin(missing: NoPair, arguments: list[str]) -> int:
    """No pair was named: a person may get the one that suits this machine and go on, or see the demo."""
    from specdec_cli.terminal.terminal import is_terminal

    silent = {"-q", "--quiet", "--json"} & set(arguments)
    if silent or not (missing.offer and sys.stdin.isatty() and is_terminal(sys.stderr)):
        return fail(missing, arguments)
    *about, question = missing.offer.split("\n")
    for line in (f"{missing.message[0].upper()}{missing.message[1:]}.", *about):
        notify(line, wants_plain(arguments))
    get, show = missing.command, ("demo",)
    answers = {"": get, "y": get, "yes": get, "n": (), "no": (), "d": show, "demo": show}
    try:
        chosen = choose(f"{question} [Y/n], or d for the demo:", answers)
    except KeyboardInterrupt:
        return 130
    if not chosen:
        return fail(missing, arguments)
    code = exit_code([*chosen])
    return code if code or chosen == show else exit_code(arguments)


def main() -> NoReturn:
    """Run this process's command line, and exit."""
    prepare_streams()
    try:
        with unwinding():
            code = exit_code(sys.argv[1:] or ["--help"])
    finally:
        # From here on a late signal could only take the place of the exit code: CPython, ending, undoes our handlers.
        for number in (signal.SIGINT, *ENDING):
            signal.signal(number, signal.SIG_IGN)
    sys.exit(code)
