"""A trace as an SVG picture: each reply's text in the colours of its tokens, every round, and the panel's sums."""

from __future__ import annotations

from rich.text import Text

from specdec_cli.core.trace import Trace, TraceReply
from specdec_cli.terminal.export import COLUMNS, picture
from specdec_cli.terminal.panel.answer import AnswerText
from specdec_cli.terminal.panel.frame import frame_rows
from specdec_cli.terminal.panel.rounds import round_rows
from specdec_cli.terminal.panel.state import PanelState, drafting
from specdec_cli.terminal.summary import summary

# Of a frame that is not cut.
HEIGHT = 40


def trace_picture(trace: Trace, name: str) -> str:
    """Every reply of the trace, one below the other; `name` is the pair's, if it is known."""
    rows: list[Text] = []
    for reply in trace.replies:
        state = PanelState(name=name)
        for event in reply.events():
            state = state.apply(event)
        rows += [*answer(reply, COLUMNS), Text(), *round_rows(reply.rounds, reply.start, COLUMNS)]
        rows += frame_rows(state, COLUMNS, HEIGHT, 0)
        rows += [*summary(reply.start, reply.finish, COLUMNS, below_panel=True), Text()]
    return picture("specdec", rows)


def answer(reply: TraceReply, width: int) -> list[Text]:
    """What the reply said, as it is printed above the panel."""
    text = AnswerText(drafting(reply.start))
    for done in reply.rounds:
        text.add(done)
    text.end(reply.finish.text_tail)
    *rows, last = text.upto(len(reply.rounds), width)
    return [*rows, last] if last else rows
