"""Numbers as words (pure). One wording for each kind of number."""

from __future__ import annotations

UNKNOWN = "–"
# Between statements in a line.
SEPARATOR = " · "
# Bytes of each decimal unit.
SCALES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def percent(rate: float | None, *, unknown: str = UNKNOWN, digits: int = 0) -> str:
    """0.617 -> "62 %"; None -> `unknown`. Never "-0 %"."""
    return unknown if rate is None else f"{round(100 * rate, digits) + 0.0:.{digits}f} %"


def count(number: int, noun: str) -> str:
    """1 -> "1 token", 1234 -> "1 234 tokens"; target pass -> target passes."""
    plural = noun if number == 1 else noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {plural}".replace(",", " ")


def speed(tokens_per_second: float | None) -> str:
    """118.3 -> "118 tok/s", 8.04 -> "8.0 tok/s"."""
    if tokens_per_second is None:
        return f"{UNKNOWN} tok/s"
    return f"{tokens_per_second:.{1 if tokens_per_second < 9.95 else 0}f} tok/s"


def size(count_bytes: int | None) -> str:
    """Decimal units, as for downloads: 4.3 GB, 340 MB, 5.2 MB, 12 kB, 80 B; – where unknown."""
    if count_bytes is None:
        return UNKNOWN
    if count_bytes >= 999.5e6:
        return f"{count_bytes / 1e9:.1f} GB"
    if count_bytes >= 999.5e3:
        return f"{count_bytes / 1e6:.{0 if count_bytes >= 99.5e6 else 1}f} MB"
    return f"{count_bytes / 1e3:.0f} kB" if count_bytes >= 999.5 else f"{count_bytes} B"


def elapsed(seconds: float) -> str:
    """0.0114 -> "11 ms", 0.0021 -> "2.1 ms", 1.24 -> "1.2 s"."""
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.{1 if seconds < 0.00995 else 0}f} ms"


def duration(seconds: int) -> str:
    """17 -> "17 s", 5400 -> "90 min", 2e5 -> "56 h", 1e9 -> "32 years"."""
    for unit, length in (("s", 1), ("min", 60), ("h", 3600), ("days", 86400)):
        if seconds < 100 * length or (unit == "days" and seconds < 730 * length):
            return f"{round(seconds / length)} {unit}"
    return f"{seconds // 31_556_952:,} years".replace(",", " ")


def lasted(seconds: float) -> str:
    """12.7 -> "12 s", 125 -> "2 min 5 s": whole seconds that have gone by."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def progress(done: int, of: int, unit: str = "") -> str:
    """(3.1e9, 9.6e9, "bytes") -> "3.1 of 9.6 GB", (1024, 4000, "token") -> "1 024 of 4 000 tokens", (3, 8) -> "3 of 8".

    (26, 100, "%") -> "26 %". Of bytes and nouns of which none are done yet the whole alone; "" where there is no whole.
    """
    if not of or unit == "%":
        return f"{done} %" if of else ""
    whole = size(of) if unit == "bytes" else count(of, unit) if unit else str(of)
    if unit and not done:
        return whole
    if unit != "bytes":
        return f"{done:,} of {whole}".replace(",", " ")
    number, scale = whole.split()
    return f"{done / SCALES[scale]:.{len(number.partition('.')[2])}f} of {whole}"


def parameters(billions: float) -> str:
    """8.03 -> "8.0 B", 0.135 -> "135 M", 0.0052 -> "5.2 M"."""
    if billions >= 0.95:
        return f"{billions:.1f} B"
    return f"{billions * 1000:.{0 if billions >= 0.0095 else 1}f} M"
