"""The live panel below the answer. Law: at most ten refreshes a second; the answer is append-only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final, TextIO

from specdec_cli.events import Event, Failure, Finish, RoundDone, Start
from specdec_cli.ui.panel.frame import frame_rows, render
from specdec_cli.ui.panel.region import AnswerRows, LiveRegion, folds_rows
from specdec_cli.ui.panel.state import PanelState
from specdec_cli.ui.plain import AnswerWriter
from specdec_cli.ui.summary import print_lines, summary
from specdec_cli.ui.terminal import make_console, same_terminal, terminal_size

__all__ = ["REFRESH_SECONDS", "PanelDisplay", "PanelState", "render"]

REFRESH_SECONDS: Final = 0.1


class PanelDisplay:
    """The answer, append-only, and a panel below it; at the end the last panel stays, followed by the summary.

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
        rows: Callable[[], AnswerRows] = AnswerRows,
        stays: bool = True,
    ) -> None:
        """`name` is the pair's; `quiet` omits the summary; `size` gives (columns, rows), by default of `err`.

        `rows` splits an answer into rows; the last panel is erased unless it `stays`.
        """
        self._err = err
        self._clock = clock
        self._quiet = quiet
        self._stays = stays
        self._make_rows = rows
        self._size = size or (lambda: terminal_size(err))
        self._console = make_console(err, plain=False)
        self._region = LiveRegion(self._console, err, self._size, folds_rows())
        self._answer = None if same_terminal(out, err) else AnswerWriter(out)
        self._state = PanelState(name=name)
        self._reset()

    def _reset(self) -> None:
        self._rows = self._make_rows()
        self._above = ""
        self._drawn_at: float | None = None

    def handle(self, event: Event) -> None:
        """Folds one event, and draws if a refresh is due."""
        if isinstance(event, Start):
            self._reset()
        self._state = self._state.apply(event)
        if isinstance(event, RoundDone):
            self._text(event.text)
        if isinstance(event, Finish):
            self._finish(event)
        elif isinstance(event, Failure):
            self.close()
        else:
            self._refresh()

    def close(self) -> None:
        """Erases the panel, ends a partial answer's line and shows the cursor again."""
        with contextlib.suppress(OSError, ValueError):
            self._region.release(self._rest())
        if self._answer is not None:
            with contextlib.suppress(OSError, ValueError):
                self._answer.end()

    def _text(self, text: str) -> None:
        if self._answer is not None:
            self._answer.write(text)
        else:
            self._above += self._rows.feed(text, self._size()[0])

    def _rest(self) -> str:
        """The part of the answer that is not yet printed for good."""
        width = self._size()[0]
        rest = self._above + self._rows.finish(width)
        self._above = ""
        return rest

    def _refresh(self) -> None:
        now = self._clock()
        if self._drawn_at is not None and now - self._drawn_at < REFRESH_SECONDS:
            return
        self._drawn_at = now
        width, height = self._size()
        rows = frame_rows(self._state, width, height)
        if self._answer is None:
            self._above += self._rows.feed("", width)  # the window may have become narrower
            rows = [self._rows.row, *rows]
        above, self._above = self._above, ""
        self._region.draw(above, rows)

    def _finish(self, event: Finish) -> None:
        self._text(event.text_tail)
        if self._answer is not None:
            self._answer.end()
        width, height = self._size()
        self._region.release(self._rest(), frame_rows(self._state, width, height) if self._stays else ())
        if not self._quiet and self._state.start is not None:
            print_lines(self._console, summary(self._state.start, event, width), width)
