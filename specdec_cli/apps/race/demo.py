"""`specdec demo`: a race of the pair that ships inside, what was accepted, why it paid or not, and the next command."""

from __future__ import annotations

import sys

import typer

from specdec_cli.apps.race.command import require_lossless, run_race
from specdec_cli.command.command import grouped
from specdec_cli.command.load import AnswerSettings
from specdec_cli.command.options import AnswerOptions, ModelOptions, SamplingOptions
from specdec_cli.pairs.pair import DEMO

app = typer.Typer()
# The pair knows only Python.
PROMPT = "def parse_date(text):"
MAX_TOKENS = 100


@app.command()
@grouped
def demo(*, plain: bool = False) -> None:
    """See speculative decoding work, with no download.

    It is a race of two tiny models that ship inside specdec, and what it shows.
    """
    from specdec_cli.apps.race.screen import lesson
    from specdec_cli.pairs import catalog, choose
    from specdec_cli.terminal.display import print_columns, print_notice

    asked = AnswerSettings.read(AnswerOptions(max_tokens=MAX_TOKENS), SamplingOptions(temp=0.0))
    events = run_race(ModelOptions(pair=DEMO), asked, PROMPT, raw=True, plain=plain)
    require_lossless(events)
    print_notice(sys.stdout, "", plain)
    print_columns(sys.stdout, lesson(events, choose.first_step(catalog.registry()).hint), plain)
