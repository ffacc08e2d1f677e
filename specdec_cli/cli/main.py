"""The command line. Law: parses, builds, hands over; the only error boundary, and the only place that exits.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from specdec_cli import __version__
from specdec_cli.cli import audit as audit_command
from specdec_cli.cli import bench as bench_command
from specdec_cli.cli import chat as chat_command
from specdec_cli.cli import options
from specdec_cli.cli import pairs as pair_commands
from specdec_cli.cli import replay as replay_command
from specdec_cli.cli.pipes import ReaderLeft, quietly
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.events import Event, Failure, Finish
from specdec_cli.pairs.pair import DEMO
from specdec_cli.request import parse_bias, parse_k, sampling_flags
from specdec_cli.session.interrupt import Interrupt

if TYPE_CHECKING:
    from specdec_cli.ui.display import Display

app = typer.Typer(
    name="specdec",
    help="Speculative decoding you can see: a draft model guesses, the target model checks, the words stay its own.",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
RUN_EXAMPLES = """[dim]Examples:[/dim]\n
[dim]  specdec run 'Return the lines of a file.'[/dim]\n
[dim]  cat notes.txt | specdec run --raw -n 64 --json[/dim]\n
[dim]SPECDEC_PAIR, SPECDEC_K and the like set defaults.[/dim]"""


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


@app.command(epilog=RUN_EXAMPLES)
@quietly
def run(
    prompt: options.Prompt = None,
    pair: options.PairName = None,
    target: options.Target = None,
    draft: options.DraftModel = None,
    k: options.KOrAuto = None,
    max_tokens: options.MaxTokens = 512,
    stop: options.Stop = None,
    system: options.System = None,
    raw: options.Raw = False,
    json: options.Json = False,
    panel: options.Panel = None,
    quiet: options.Quiet = False,
    plain: options.Plain = False,
    temp: options.Temp = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    rule: options.Rule = "auto",
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    logit_bias: options.LogitBias = None,
    drafter: options.DrafterName = None,
    target_revision: options.TargetRevision = None,
    draft_revision: options.DraftRevision = None,
    max_context: options.MaxContext = None,
    kv_bits: options.KvBits = None,
    trace: options.Trace = None,
    offline: options.Offline = False,
    force: options.Force = False,
) -> None:
    """Answer one prompt: the text on stdout, the panel and the summary on stderr."""
    from specdec_cli.pairs.resolve import resolve_pair
    from specdec_cli.ui.display import loading, open_display, print_demo_box, print_notice

    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    length = parse_k(k)
    if length == 0:
        drafter = "none"  # no need to load a draft
    sampling = sampling_flags(temp, top_p, top_k, min_p, repetition_penalty, presence_penalty, frequency_penalty)
    bias = parse_bias(tuple(logit_bias or ()))
    text = read_prompt(prompt)
    resolved = resolve_pair(pair, target, draft, target_revision, draft_revision, here=drafter != "none")
    chosen = resolved.pair
    drafter = drafter or resolved.drafter
    talks = not (quiet or json)
    with ExitStack() as stack:
        screen = open_display(
            sys.stdout, sys.stderr, name=chosen.name, json=json, panel=panel, quiet=quiet, plain=plain, trace=trace
        )
        display = stack.enter_context(screen)
        if talks and chosen.name == DEMO and sys.stderr.isatty():
            print_demo_box(sys.stderr, plain)
        with loading(sys.stderr, chosen.name, shown=talks and not plain):
            from specdec_cli.request import Request
            from specdec_cli.session.cost_file import cost_file
            from specdec_cli.session.load import load

            room = None if force else max_tokens + len(text) // 3
            session = load(chosen, drafter=drafter, reserve_tokens=room, kv_bits=kv_bits, costs=cost_file()).session()
        if talks and chosen.name != DEMO and resolved.reason:
            print_notice(sys.stderr, resolved.reason, plain)
        request = Request(
            max_tokens=max_tokens,
            stop=tuple(stop or ()),
            k=chosen.k if length is None else length,
            drafter=drafter,
            max_context=max_context,
            rule=rule,
            seed=seed,
            sampling=sampling,
            logit_bias=bias,
        )
        ids = session.raw_tokens(text) if raw else session.chat_tokens(text, system)
        interrupt = stack.enter_context(Interrupt())
        finish = show_events(session.reply(ids, request, interrupt.requested, raw), display)
    if finish.reason == "interrupted":
        raise typer.Exit(130)


app.add_typer(pair_commands.app)
app.add_typer(audit_command.app)
app.add_typer(bench_command.app)
app.add_typer(chat_command.app)
app.add_typer(replay_command.app)


@app.command()
@quietly
def doctor(
    selftest: Annotated[
        bool, typer.Option("--selftest", help="Decode a tiny model of every architecture here, drafts and all.")
    ] = False,
) -> None:
    """Chip, memory, versions, cache folder: what works here and what does not."""
    # Before mlx is imported: some devices would round float32 products, and near-ties would count as errors.
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    from specdec_cli.audit.doctor import diagnose
    from specdec_cli.ui.display import counting, print_doctor

    if not selftest:
        print_doctor(sys.stdout, diagnose())
        return
    from specdec_cli.audit.selftest import run_selftest

    with counting(sys.stderr) as report:
        found = run_selftest(report)
    print_doctor(sys.stdout, found.findings())
    if found.wrong:
        raise typer.Exit(1)


def read_prompt(argument: str | None) -> str:
    """Piped stdin first, then PROMPT.

    Raises: UsageError if nothing is there or stdin is not UTF-8.
    """
    piped = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    try:
        parts = [piped.decode("utf-8"), argument or ""]
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is not UTF-8: byte 0x{piped[error.start]:02x} at {error.start} of {len(piped)}",
            "convert it first: iconv -f latin1 -t utf-8 FILE | specdec run",
        ) from error
    text = "\n".join(part for part in parts if part)
    if not text.strip():
        raise UsageError("the prompt is empty: 0 characters", "give some: specdec run 'Return the lines of a file.'")
    return text


def show_events(events: Iterator[Event], display: Display) -> Finish:
    """Hand every event to `display`; a failure after the start is an event too before it goes on as an error."""
    started = False
    try:
        for event in events:
            started = True
            display.handle(event)
            if isinstance(event, Finish):
                return event
    except SpecdecError as error:
        if started:
            display.handle(Failure(error.message, error.hint, error.exit_code))
        raise
    raise SpecdecError("the session ended without a finish event", "please report this")


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


def main() -> NoReturn:
    """Run the command line; every failure becomes two lines and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        arguments = sys.argv[1:] or ["--help"]
        code = int(app(arguments, standalone_mode=False, prog_name="specdec") or 0)
        sys.stdout.flush()
    except (ReaderLeft, BrokenPipeError):
        code = leave_quietly()
    except KeyboardInterrupt:
        code = 130
    except SpecdecError as error:
        code = fail(error)
    except TyperException as error:
        code = fail(UsageError(usage_message(error), "specdec --help lists commands, specdec COMMAND --help options"))
    except Exception as error:  # noqa: BLE001 - the one boundary: a person gets two lines, never a traceback
        failure = SpecdecError(f"{type(error).__name__}: {error}", "SPECDEC_DEBUG=1 shows the traceback")
        failure.__cause__ = error
        code = fail(failure)
    # From here on a late Ctrl-C could only turn the exit code into a signal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)
