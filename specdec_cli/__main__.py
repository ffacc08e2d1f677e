"""`specdec` and `python -m specdec_cli`. Ctrl-C ends either without a traceback, from the first import on."""

from __future__ import annotations

# Part of the interpreter; the module `signal` would be the first import that Ctrl-C can break.
import _signal  # type: ignore[import-not-found]
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line."""
    # A program started in the background may be told to ignore Ctrl-C, and then goes on ignoring it.
    heard = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if heard:
        _signal.signal(_signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    from specdec_cli.cli.main import main as command_line

    try:
        if heard:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        command_line()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
