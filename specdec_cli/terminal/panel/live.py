"""The live panel below the answer. At most ten refreshes a second; the answer is append-only.

The answer is coloured by what became of its tokens where the panel below it says what the colours mean.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from threading import RLock
from typing import TextIO

from rich.text import Text

from specdec_cli.core.events import Event, Failure, Finish, Prefill, Reading, RoundDone, Start
from specdec_cli.core.judged import Judged, TokenStream
from specdec_cli.terminal.look import Look
from specdec_cli.terminal.panel.answer import ANSWER_STYLES, AnswerRows
from specdec_cli.terminal.panel.frame import WIDEST, frame_rows
from specdec_cli.terminal.panel.region import LiveRegion
from specdec_cli.terminal.panel.rounds import RoundRows
from specdec_cli.terminal.panel.state import KEPT_ROUNDS, PanelState, drafting
from specdec_cli.terminal.panel.status import TICK_SECONDS, ticking
from specdec_cli.terminal.summary import Closing, print_lines, summary
from specdec_cli.terminal.terminal import has_colour, make_console, same_terminal, terminal_size
from specdec_cli.terminal.writer import AnswerWriter


class PanelDisplay:
    """The answer, append-only, and a panel below it; at the end the last panel stays, followed by what it does not say.

    Where `out` and `err` are one terminal, one region draws both: its first row is the answer's growing line. Else the
    answer streams to `out`, and the panel is drawn on `err`, which must be a terminal (`can_draw`).
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        look: Look = Look(),  # noqa: B008 - frozen
        *,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
        make_rows: Callable[[], AnswerRows] = AnswerRows,
        stays: bool = True,
        closing: Closing = summary,
    ) -> None:
        """`name` is the pair's. `make_rows` splits an answer into rows. The last panel is erased unless it `stays`.

        Where rounds are printed, each is above the panel, which then holds none.
        """
        self._clock, self._closing = clock, closing
        self._make_rows, self._stays, self._rounds = make_rows, stays, look.rounds
        self._console = make_console(err, plain=False)
        self._region = LiveRegion(self._console, err, lambda: terminal_size(err))
        self._coloured = look.colour_answer and has_colour(self._console)
        self._answer = None if same_terminal(out, err) else AnswerWriter(out)
        self._state = PanelState(name=name)
        self._drawing, self._ticks = RLock(), contextlib.ExitStack()
        self._reset(coloured=False)

    def _reset(self, coloured: bool) -> None:
        self._rows = self._make_rows()
        self._tokens, self._colours = TokenStream(), coloured
        self._above: list[Text] = []

    def handle(self, event: Event) -> None:
        """Folds one event, and draws if a refresh is due."""
        if not isinstance(event, Start | Reading | Prefill):
            self._ticks.close()
        with self._drawing:
            self._show(event, self._clock())
        if isinstance(event, Start):
            self._ticks.enter_context(ticking(self._tick, self._drawing, TICK_SECONDS))

    def _show(self, event: Event, now: float) -> None:
        if isinstance(event, Start):
            self._reset(self._coloured and drafting(event))
            self._record = RoundRows(event, min(self._region.size()[0], WIDEST), cut=False)
        self._state = self._state.apply(event, now)
        if isinstance(event, RoundDone):
            if self._rounds:
                self._above += self._record.row(event).wrap(self._console, self._region.size()[0])
            self._tokens.expect(event)
            self._say(event.text)
        if isinstance(event, Finish):
            self._finish(event)
        elif isinstance(event, Failure):
            self._leave()
        elif self._region.due(now):
            self._refresh()

    def close(self) -> None:
        """Erases the panel, ends a partial answer's line and shows the cursor again."""
        self._ticks.close()
        self._leave()

    def _leave(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._region.release(self._rest())
        if self._answer is not None:
            with contextlib.suppress(OSError, ValueError):
                self._answer.end()

    def _say(self, text: str, ends: bool = False) -> None:
        tokens = [*self._tokens.feed(text), *(self._tokens.rest() if ends else ())]
        if self._answer is not None:
            self._answer.write(text)
            return
        for token in tokens:
            self._above += self._shown(token, self._region.size()[0])

    def _shown(self, token: Judged, width: int) -> list[Text]:
        """The rows that a token completes. Before the first draft there is nothing to tell apart."""
        style = ANSWER_STYLES[token.kind] if self._colours and self._state.stats.draft_n else None
        return self._rows.feed(token.piece, width, style) if token.said else []

    def _complete(self) -> str:
        """The complete rows that are not yet printed for good."""
        above, self._above = self._region.ansi(self._above), []
        return "".join(f"{row}\n" for row in above)

    def _rest(self) -> str:
        self._above += self._rows.finish(self._region.size()[0])
        return self._complete()

    def _tick(self) -> None:
        """How long the prompt has been read goes on between its chunks."""
        self._state = replace(self._state, now=self._clock())
        self._refresh()

    def _refresh(self) -> None:
        rows = self._frame()
        if self._answer is None:
            self._above += self._rows.feed("", self._region.size()[0])  # the window may have become narrower
            rows = [self._rows.row, *rows]
        self._region.draw(self._complete(), rows)

    def _frame(self) -> list[Text]:
        return frame_rows(self._state, *self._region.size(), 0 if self._rounds else KEPT_ROUNDS)

    def _finish(self, event: Finish) -> None:
        self._say(event.text_tail, ends=True)
        if self._answer is not None:
            self._answer.end()
        self._region.release(self._rest(), self._frame() if self._stays else ())
        if start := self._state.start:
            width, _ = self._region.size()
            print_lines(self._console, self._closing(start, event, width, self._state.prefill, self._stays), width)
