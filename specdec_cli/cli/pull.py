"""`pull`, `check`, `rm`. Verdicts come before gigabytes, and nothing is deleted unasked."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from specdec_cli.cli.command import Yes, ask, grouped, ignore_broken_pipe, require_answer
from specdec_cli.cli.load import resolve_named
from specdec_cli.cli.options import Force, KvBits, MaxContext, Offline, PairOptions, pair_names
from specdec_cli.format import size
from specdec_cli.pairs.pair import DEMO

app = typer.Typer()
Name = Annotated[
    str | None,
    typer.Argument(
        help="A pair from models.toml; or a target, by its Hub id or folder.",
        show_default=False,
        autocompletion=pair_names,
    ),
]


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
    from specdec_cli.pairs.here import forbidding
    from specdec_cli.ui.pairs import print_checks, print_json, print_line, print_verdict

    with forbidding(offline):
        resolved = resolve_named(name, models, here=offline)
    # A verdict on fetched files would hide that the files here cannot answer.
    for problem in partly_here(resolved.pair.models):
        raise problem
    located = locate_pair(resolved.pair, offline)
    found = check_pair(resolved.pair, located, max_context, kv_bits)
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
    """Download a pair, checking it first; without a name specdec recommends one for this machine, and asks."""
    from specdec_cli.pairs.catalog import recommended, registry
    from specdec_cli.pairs.here import forbidding
    from specdec_cli.pairs.pull import pull
    from specdec_cli.ui.download import PullScreen
    from specdec_cli.ui.pairs import print_line

    if name is None and (models.target, models.draft, models.head_from) == (None, None, None):
        pair = recommended(registry())
        reason = f"{pair.name} is recommended for this machine: {pair.described}"
        require_answer(f"{reason}. Pull it?", yes)
    else:
        yes = True
        with forbidding(offline):
            resolved = resolve_named(name, models, here=offline)
        pair, reason = resolved.pair, resolved.reason
    if reason:
        print_line(sys.stderr, reason)

    def agree(download_bytes: int) -> None:
        ask(f"download {size(download_bytes)}?", yes, usual=True)

    screen = PullScreen(sys.stderr)
    pull(pair, screen, context_tokens=max_context, verify=verify, force=force, offline=offline, agree=agree)


@app.command(short_help="Remove a downloaded pair; says what was freed.")
@ignore_broken_pipe
def rm(
    name: Annotated[str, typer.Argument(help="A pair, or a model's Hub id.", autocompletion=pair_names)],
    yes: Yes = False,
) -> None:
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
        print_line(sys.stderr, f"{name} is still the default pair, and cannot answer: specdec pairs use {DEMO}")
