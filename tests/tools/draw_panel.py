"""Draws the README's picture from a real run.

`specdec run … --trace T`, then `python tests/tools/draw_panel.py T specdec_cli/docs/panel.svg`.
"""

import io
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from specdec_cli.events import Finish, RoundDone, Start, from_dict
from specdec_cli.ui.panel.frame import render
from specdec_cli.ui.panel.state import PanelState
from specdec_cli.ui.summary import summary


def main() -> None:
    trace, picture = map(Path, sys.argv[1:])
    state, start, finish, text = PanelState(name="demo"), None, None, ""
    for line in trace.read_text().splitlines():
        event = from_dict(json.loads(line))
        state = state.apply(event)
        if isinstance(event, Start):
            start = event
        if isinstance(event, RoundDone):
            text += event.text
        if isinstance(event, Finish):
            finish = event
    console = Console(record=True, width=84, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ specdec run --raw -n {start.max_tokens} 'def read_lines(path):'", style="dim"))
    console.print(Text((text + finish.text_tail).strip("\n")))
    console.print(render(state, 84, 40))
    for row in summary(start, finish, 84):
        console.print(row)
    picture.write_text(console.export_svg(title="specdec"))


main()
