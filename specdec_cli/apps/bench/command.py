"""`specdec bench`: what can be asked for. The tables are on stdout."""

from __future__ import annotations

import typer

from specdec_cli.apps.bench.options import BenchOptions
from specdec_cli.command.command import grouped
from specdec_cli.command.options import ContenderOptions

app = typer.Typer()
EXAMPLES = """specdec bench
specdec bench -p qwen3-8b --kinds code,chat --write
specdec bench --time-budget 10m --export bench.json --export bench.html"""


@app.command(epilog=EXAMPLES)
@grouped
def bench(*, models: ContenderOptions, options: BenchOptions) -> None:
    """Find the K and the draft that are fastest here.

    With evidence: it sweeps K by kind of text and recommends one; --write keeps it.
    """
    from specdec_cli.apps.bench.bench import run

    if not run(models, options):
        raise typer.Exit(130)
