"""`specdec doctor`. Law: it reports whatever it finds; only a self-test that found wrong tokens exits 1."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from specdec_cli.cli.pipes import ignore_broken_pipe

app = typer.Typer()


@app.command(short_help="Chip, memory, versions, caches: what works here.")
@ignore_broken_pipe
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
