"""specdec's own words where an encoding lacks their signs: the reader loses the sign, never the meaning.

The streams of the program spell so by themselves (`errors=SPELLED`). The answer does not come this way: `encodable` has
replaced there what the encoding cannot carry.
"""

from __future__ import annotations

import codecs
from typing import Final, TextIO

SPELLED: Final = "specdec.spelled"
"""The name of the error handler for `str.encode` and `TextIOWrapper.reconfigure`."""

_ONE_FOR_ONE: Final = (
    *("·•–—−─━╌┄┈═╸╺ -", "│┃┊┆║ |", "╭╮╰╯┌┐└┘├┤┬┴┼╋╪╂ +", "‘’‚′ '", '“”„″ "', "≈ ~", "❯ >", "× x", "÷ /", "✓ +", "✗ x"),
    *("★ *", "␣ _", "µμ u", "▁ 1", "▂ 2", "▃ 3", "▄ 4", "▅ 5", "▆ 6", "▇ 7", "█ 8"),
)
_WORDS: Final = ("+/-", "<=", ">=", "!=", "inf", "...", "->", "->", "->", "<-", "alpha", "\\n", "\\t", "^2", "sum")
_SPELLINGS: Final = {
    **{sign: one[-1] for one in _ONE_FOR_ONE for sign in one[:-2]},
    **dict.fromkeys("\u00a0\u202f\u2009", " "),
    **dict(zip("±≤≥≠∞…→➜↳←α↵⇥²Σ", _WORDS, strict=True)),
    "°": " deg",
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
