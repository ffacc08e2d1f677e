"""`specdec tune`: what can be asked for."""

from __future__ import annotations

import typer

from specdec_cli.apps.tune.options import TuneOptions
from specdec_cli.command.command import grouped

app = typer.Typer()
EXAMPLES = """specdec tune --text ~/src/project --predict-only
specdec tune -p qwen3-8b --text notes --text ~/src/project --write
specdec tune --chats --minutes 60
specdec tune -p qwen3-8b --what medusa --text ~/src/project"""


@app.command(epilog=EXAMPLES)
@grouped
def tune(*, options: TuneOptions) -> None:
    """Train a draft on your text; keep it if it pays.

    A draft model, a head, or new Medusa heads learn what the target says after pieces of your text, and are judged on
    documents they never saw. Nothing leaves this machine; a training that was killed goes on by the same command.
    """
    from specdec_cli.apps.tune.tune import run

    run(options)
