"""`specdec tune`: what can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from specdec_cli.command.command import grouped

app = typer.Typer()
EXAMPLES = """specdec tune --text ~/src/project --predict-only
specdec tune -p qwen3-8b --text notes --text ~/src/project --write
specdec tune --chats --minutes 60
specdec tune -p qwen3-8b --what medusa --text ~/src/project"""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What is trained, on which text, for how long, and where it is kept."""

    pair: str | None = None
    target: str | None = None
    draft: str | None = None
    adapter: str | None = None
    text: list[Path] | None = None
    chats: bool = False
    what: str | None = None
    minutes: int = 20
    predict_only: bool = False
    seed: int = 0
    out: str | None = None
    write: bool = False
    offline: bool = False


@app.command(epilog=EXAMPLES)
@grouped
def tune(*, options: TuneOptions) -> None:
    """Train a draft on your text; keep it if it pays.

    A draft model, a head, or new Medusa heads learn what the target says after pieces of your text, and are judged on
    documents they never saw. Nothing leaves this machine; a training that was killed goes on by the same command.
    """
    from specdec_cli.apps.tune.tune import run

    run(options)
