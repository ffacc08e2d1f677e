"""The command line. Law: it assembles the commands; it is the only error boundary, and the only place that exits.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from specdec_cli import __version__
from specdec_cli.cli import audit, bench, chat, doctor, help, pairs, replay, run
from specdec_cli.cli.environment import unknown_variables
from specdec_cli.cli.pipes import ReaderLeft
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.session.interrupt import unwinding
from specdec_cli.ui.spelling import SPELLED

# The help's panels, and the order of the commands in each.
PANELS = {
    "Talk": ("run", "chat"),
    "Measure": ("bench", "audit", "replay", "doctor"),
    "Models": ("pull", "pairs", "check", "rm"),
    "Help": ("help",),
}


class Commands(TyperGroup):
    """The commands as PANELS lists them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        known, self.commands = self.commands, {}
        for panel, names in PANELS.items():
            for name in names:
                self.commands[name] = known[name]
                known[name].rich_help_panel = panel  # type: ignore[attr-defined]  # every command of Typer's has it


app = typer.Typer(
    name="specdec",
    cls=Commands,
    help="Speculative decoding you can see: a draft model guesses, the target model checks, the words stay its own.",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (run, chat, bench, audit, replay, doctor, pairs, help):
    app.add_typer(module.app)


def version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specdec {__version__}")
        raise typer.Exit


@app.callback()
def root(
    show: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The empty callback that carries --version."""


def fail(error: SpecdecError) -> int:
    """Two lines on stderr; returns the exit code."""
    if os.environ.get("SPECDEC_DEBUG") == "1":
        traceback.print_exception(error)
    from specdec_cli.ui.display import print_error

    print_error(sys.stderr, error, plain="--plain" in sys.argv)
    return error.exit_code


def leave_quietly() -> int:
    """The reader of stdout has gone: what is still buffered must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def usage_message(error: TyperException) -> str:
    """Typer's complaint in one line."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return " ".join(message.split())


def _of_the_device(error: Exception) -> SpecdecError | None:
    """The failure of the device that `error` reports, if one was in use."""
    if "mlx.core" not in sys.modules or not isinstance(error, RuntimeError | MemoryError):
        return None
    from specdec_cli.engine.failure import device_failure

    return device_failure(error)


def _warn(arguments: list[str]) -> None:
    """One line for each variable of the environment that is misspelled."""
    for sentence in unknown_variables(app, arguments):
        from specdec_cli.ui.display import print_notice

        print_notice(sys.stderr, f"warning: {sentence}", plain="--plain" in arguments)


def exit_code(arguments: list[str]) -> int:
    """Run one command line; every failure becomes two lines and an exit code."""
    try:
        _warn(arguments)
        code = int(app(arguments, standalone_mode=False, prog_name="specdec") or 0)
        sys.stdout.flush()
    except (ReaderLeft, BrokenPipeError):
        return leave_quietly()
    except KeyboardInterrupt:
        return 130
    except SpecdecError as error:
        return fail(error)
    except TyperException as error:
        return fail(UsageError(usage_message(error), "specdec --help lists commands, specdec COMMAND --help options"))
    except Exception as error:  # noqa: BLE001 - the one boundary: a person gets two lines, never a traceback
        failure = _of_the_device(error) or SpecdecError(
            f"{type(error).__name__}: {error}", "SPECDEC_DEBUG=1 shows the traceback"
        )
        failure.__cause__ = error
        return fail(failure)
    return code


def main() -> NoReturn:
    """Run this process's command line, and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=SPELLED)
    try:
        with unwinding():
            code = exit_code(sys.argv[1:] or ["--help"])
    finally:
        # From here on a late Ctrl-C could only turn the exit code into a signal.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    exec("")  # CPython would die of an interrupt that it met inside exec(), whatever the exit code: this forgets it
    sys.exit(code)
