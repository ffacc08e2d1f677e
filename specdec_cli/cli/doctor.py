"""`specdec doctor`. Law: it reports whatever it finds; only a self-test that found wrong tokens exits 1."""

from __future__ import annotations

import json as jsons
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli.cli.pipes import ignore_broken_pipe
from specdec_cli.errors import UsageError

if TYPE_CHECKING:
    from specdec_cli.engine.conformance.suite import Outcome

app = typer.Typer()


@app.command(short_help="Chip, memory, versions, caches: what works here.")
@ignore_broken_pipe
def doctor(
    selftest: Annotated[
        bool,
        typer.Option(
            "--selftest",
            help="Decode a tiny model of every architecture here in float32, and eight families in 16 and 4 bits.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="With --selftest: JSON Lines, one for each result.")] = False,
) -> None:
    """Chip, memory, versions, cache folder: what works here and what does not."""
    if json and not selftest:
        raise UsageError("--json was given without --selftest", "specdec doctor --selftest --json")
    # Before mlx is imported: some devices would round float32 products, and near-ties would count as errors.
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    if selftest:
        _selftest(json)
        return
    from specdec_cli.audit.doctor import diagnose
    from specdec_cli.ui.display import print_doctor

    print_doctor(sys.stdout, diagnose())


def _selftest(json: bool) -> None:
    from specdec_cli.audit.selftest import run_selftest
    from specdec_cli.ui.display import counting, print_doctor

    with counting(sys.stderr) as report:

        def on_outcome(done: int, expected: int, outcome: Outcome) -> None:
            report(done, expected, outcome.name)
            if json:
                sys.stdout.write(jsons.dumps(asdict(outcome)) + "\n")
                sys.stdout.flush()

        found = run_selftest(on_outcome)
    if not json:
        print_doctor(sys.stdout, found.findings())
    if found.wrong:
        raise typer.Exit(1)
