"""What a recording leaves out: clocks and what follows from them, ids, ports, folders, and this machine's memory.

Law: a figure that follows from tokens, rounds or files is never left out.
"""

from __future__ import annotations

import re
from pathlib import Path

from golden.record import DATA
from specdec_cli import __version__
from specdec_cli.system.machine import BUSY

CLOCKS = r"[\w.]*(?:seconds|_ms|per_second|speedup|break_even|created|completed_at|time(?!d_tokens))\w*|low|high"
MEMORY = r"(?:limit|peak|peak_memory|prefill|usable|physical|free)_bytes|[\w.]*memory\w*"
MADE = r"(?:chatcmpl|cmpl|resp|msg|fc|call|rs|toolu|ws)"
MASKS = (
    (rf'"({CLOCKS}|{MEMORY})": ?(?:-?[\d.e+-]+|null)', r'"\1": 0'),
    (rf'"(\w*id)": ?"(?:{MADE}[\w-]+|\w{{9}})"', r'"\1": "ID"'),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"(?:/\S+ home-)?\S+/huggingface/hub", "CACHE"),
    (rf"specdec {re.escape(__version__)}", "specdec VERSION"),
    (r"(?<=pays from ).*?(?= accepted)", "#"),
    (r"(peak, of what is usable|reading the prompt) +.*", r"\1 #"),
    (r"[\d.]+ [kMGT]?B are usable", "# are usable"),
    (r"free on disk: .*", "free on disk: #"),
    (r"(?<=specdec pull )\([^)]*\)", "(#)"),
    (r"(?<=this machine's )[\d.]+ GB", "# GB"),
)
LIVE = ((r"[\d.]+ tok/s", "# tok/s"), (r"(?<= tok/s · )[^·]*· (?=accepted)", ""))  # not of a reply that was recorded
WIDTHS = ((r" +\n", "\n"), (r" {2,}", "  "), (r"─{3,}", "──"))  # a table is as wide as its widest cell
RACE = (
    *LIVE,
    (r"[━╍]+( ✓)? +", "━ "),
    (r"(?<=K 4) ─+ .* ─+╮", " VERDICT ╮"),
    (r" +[\d.]+ s │", " # s │"),
    (r" +[\d.]+ m?s │$", " # ms │"),
    (r"─+ *# tok/s", "─ # tok/s"),
    (r"─{2,}", "──"),
    (r"[^·]*instead of[^·]*", " VERDICT "),
    (rf" · {BUSY}", ""),
)


def mask(text: str, home: Path, *more: tuple[str, str]) -> str:
    folders = ((re.escape(str(place)), name) for place, name in ((home, "HOME"), (DATA, "DATA")))
    for pattern, instead in (*folders, *MASKS, *more):
        text = re.sub(pattern, instead, text)
    return text


def mask_race(frame: list[str], home: Path) -> list[str]:
    """A race's last frame: which lane leads, and so where a line breaks below the frame, is the clock's."""
    end = next((i for i, line in enumerate(frame) if line.startswith("╰")), len(frame) - 1)
    lines = [*frame[: end + 1], " · ".join(frame[end + 1 :])]
    return [mask(line, home, *RACE) for line in lines]
