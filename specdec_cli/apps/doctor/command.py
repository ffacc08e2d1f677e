"""`specdec doctor`. It reports whatever it finds; only a self-test in which something is wrong exits 1."""

from __future__ import annotations

import json as jsons
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from specdec_cli.command.command import grouped
from specdec_cli.command.machines import several, take_part
from specdec_cli.core.errors import UsageError

if TYPE_CHECKING:
    from specdec_cli.engine.selftest import Outcome

app = typer.Typer()


@app.command()
@grouped
def doctor(
    *,
    selftest: bool = False,
    json: bool = False,
    hosts: str | None = None,
) -> None:
    """What works on this machine, and what specdec keeps here."""
    if json and not selftest:
        raise UsageError("--json was given without --selftest", "specdec doctor --selftest --json")
    if selftest:
        _selftest(json)
        return
    is_shared = take_part(hosts)
    from specdec_cli.apps.doctor.findings import diagnose, kept_here
    from specdec_cli.terminal.display import print_columns

    print_columns(sys.stdout, [(f"{'✓' if well else '✗'} {name}", *found) for well, name, *found in diagnose()])
    print_columns(sys.stdout, [("kept here", "size", "removed by"), *kept_here()])
    if is_shared:
        print_columns(sys.stdout, several("sums").measured())


def _selftest(json: bool) -> None:
    # Before mlx is imported: some devices would round float32 products, by which rounding is judged.
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    from specdec_cli.apps.doctor.findings import missed, run_selftest, totals, wrong
    from specdec_cli.terminal.display import print_columns
    from specdec_cli.terminal.panel.status import StatusLine

    watched = sys.stdout.isatty()
    with StatusLine(sys.stderr, "testing", shown=watched) as line:  # else the lines below would run into it

        def on_outcome(done: int, expected: int, outcome: Outcome) -> None:
            line.count(done, expected, outcome.name)
            if json:
                sys.stdout.write(jsons.dumps(asdict(outcome)) + "\n")
            elif not watched:
                print_columns(sys.stdout, [(outcome.name, outcome.status, outcome.detail)])
            sys.stdout.flush()

        outcomes, seconds = run_selftest(on_outcome)
    if not json:
        print_columns(sys.stdout, [*totals(outcomes, seconds), *(missed(outcomes) if watched else ())])
    if wrong(outcomes):
        raise typer.Exit(1)
