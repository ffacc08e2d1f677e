"""A trace as an SVG picture: each reply's text in the colours of its tokens, every round, and the panel's sums."""

from __future__ import annotations

from itertools import chain

from rich.text import Text

from specdec_cli.core.judged import Judged, TokenStream
from specdec_cli.core.trace import Trace, TraceReply
from specdec_cli.terminal.export import COLUMNS, picture
from specdec_cli.terminal.panel.answer import AnswerRows
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
    rows, stream, colours, tokens = AnswerRows(), TokenStream(), drafting(reply.start), list[Judged]()
    for done in reply.rounds:
        stream.expect(done)
        tokens += stream.feed(done.text)
    tokens += stream.feed(reply.finish.text_tail)
    fed = [rows.feed(token.piece, width, token.kind if colours else None) for token in tokens if token.said]
    return [*chain.from_iterable(fed), *rows.finish(width)]
