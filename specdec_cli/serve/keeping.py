"""When conversations are written. Law: only while nobody waits; who comes waits for one piece of a file at most."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing

from specdec_cli.engine.array_file import Unusable
from specdec_cli.engine.pipeline import Clock
from specdec_cli.errors import SpecdecError, untrusted
from specdec_cli.serve.folder import LEAST_GAIN, Folder
from specdec_cli.serve.slots import Kept

# So long nobody must have asked for anything.
PAUSE_SECONDS = 2.0
# A conversation grows with every turn, and is written whole: on average so much a second at most, until it is time to
# end. A disk of a laptop bears that for years.
BYTES_A_SECOND = 10 << 20
# After a disk that was full.
RETRY_SECONDS = 300.0


class Keeper:
    """Writes to `folder` what slots hold."""

    def __init__(self, folder: Folder, clock: Clock) -> None:
        self.folder, self._clock = folder, clock
        self._next_at = 0.0

    @property
    def pause_seconds(self) -> float:
        """How long nobody must have asked for anything before something is written."""
        return max(PAUSE_SECONDS, self._next_at - self._clock())

    def write(self, slots: Iterable[Kept], stopped: Callable[[], bool]) -> bool:
        """Write what the folder does not hold, the last used first, until `stopped`; whether it came to its end."""
        for kept in sorted(slots, key=lambda kept: -kept.used_at):
            if kept.busy or kept.written or kept.length < LEAST_GAIN:
                continue
            if self.folder.holds(list(kept.slot.tokens)):
                kept.written = True
            elif not self._written(kept, stopped):
                return False
        return True

    def _written(self, kept: Kept, stopped: Callable[[], bool]) -> bool:
        """Whether it came to its end, good or bad."""
        began = self._clock()
        used_at = time.time() - (began - kept.used_at)
        try:
            with (
                untrusted(not_written),
                closing(self.folder.write(kept.name, kept.slot, kept.facts, used_at)) as pieces,
            ):
                for _ in pieces:
                    if stopped():
                        return False
        except SpecdecError as error:
            # What cannot be kept is not tried again, what had no room is.
            kept.written = isinstance(error.__cause__, Unusable)
            self._next_at = began + (0.0 if kept.written else RETRY_SECONDS)
            self.folder.failed(error.message)
            return True
        kept.written = True
        self._next_at = max(self._next_at, began) + kept.nbytes / BYTES_A_SECOND
        return True


def not_written(reason: str) -> SpecdecError:
    """Why a conversation is not in the folder."""
    return SpecdecError(reason, "free space, or give another folder: --cache-dir DIR")
