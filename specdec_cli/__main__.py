"""`specdec` and `python -m specdec_cli`. Ctrl-C ends either without a traceback."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED = 130
# What loads models: its options and imports take a while, and a person who waits is told at once.
LOADS = ("run", "chat", "serve", "bench", "audit", "race")
SILENT = {"-q", "--quiet", "--json", "--plain", "-h", "--help"}


def tell(arguments: list[str]) -> bytes:
    """Says `loading...` on the terminal on stderr; returns what erases it, nothing where nothing was said."""
    silent = SILENT & set(arguments) or os.environ.get("SPECDEC_PLAIN")
    drawn = os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown") and os.isatty(2)
    if silent or not drawn or arguments[:1] not in [[name] for name in LOADS]:
        return b""
    if _is_plain_by_config():
        return b""
    os.write(2, b"loading...")
    return b"\r\x1b[2K"


def _is_plain_by_config() -> bool:
    """What this imports the command line imports, too. A config that is wrong is told of there."""
    from specdec_cli.core.errors import UsageError
    from specdec_cli.system.config import read_config

    try:
        return read_config().values.get("plain") is True
    except UsageError:
        return False


def _begin_again_in_utf8() -> None:
    """In Python's UTF-8 mode where the locale knows ASCII alone: arguments, file names and output are UTF-8 then."""
    if sys.getfilesystemencoding() == "ascii" and sys.executable and "utf8" not in sys._xoptions:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def main() -> NoReturn:
    """Run the command line."""
    _begin_again_in_utf8()
    try:
        told = tell(sys.argv[1:])
        try:
            from specdec_cli.main import main as command_line
        finally:
            if told:
                os.write(2, told)
        command_line()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        # Ctrl-C amid an `exec` of text, as in the making of a dataclass: `python -m` would end by SIGINT, exit code or
        # not, unless another text is evaluated (CPython, run_eval_code_obj and Py_RunMain).
        eval("0")


if __name__ == "__main__":
    main()
