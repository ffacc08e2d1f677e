"""Tables of pairs and verdicts. Law: every cell from a file or the Hub is filtered for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich import box
from rich.table import Table
from rich.text import Text

from specdec_cli.format import percent, size
from specdec_cli.models.memory import Footprint
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.verdict import Verdict
from specdec_cli.speedup import break_even_share
from specdec_cli.ui.terminal import encodable, make_console, safe

COMMON = "mlx-community/"


@dataclass(frozen=True, slots=True)
class PairRow:
    """One line of `specdec pairs`; `size_bytes` and `fits` are None where unknown."""

    pair: Pair
    size_bytes: int | None
    downloaded: bool
    fits: bool | None
    default: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.pair.name,
            "target": self.pair.target,
            "draft": self.pair.draft,
            "size_bytes": self.size_bytes,
            "downloaded": self.downloaded,
            "fits": self.fits,
            "k": self.pair.k,
            "source": self.pair.source,
            "verified": self.pair.verified,
            "default": self.default,
            "note": self.pair.note,
        }


def print_pairs(out: TextIO, rows: Sequence[PairRow]) -> None:
    """A pair's figures on one line, its models below, so that long ids need not be broken."""
    console = make_console(out, plain=False)
    names = [safe(row.pair.name) + (" *" if row.default else "") for row in rows]
    width = max(map(len, ["pair", *names]))
    console.print(Text(f"{'pair':{width}}      size  here  fits     K  source    Hub", "dim"))
    for name, row in zip(names, rows, strict=True):
        line = Text(f"{name:{width}}  ", "bold").append(f"{size(row.size_bytes):>8}  ", "not bold")
        line.append_text(_yes(row.downloaded)).append_text(_yes(row.fits))
        line.append(f"{row.pair.k:>4}  {row.pair.source:8}  ", "not bold")
        console.print(line.append("" if row.pair.verified else "unverified", "not bold dim"))
        console.print(Text(_models(row.pair, console.width), "dim"), soft_wrap=True)
    for sentence in _legend(rows):
        console.print(Text(sentence, "dim"))


def _models(pair: Pair, width: int) -> str:
    """`target + draft`, on two lines where the width requires it."""
    if pair.draft is None:
        return f"  {_short(pair.target)}, no draft"
    line = f"  {_short(pair.target)} + {_short(pair.draft)}"
    return line if len(line) <= width else line.replace(" + ", "\n  + ")


def _short(name: str) -> str:
    """A model's id, without the organisation that most models share."""
    return safe(name).removeprefix(COMMON)


def _legend(rows: Sequence[PairRow]) -> list[str]:
    parts = ["* the default pair: it answers when none is named"] if any(row.default for row in rows) else []
    if any(name.startswith(COMMON) for row in rows for name, _ in row.pair.models):
        parts.append(f"ids without an organisation are {COMMON}…")
    unverified = sum(not row.pair.verified for row in rows)
    if unverified:
        parts.append(f"{unverified} of {len(rows)} not yet verified against the Hub: specdec pairs --online")
    return parts


def _yes(value: bool | None) -> Text:
    word, colour = {True: ("yes", "green"), False: ("no", "yellow"), None: ("?", "dim")}[value]
    return Text(f"{word:4}  ", f"not bold {colour}")


def print_json(out: TextIO, value: object) -> None:
    out.write(json.dumps(value, indent=1) + "\n")


def print_checks(out: TextIO, found: Verdict) -> None:
    """The verdict's five answers and the memory table."""
    console = make_console(out, plain=False)
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in _answers(found):
        grid.add_row(label, Text(safe(text)))
    console.print(grid)
    console.print(_memory_table(found))


def print_verdict(out: TextIO, found: Verdict) -> None:
    """Every obstacle, or the command that runs the pair."""
    console = make_console(out, plain=False)
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(no_wrap=True, min_width=10)
    grid.add_column(overflow="fold")
    for error in found.obstacles:
        grid.add_row(Text("refused", "bold red"), Text(safe(error.message)))
        grid.add_row(Text("hint", "cyan"), Text(safe(error.hint)))
    if not found.obstacles:
        grid.add_row(Text("runs", "bold green"), Text(safe(found.pair.run_command)))
    console.print(grid)


def _answers(found: Verdict) -> list[tuple[str, str]]:
    rows = [("pair", found.pair.name), ("target", found.pair.target), ("draft", found.pair.draft or "none")]
    if found.vocab is not None:
        rows.append(("tokenizers", f"{found.vocab.status}: {found.vocab.reason}"))
    rows += [("warning", warning) for warning in found.warnings]
    rows.append(("template", "yes" if found.has_template else "none: prompts are continued as plain text"))
    rows.append(("stops at", " ".join(found.stop_tokens) or "no token: only --max-tokens ends an answer"))
    rows += [("caches", f"{name}: {kinds}") for name, kinds in found.caches]
    if found.break_even is not None:
        k = found.pair.expected_k
        yielded = f"about {found.break_even:.1f} of at most {k + 1} tokens a round at K {k}, at typical costs"
        rate = break_even_share(found.break_even, k)
        needs = "cannot pay" if rate > 1 else f"pays from {percent(rate)} of drafted tokens accepted"
        rows.append(("break-even", f"{yielded}: {needs}"))
    return rows + [("advice", sentence) for sentence in found.advice]


def _memory_table(found: Verdict) -> Table:
    estimate = found.memory
    table = Table(box=box.SIMPLE_HEAD, title_style="dim", pad_edge=False)
    table.add_column("memory", no_wrap=True)
    for heading in ("weights", f"caches at {estimate.context_tokens}", "sum"):
        table.add_column(heading, justify="right", no_wrap=True)
    for part in estimate.footprints:
        table.add_row(*_memory_row(part))
    table.add_row("reading the prompt", "", "", size(estimate.prefill_bytes))
    table.add_row(
        Text("peak, of what is usable", "bold"),
        "",
        "",
        Text(f"{size(estimate.peak_bytes)} of {size(estimate.limit_bytes)}", "bold"),
    )
    return table


def _memory_row(part: Footprint) -> tuple[str, str, str, str]:
    name = safe(part.name).rsplit("/", 1)[-1]
    total = part.weight_bytes + part.cache_bytes
    return name, size(part.weight_bytes), size(part.cache_bytes), size(total)


def print_line(out: TextIO, text: str) -> None:
    """One filtered line."""
    out.write(encodable(safe(text) + "\n", out))
