"""Draws the README's picture from a real run.

`specdec run … --trace T`, then `python tests/tools/draw_panel.py T specdec_cli/docs/panel.svg`. The picture is half a
reply: the panel as it is while the answer comes. `--ended` draws its end instead.
"""

import argparse
import json
from pathlib import Path

from rich.text import Text

from specdec_cli.events import Finish, RoundDone, Start, from_dict
from specdec_cli.fates import FateStream
from specdec_cli.ui.export import export_recorded, recorder
from specdec_cli.ui.panel.answer import ANSWER_STYLES
from specdec_cli.ui.panel.frame import render
from specdec_cli.ui.panel.state import PanelState
from specdec_cli.ui.summary import summary

WIDTH = 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--prompt", default="def parse_date(text):")
    parser.add_argument("--round", type=int, help="the last round drawn, counted from 1; the middle one")
    parser.add_argument("--ended", action="store_true")
    asked = parser.parse_args()
    events = [from_dict(json.loads(line)) for line in asked.trace.read_text().splitlines()]
    rounds = [event for event in events if isinstance(event, RoundDone)]
    last = rounds[-1 if asked.ended else (asked.round or len(rounds) // 2) - 1]
    state, stream, answer, end = PanelState(name="demo"), FateStream(), Text(), None
    for event in events:
        state = state.apply(event)
        if isinstance(event, Start):
            start = event
        if isinstance(event, RoundDone):
            spans = stream.round(event)
        elif isinstance(event, Finish):
            spans, end = stream.tail(event.text_tail), event
        else:
            continue
        for fate, text in spans:
            answer.append(text, fate and ANSWER_STYLES[fate])
        if event is last and not asked.ended:
            break
    console = recorder(WIDTH)
    console.print(Text(f"$ specdec run --raw -n {start.max_tokens} '{asked.prompt}'", style="dim"))
    answer.rstrip()
    console.print(answer[len(answer.plain) - len(answer.plain.lstrip("\n")) :])
    console.print(render(state, WIDTH, 40))
    if end:
        for line in summary(start, end, WIDTH, below_panel=True):
            console.print(line)
    asked.picture.write_text(export_recorded(console, ".svg", "specdec"))


main()
