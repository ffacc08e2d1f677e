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


def _begin_again_in_utf8() -> None:
    """In Python's UTF-8 mode where the locale knows ASCII alone: arguments, file names and output are UTF-8 then."""
    if sys.getfilesystemencoding() == "ascii" and sys.executable and "utf8" not in sys._xoptions:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def main() -> NoReturn:
    """Run the command line."""
    _begin_again_in_utf8()
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
