"""specdec's own words where an encoding lacks their signs. Law: the reader loses the sign, never the meaning.

The streams of the program spell so by themselves (`errors=SPELLED`). The answer does not come this way: `encodable` has
replaced there what the encoding cannot carry.
"""

from __future__ import annotations

import codecs
from typing import Final, TextIO

SPELLED: Final = "specdec.spelled"
"""The name of the error handler for `str.encode` and `TextIOWrapper.reconfigure`."""

_SPELLINGS: Final = {
    **dict.fromkeys("·•", "-"),
    **dict.fromkeys("–—−─━╌┄┈═╸╺", "-"),
    **dict.fromkeys("│┃┊┆║", "|"),
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼╋╪╂", "+"),
    **dict.fromkeys("‘’‚′", "'"),
    **dict.fromkeys("“”„″", '"'),
    **dict.fromkeys("\u00a0\u202f\u2009", " "),
    "×": "x",
    "÷": "/",
    "±": "+/-",
    "≈": "~",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "∞": "inf",
    "…": "...",
    "→": "->",
    "➜": "->",
    "↳": "->",
    "←": "<-",
    "❯": ">",
    "✓": "+",
    "✗": "x",
    "★": "*",
    "α": "alpha",
    "°": " deg",
    "␣": "_",
    "↵": "\\n",
    "⇥": "\\t",
    "²": "^2",
    "µ": "u",
    "μ": "u",
    "Σ": "sum",
    **{bar: str(height) for height, bar in enumerate("▁▂▃▄▅▆▇█", 1)},
}


def spelled(text: str, stream: TextIO) -> str:
    """`text` with ASCII spellings for what the stream's encoding cannot carry; `?` where there is none."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, SPELLED).decode(encoding)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SPELLINGS.get(char, "?") for char in error.object[error.start : error.end]), error.end


codecs.register_error(SPELLED, _spell)
