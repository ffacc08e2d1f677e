"""Draws the documents' pictures from real runs of the demo pair: python tests/tools/draw_pictures.py

panel.svg is half a reply, as its terminal shows it amid the answer; race.svg is a whole race. Their speeds are those of
the machine that draws them: take a quiet one. `--trace FILE` draws the panel of a reply that was recorded before.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.text import Text

from specdec_cli.core.events import RoundDone
from specdec_cli.core.judged import TokenStream
from specdec_cli.core.trace import TraceReply, read_trace
from specdec_cli.terminal.export import picture
from specdec_cli.terminal.panel.answer import ANSWER_STYLES
from specdec_cli.terminal.panel.frame import render
from specdec_cli.terminal.panel.state import PanelState

DOCUMENTS = Path(__file__).parents[2] / "specdec_cli/docs"
ASKED = ("--raw", "-n", "100", "def parse_date(text):")
WIDTH = 80


def specdec(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "specdec_cli", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def panel(reply: TraceReply) -> str:
    """The answer and the panel at the reply's middle."""
    state, stream, answer = PanelState(name="demo"), TokenStream(), Text()
    rounds = [event for event in reply.events() if isinstance(event, RoundDone)]
    for event in reply.events():
        state = state.apply(event)
        if isinstance(event, RoundDone):
            stream.expect(event)
            for token in filter(lambda token: token.said, stream.feed(event.text)):
                answer.append(token.piece, ANSWER_STYLES[token.kind] if state.stats.draft_n else "")
            if event is rounds[len(rounds) // 2]:
                break
    asked = Text(f"$ specdec run {' '.join(ASKED[:-1])} '{ASKED[-1]}'", style="dim")
    answer.rstrip()
    said = answer[len(answer.plain) - len(answer.plain.lstrip("\n")) :]
    return picture("specdec", [asked, said, render(state, WIDTH, 40)], WIDTH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = asked.trace or Path(folder) / "answer.jsonl"
        if asked.trace is None:
            specdec("run", "-q", "--trace", trace, *ASKED)
            specdec("race", "-q", "--export", DOCUMENTS / "race.svg", *ASKED)
        (DOCUMENTS / "panel.svg").write_text(panel(read_trace(trace).replies[0]))


main()
