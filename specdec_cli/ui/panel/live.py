"""The live panel below the answer. At most ten refreshes a second; the answer is append-only.

The answer is coloured by the fate of its tokens where the panel below it says what the colours mean.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final, TextIO

from rich.text import Text

from specdec_cli.events import Event, Failure, Finish, RoundDone, Start
from specdec_cli.fates import FateStream, Span
from specdec_cli.ui.panel.answer import AnswerRows, Codes, codes
from specdec_cli.ui.panel.frame import frame_rows, render
from specdec_cli.ui.panel.region import LiveRegion, folds_rows
from specdec_cli.ui.panel.state import PanelState, drafting
from specdec_cli.ui.plain import AnswerWriter
from specdec_cli.ui.summary import Closing, print_lines, summary
from specdec_cli.ui.terminal import make_console, same_terminal, terminal_size

__all__ = ["REFRESH_SECONDS", "PanelDisplay", "PanelState", "render"]

REFRESH_SECONDS: Final = 0.1


class PanelDisplay:
    """The answer, append-only, and a panel below it; at the end the last panel stays, followed by what it does not say.

    Where `out` and `err` are one terminal, one region draws both: its first row is the answer's growing line. Else the
    answer streams to `out`, and the panel is drawn on `err`, which must be a terminal (`can_draw`).
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        clock: Callable[[], float] = time.monotonic,
        quiet: bool = False,
        name: str = "",
        size: Callable[[], tuple[int, int]] | None = None,
        rows: Callable[[Codes], AnswerRows] = AnswerRows,
        stays: bool = True,
        small: bool = False,
        colour_answer: bool = True,
        stepped: bool = False,
        closing: Closing = summary,
    ) -> None:
        """`name` is the pair's; `quiet` omits the `closing` lines; `size` gives (columns, rows), by default of `err`.

        `rows` splits an answer into rows. The last panel is erased unless it `stays`; a `small` one is one line.
        `stepped` draws every round at once, for a person who asks for each.
        """
        self._err = err
        self._clock = clock
        self._quiet, self._closing = quiet, closing
        self._stays = stays
        self._make_rows = rows
        self._size = size or (lambda: terminal_size(err))
        self._console = make_console(err, plain=False)
        self._region = LiveRegion(self._console, err, self._size, folds_rows(), keeps_erased="TMUX" in os.environ)
        self._small = small
        self._stepped = stepped
        self._codes: Codes = codes(self._console) if colour_answer else {}
        self._answer = None if same_terminal(out, err) else AnswerWriter(out)
        self._state = PanelState(name=name)
        self._reset()

    def _reset(self) -> None:
        self._rows = self._make_rows(self._codes)
        self._fates: FateStream | None = None
        self._above = ""
        self._drawn_at: float | None = None

    def handle(self, event: Event) -> None:
        """Folds one event, and draws if a refresh is due."""
        now = self._clock()
        if isinstance(event, Start):
            self._reset()
            self._fates = FateStream() if self._codes and drafting(event) else None
        self._state = self._state.apply(event, None if self._stepped else now)
        if isinstance(event, RoundDone):
            self._say(self._fates.round(event) if self._fates else [(None, event.text)])
        if isinstance(event, Finish):
            self._finish(event)
        elif isinstance(event, Failure):
            self.close()
        else:
            self._refresh(now)

    def close(self) -> None:
        """Erases the panel, ends a partial answer's line and shows the cursor again."""
        with contextlib.suppress(OSError, ValueError):
            self._region.release(self._rest())
        if self._answer is not None:
            with contextlib.suppress(OSError, ValueError):
                self._answer.end()

    def _say(self, spans: list[Span]) -> None:
        if self._answer is not None:
            self._answer.write("".join(text for _, text in spans))
            return
        width, _ = self._size()
        for fate, text in spans:
            self._above += self._rows.feed(text, width, fate)

    def _rest(self) -> str:
        """The part of the answer that is not yet printed for good."""
        width = self._size()[0]
        rest = self._above + self._rows.finish(width)
        self._above = ""
        return rest

    def _refresh(self, now: float) -> None:
        if self._drawn_at is not None and now - self._drawn_at < REFRESH_SECONDS:
            return
        self._drawn_at = now
        rows = self._frame()
        if self._answer is None:
            self._above += self._rows.feed("", self._size()[0])  # the window may have become narrower
            rows = [self._rows.row, *rows]
        above, self._above = self._above, ""
        self._region.draw(above, rows)

    def _frame(self) -> list[Text]:
        return frame_rows(self._state, *self._size(), self._small)

    def _finish(self, event: Finish) -> None:
        self._say(self._fates.tail(event.text_tail) if self._fates else [(None, event.text_tail)])
        if self._answer is not None:
            self._answer.end()
        self._region.release(self._rest(), self._frame() if self._stays else ())
        if not self._quiet and self._state.start is not None:
            width, _ = self._size()
            print_lines(self._console, self._closing(self._state.start, event, width, below_panel=True), width)
