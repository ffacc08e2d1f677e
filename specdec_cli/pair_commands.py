"""`pairs`, `pull`, `check`, `rm`. Law: verdicts come before gigabytes, and nothing is deleted unasked."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli import options
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.pairs import DEMO, Pair
from specdec_cli.pipes import quietly

if TYPE_CHECKING:
    from specdec_cli.pairs import Registry
    from specdec_cli.ui.tables import PairRow

app = typer.Typer()
pairs_app = typer.Typer(invoke_without_command=True, help="The pairs specdec knows: sizes, here or not, fits or not.")
app.add_typer(pairs_app, name="pairs")

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
Name = Annotated[str | None, typer.Argument(help="A pair from models.toml.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@pairs_app.callback()
@quietly
def pairs(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Ask the Hub whether ids and sizes are right.")] = False,
) -> None:
    """The pairs specdec knows: sizes, downloaded or not, fits or not, where the entry comes from."""
    if context.invoked_subcommand is not None:
        return
    from specdec_cli import shelf
    from specdec_cli.ui import tables

    known = shelf.registry()
    if online:
        for answer in shelf.confirm(shelf.hub_ids(known)):
            if answer.problem:
                tables.print_line(sys.stderr, f"{answer.name}: {answer.problem}")
    rows = pair_rows(known)
    if json:
        tables.print_json(sys.stdout, [row.to_dict() for row in rows])
    else:
        tables.print_pairs(sys.stdout, rows)
    damaged = shelf.partly_here(known)
    for problem in damaged[1:]:
        tables.print_line(sys.stderr, f"{problem.message}; {problem.hint}")
    if damaged:
        raise damaged[0]


def pair_rows(known: Registry) -> list[PairRow]:
    """What `specdec pairs` shows, in the order of models.toml."""
    from specdec_cli import shelf
    from specdec_cli.ui.tables import PairRow

    sizes = shelf.confirmed()
    rows = []
    for pair in known.pairs.values():
        size = shelf.size_bytes(pair, sizes)
        default = pair.name == (known.default_pair or DEMO)
        rows.append(PairRow(shelf.verified(pair, sizes), size, shelf.downloaded(pair), shelf.fits(pair, size), default))
    return rows


@pairs_app.command("add")
@quietly
def add(
    name: Annotated[str, typer.Argument(help="A name for the pair.")],
    target: options.Target = None,
    draft: options.DraftModel = None,
    k: options.KOrAuto = None,
    target_revision: options.TargetRevision = None,
    draft_revision: options.DraftRevision = None,
) -> None:
    """Add a pair of your own to your models.toml."""
    from specdec_cli import shelf, userfile
    from specdec_cli.registry import user_file
    from specdec_cli.ui import tables

    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a pair", "use letters, digits, dots, - and _ only")
    if target is None:
        raise UsageError(f"pair {name} has no target", f"specdec pairs add {name} --target ID --draft ID")
    new = Pair(
        name,
        target,
        draft,
        options.parse_k(k) or "auto",
        target_revision=target_revision,
        draft_revision=draft_revision,
    )
    shelf.registry()  # what cannot be read is not added to
    userfile.add_pair(user_file(), new)
    tables.print_line(sys.stderr, f"{name} is in {user_file()}")


@pairs_app.command("use")
@quietly
def use(name: Annotated[str, typer.Argument(help="A pair from models.toml.")]) -> None:
    """Make a pair the one that speaks when none is named."""
    from specdec_cli import shelf, userfile
    from specdec_cli.registry import user_file
    from specdec_cli.ui import tables

    shelf.registry().find(name)
    userfile.set_default(user_file(), name)
    tables.print_line(sys.stderr, f"{name} now speaks when no pair is named")


@pairs_app.command("path")
@quietly
def path() -> None:
    """Where your models.toml is, or would be."""
    from specdec_cli.registry import user_file

    typer.echo(user_file())


@app.command()
@quietly
def check(
    name: Name = None,
    target: options.Target = None,
    draft: options.DraftModel = None,
    max_context: options.MaxContext = None,
    target_revision: options.TargetRevision = None,
    draft_revision: options.DraftRevision = None,
    kv_bits: options.KvBits = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    offline: options.Offline = False,
) -> None:
    """Verdict on a pair from a few hundred kB: tokenizers, caches, memory, expected gain."""
    from specdec_cli.checkup import check_pair, locate_pair
    from specdec_cli.resolve import resolve_pair
    from specdec_cli.ui import tables

    resolved = resolve_pair(name, target, draft, target_revision, draft_revision, here=offline)
    chosen = resolved.pair
    found = check_pair(chosen, locate_pair(chosen, offline), max_context, kv_bits)
    if resolved.reason:
        tables.print_line(sys.stderr, resolved.reason)
    if json:
        tables.print_json(sys.stdout, found.to_dict())
    else:
        tables.print_checkup(sys.stdout, found)
        tables.print_verdict(sys.stdout, found)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


@app.command()
@quietly
def pull(
    name: Name = None,
    target: options.Target = None,
    draft: options.DraftModel = None,
    max_context: options.MaxContext = None,
    target_revision: options.TargetRevision = None,
    draft_revision: options.DraftRevision = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file's checksum with the Hub's.")] = False,
    yes: Yes = False,
    force: options.Force = False,
    offline: options.Offline = False,
) -> None:
    """Download a pair, checking it first; without a name specdec recommends one for this machine."""
    from specdec_cli import fetching
    from specdec_cli.resolve import resolve_pair
    from specdec_cli.shelf import recommended, registry
    from specdec_cli.ui import tables

    if name is None and target is None and draft is None:
        chosen = recommended(registry())
        ask(f"{chosen.name} is recommended for this machine: {chosen.target} with {chosen.draft}. Pull it?", yes)
    else:
        resolved = resolve_pair(name, target, draft, target_revision, draft_revision, here=offline)
        chosen = resolved.pair
        if resolved.reason:
            tables.print_line(sys.stderr, resolved.reason)
    fetching.pull(chosen, sys.stderr, context_tokens=max_context, verify=verify, force=force, offline=offline)


@app.command()
@quietly
def rm(name: Annotated[str, typer.Argument(help="A pair, or a model's Hub id.")], yes: Yes = False) -> None:
    """Remove a downloaded pair; says what else uses the files and what was freed."""
    from specdec_cli import fetching, shelf
    from specdec_cli.ui import tables

    known = shelf.registry()
    plans = fetching.plan_removal(name, known)
    for plan in plans:
        tables.print_line(sys.stderr, plan.told)
    freed = sum(plan.removal.freed_bytes for plan in plans)
    ask(f"Free {tables.gigabytes(freed)}?", yes)
    tables.print_line(sys.stderr, f"freed {tables.gigabytes(fetching.carry_out(plans))}")
    if name == known.default_pair:
        tables.print_line(sys.stderr, f"{name} still speaks when no pair is named; another: specdec pairs use NAME")


def ask(question: str, yes: bool) -> None:
    """Raises: UsageError where nobody can answer, SpecdecError on a no, KeyboardInterrupt on Ctrl-C."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"nobody can answer: {question}", "add --yes to go on without asking")
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as error:  # Ctrl-C, or the end of the input
        raise KeyboardInterrupt from error
    if not agreed:
        raise SpecdecError("nothing was done", "answer y, or add --yes")
