"""Events as JSON Lines, for `--json` and `--trace`. Law: one event is one flushed line of plain ASCII."""

from __future__ import annotations

import json
from typing import TextIO

from specdec_cli.events import Event, to_dict


class JsonlDisplay:
    """Writes each event as one line of JSON, the very object of DESIGN §3. The stream belongs to the caller."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def handle(self, event: Event) -> None:
        """Writes and flushes one line: a reader at the other end of the pipe is never a round behind."""
        # ASCII: json leaves DEL, C1 and U+2028 as they are otherwise, and a lone surrogate could not be written at all.
        self._out.write(json.dumps(to_dict(event), ensure_ascii=True) + "\n")
        self._out.flush()

    def close(self) -> None:
        """Nothing is held back, so nothing is left to do."""
