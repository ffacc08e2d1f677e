"""`pairs`, `pull`, `check`, `rm`. Law: verdicts come before gigabytes, and nothing is deleted unasked."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli.cli.groups import grouped
from specdec_cli.cli.opened import named
from specdec_cli.cli.options import DraftLength, Force, KvBits, MaxContext, Offline, PairOptions
from specdec_cli.cli.pipes import ignore_broken_pipe
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.format import size
from specdec_cli.pairs.pair import DEMO, Pair
from specdec_cli.request import parse_k

if TYPE_CHECKING:
    from specdec_cli.pairs.pair import Registry
    from specdec_cli.ui.pairs import PairRow

app = typer.Typer()
pairs_app = typer.Typer(invoke_without_command=True, help="The pairs specdec knows: sizes, here or not, fits or not.")
app.add_typer(pairs_app, name="pairs")

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
Name = Annotated[str | None, typer.Argument(help="A pair from models.toml.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@pairs_app.callback()
@ignore_broken_pipe
def pairs(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Ask the Hub whether ids and sizes are right.")] = False,
) -> None:
    """The pairs specdec knows: sizes, downloaded or not, fits or not, where the entry comes from."""
    if context.invoked_subcommand is not None:
        return
    from specdec_cli.pairs.catalog import confirm, hub_ids, partly_here, registry
    from specdec_cli.ui.pairs import print_json, print_line, print_pairs

    known = registry()
    if online:
        for answer in confirm(hub_ids(known)):
            if answer.problem:
                print_line(sys.stderr, f"{answer.name}: {answer.problem}")
    rows = pair_rows(known)
    if json:
        print_json(sys.stdout, [row.to_dict() for row in rows])
    else:
        print_pairs(sys.stdout, rows)
    damaged = partly_here(model for pair in known.pairs.values() for model in pair.models)
    for problem in damaged[1:]:
        print_line(sys.stderr, f"{problem.message}; {problem.hint}")
    if damaged:
        raise damaged[0]


def pair_rows(known: Registry) -> list[PairRow]:
    """What `specdec pairs` shows, in the order of models.toml."""
    from specdec_cli.pairs.catalog import confirmed, downloaded, fits, size_bytes, verified
    from specdec_cli.ui.pairs import PairRow

    sizes = confirmed()
    rows = []
    for pair in known.pairs.values():
        size = size_bytes(pair, sizes)
        default = pair.name == (known.default_pair or DEMO)
        rows.append(PairRow(verified(pair, sizes), size, downloaded(pair), fits(pair, size), default))
    return rows


@pairs_app.command("add")
@grouped
@ignore_broken_pipe
def add(
    *,
    name: Annotated[str, typer.Argument(help="A name for the pair.")],
    models: PairOptions,
    k: DraftLength = None,
) -> None:
    """Add a pair of your own to your models.toml."""
    from specdec_cli.pairs import userfile
    from specdec_cli.pairs.catalog import registry
    from specdec_cli.pairs.registry import user_file
    from specdec_cli.ui.pairs import print_line

    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a pair", "use letters, digits, dots, - and _ only")
    if models.target is None:
        raise UsageError(f"pair {name} has no target", f"specdec pairs add {name} --target ID --draft ID")
    new = Pair(
        name,
        models.target,
        models.draft,
        parse_k(k) or "auto",
        target_revision=models.target_revision,
        draft_revision=models.draft_revision,
    )
    registry()  # a file that cannot be read is not added to
    userfile.add_pair(user_file(), new)
    print_line(sys.stderr, f"{name} is in {user_file()}")


@pairs_app.command("use")
@ignore_broken_pipe
def use(name: Annotated[str, typer.Argument(help="A pair from models.toml.")]) -> None:
    """Make a pair the default: it answers when none is named."""
    from specdec_cli.pairs import userfile
    from specdec_cli.pairs.catalog import registry
    from specdec_cli.pairs.registry import user_file
    from specdec_cli.ui.pairs import print_line

    registry().find(name)
    userfile.set_default(user_file(), name)
    print_line(sys.stderr, f"{name} is now the default pair")


@pairs_app.command("path")
@ignore_broken_pipe
def path() -> None:
    """Where your models.toml is, or would be."""
    from specdec_cli.pairs.registry import user_file

    typer.echo(user_file())


@app.command(short_help="Verdict on a pair from a few hundred kB, before any weight.")
@grouped
@ignore_broken_pipe
def check(
    *,
    name: Name = None,
    models: PairOptions,
    max_context: MaxContext = None,
    kv_bits: KvBits = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    offline: Offline = False,
) -> None:
    """Verdict on a pair from a few hundred kB: tokenizers, caches, memory, expected gain."""
    from specdec_cli.pairs.catalog import partly_here
    from specdec_cli.pairs.check import check_pair, locate_pair
    from specdec_cli.ui.pairs import print_checks, print_json, print_line, print_verdict

    resolved = named(name, models, here=offline)
    # A verdict on fetched files would hide that the files here cannot answer.
    for problem in partly_here(resolved.pair.models):
        raise problem
    found = check_pair(resolved.pair, locate_pair(resolved.pair, offline), max_context, kv_bits)
    if resolved.reason:
        print_line(sys.stderr, resolved.reason)
    if json:
        print_json(sys.stdout, found.to_dict())
    else:
        print_checks(sys.stdout, found)
        print_verdict(sys.stdout, found)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


@app.command(short_help="Download a pair, checking it first.")
@grouped
@ignore_broken_pipe
def pull(
    *,
    name: Name = None,
    models: PairOptions,
    max_context: MaxContext = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file's checksum with the Hub's.")] = False,
    yes: Yes = False,
    force: Force = False,
    offline: Offline = False,
) -> None:
    """Download a pair, checking it first; without a name specdec recommends one for this machine."""
    from specdec_cli.pairs.catalog import recommended, registry
    from specdec_cli.pairs.pull import pull
    from specdec_cli.ui.download import PullScreen
    from specdec_cli.ui.pairs import print_line

    if name is None and models.target is None and models.draft is None:
        pair = recommended(registry())
        ask(f"{pair.name} is recommended for this machine: {pair.target} with {pair.draft}. Pull it?", yes)
    else:
        resolved = named(name, models, here=offline)
        pair = resolved.pair
        if resolved.reason:
            print_line(sys.stderr, resolved.reason)
    pull(pair, PullScreen(sys.stderr), context_tokens=max_context, verify=verify, force=force, offline=offline)


@app.command(short_help="Remove a downloaded pair; says what was freed.")
@ignore_broken_pipe
def rm(name: Annotated[str, typer.Argument(help="A pair, or a model's Hub id.")], yes: Yes = False) -> None:
    """Remove a downloaded pair; says what else uses the files and what was freed."""
    from specdec_cli.pairs.catalog import registry
    from specdec_cli.pairs.pull import carry_out, plan_removal
    from specdec_cli.ui.pairs import print_line

    known = registry()
    plans = plan_removal(name, known)
    for plan in plans:
        print_line(sys.stderr, plan.summary)
    freed = sum(plan.removal.freed_bytes for plan in plans)
    ask(f"Free {size(freed)}?", yes)
    print_line(sys.stderr, f"freed {size(carry_out(plans))}")
    if name == known.default_pair:
        print_line(sys.stderr, f"{name} is still the default pair; another: specdec pairs use NAME")


def ask(question: str, yes: bool) -> None:
    """Raises: UsageError where nobody can answer, SpecdecError on a no, KeyboardInterrupt on Ctrl-C."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"there is no terminal to ask on: {question}", "add --yes to go on without asking")
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as error:  # Ctrl-C, or the end of the input
        raise KeyboardInterrupt from error
    if not agreed:
        raise SpecdecError("nothing was done", "answer y, or add --yes")
