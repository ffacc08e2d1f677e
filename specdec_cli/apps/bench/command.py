"""`specdec bench`: what can be asked for. The tables are on stdout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from specdec_cli.command.command import grouped
from specdec_cli.command.options import ContenderOptions
from specdec_cli.core.kinds import DEFAULT_RULE

app = typer.Typer()
EXAMPLES = """specdec bench
specdec bench -p qwen3-8b --kinds code,chat --write
specdec bench --time-budget 10m --export bench.json --export bench.html"""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is measured, for how long, and where the result goes."""

    k: str = "0-8,auto"
    kinds: str | None = None
    prompts: Path | None = None
    max_tokens: int | None = None
    time_budget: str = "2m"
    write: bool = False
    export: list[Path] | None = None
    temps: list[float] | None = None
    drafters: list[str] | None = None
    raw: bool = False
    json: bool = False
    quiet: bool = False
    rule: str = DEFAULT_RULE
    seed: int = 0
    cooldown: str = "0s"
    fixed_length: bool = False


@app.command(epilog=EXAMPLES)
@grouped
def bench(*, models: ContenderOptions, options: BenchOptions) -> None:
    """Find the K and the draft that are fastest here.

    With evidence: it sweeps K by kind of text and recommends one; --write keeps it.
    """
    from specdec_cli.apps.bench.bench import run

    if not run(models, options):
        raise typer.Exit(130)
