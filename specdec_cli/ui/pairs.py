"""Tables of pairs and verdicts. Every cell from a file or the Hub is filtered for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec_cli.format import count, percent, size
from specdec_cli.gain import break_even_share
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.verdict import Verdict
from specdec_cli.ui.spelling import spelled
from specdec_cli.ui.terminal import is_terminal, make_console, print_words, safe

COMMON = "mlx-community/"
# From this width on a pair takes one line.
WIDE = 100


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair of `specdec pairs`; `size_bytes`, `estimated_bytes` and `fits` are None where unknown.

    `pullable`: a pull brings what is missing of it; a folder that is gone it does not.
    """

    pair: Pair
    size_bytes: int | None
    downloaded: bool
    fits: bool | None
    default: bool
    estimated_bytes: int | None = None
    pullable: bool = True

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.pair.name,
            "target": self.pair.target,
            "draft": self.pair.draft,
            "size_bytes": self.size_bytes,
            "estimated_bytes": self.estimated_bytes,
            "downloaded": self.downloaded,
            "fits": self.fits,
            "k": self.pair.k,
            "source": self.pair.source,
            "evidence": self.pair.evidence,
            "verified": self.pair.verified,
            "default": self.default,
            "note": self.pair.note,
        }


def print_pairs(out: TextIO, rows: Sequence[PairRow], memory_bytes: int, every: bool = False) -> None:
    """The pairs in groups, what can run now first; those too large for `memory_bytes` are one line unless `every`."""
    console = make_console(out, plain=False)
    groups = _groups(rows)
    folded = [] if every else groups.pop(TOO_LARGE, [])
    shown = [row for group in groups.values() for row in group]
    names = {row.pair.name: safe(row.pair.name) + (" *" if row.default else "") for row in shown}
    width = max((len(name) for name in names.values()), default=0)
    for heading, group in groups.items():
        console.print(Text(f"{heading} ({size(memory_bytes)})" if heading == TOO_LARGE else heading, "bold"))
        for row in sorted(group, key=lambda row: row.pair.source != "yours"):
            _print_pair(console, row, names[row.pair.name].ljust(width))
        console.print()
    if folded:
        need = f"{count(len(folded), 'more pair')} need{'s' if len(folded) == 1 else ''} more memory"
        console.print(Text(f"{need} than this machine's {size(memory_bytes)}: specdec pairs --all\n"))
    for sentence in _legend(shown):
        console.print(Text(sentence, "dim"))


READY = "ready to run here"
TOO_LARGE_HERE = "here, but too large for this machine's memory"
TO_PULL = "to download: specdec pull NAME"
GONE = "a folder of theirs is gone"
TOO_LARGE = "too large for this machine's memory"


def _groups(rows: Sequence[PairRow]) -> dict[str, list[PairRow]]:
    """Heading -> pairs in the order of models.toml; empty groups are left out."""
    found: dict[str, list[PairRow]] = {name: [] for name in (READY, TO_PULL, TOO_LARGE_HERE, GONE, TOO_LARGE)}
    for row in rows:
        large = row.fits is False
        if row.downloaded:
            heading = TOO_LARGE_HERE if large else READY
        else:
            heading = GONE if not row.pullable else TOO_LARGE if large else TO_PULL
        found[heading].append(row)
    return {heading: group for heading, group in found.items() if group}


def _print_pair(console: Console, row: PairRow, name: str) -> None:
    """Figures and models on one line where the width allows it, else the models below, unbroken."""
    needed = row.pair.min_memory_gb if row.fits is False else None
    marks = [
        *([] if needed is None else [f"needs {needed:g} GB"]),
        *(["yours"] if row.pair.source == "yours" else []),
        *([] if row.pair.verified else ["unverified, one source" if row.pair.one_source else "unverified"]),
    ]
    line = Text("  ").append(name, "bold").append(f"  {_size(row):>8}  K {row.pair.k:<4}  ")
    if console.width >= WIDE:
        models = _models(row.pair)
        tail = f"  {', '.join(marks)}"
        if line.cell_len + cell_len(models) + len(tail) <= console.width:
            line.append(models, "dim").append(tail, "dim").rstrip()
            console.print(line)
            return
    line.append(", ".join(marks), "dim").rstrip()
    console.print(line)
    models = f"      {_models(row.pair)}"
    broken = models if cell_len(models) <= console.width else models.replace(" + ", "\n      + ")
    console.print(Text(broken, "dim"), soft_wrap=True)


def _size(row: PairRow) -> str:
    """An estimate is marked."""
    return size(row.size_bytes) if row.estimated_bytes is None else f"~{size(row.estimated_bytes)}"


def _models(pair: Pair) -> str:
    """`target + draft`."""
    if pair.draft is None:
        return f"{_short(pair.target)}, {'its own head' if pair.own_head else 'no draft'}"
    return f"{_short(pair.target)} + {_short(pair.draft)}"


def _short(name: str) -> str:
    """A model's id, without the organisation that most models share."""
    return safe(name).removeprefix(COMMON)


def _legend(rows: Sequence[PairRow]) -> list[str]:
    """What the marks mean, of those that are shown."""
    parts = ["* the default pair: used when you give no --pair"] if any(row.default for row in rows) else []
    if any(row.estimated_bytes is not None for row in rows):
        parts.append("~ estimated from the model's name")
    if any(name.startswith(COMMON) for row in rows for name, _ in row.pair.models):
        parts.append(f"ids without an organisation are {COMMON}…")
    if any(row.pair.one_source for row in rows):
        parts.append("one source: ids seen in a single thread or card")
    unverified = sum(not row.pair.verified for row in rows)
    if unverified:
        parts.append(f"{unverified} of {len(rows)} not yet confirmed by the Hub: specdec pairs --online")
    return parts


def print_json(out: TextIO, value: object) -> None:
    out.write(json.dumps(value, indent=1) + "\n")


def print_checks(out: TextIO, found: Verdict) -> None:
    """The verdict's five answers and the memory table."""
    console = make_console(out, plain=False)
    console.print(_two_columns([(Text(label, "dim"), text) for label, text in _answers(found)]))
    console.print(_memory_table(found))


def print_verdict(out: TextIO, found: Verdict) -> None:
    """Every obstacle, or the command that runs the pair."""
    rows = []
    for error in found.obstacles:
        rows += [(Text("refused", "bold red"), error.message), (Text("hint", "cyan"), error.hint)]
    if not rows:
        rows = [(Text("runs", "bold green"), found.pair.run_command)]
    make_console(out, plain=False).print(_two_columns(rows))


def _two_columns(rows: Sequence[tuple[Text, str]]) -> Table:
    """Label and text, aligned as in every verdict, long texts folded."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True, min_width=10)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, Text(safe(text)))
    return table


def _answers(found: Verdict) -> list[tuple[str, str]]:
    rows = [("pair", found.pair.name), ("target", found.pair.target), ("draft", found.pair.draft or "none")]
    if found.head is not None:
        whose = "" if found.pair.draft else "the target's own "
        about = f"{whose}MTP head: {count(len(found.head.tensors), 'tensor')}, {size(found.head.loaded_bytes)}"
        rows.append(("head", about))
    if found.vocab is not None:
        rows.append(("tokenizers", f"{found.vocab.status}: {found.vocab.reason}"))
    rows += [("warning", warning) for warning in found.warnings]
    rows.append(("template", "yes" if found.has_template else "none: prompts are continued as plain text"))
    rows.append(("stops at", " ".join(found.stop_tokens) or "no token: only --max-tokens ends an answer"))
    rows += [("caches", f"{name}: {kinds}") for name, kinds in found.caches]
    if found.break_even is not None:
        k = found.pair.expected_k
        rate = break_even_share(found.break_even, k)
        needs = "not even full acceptance pays" if rate > 1 else f"pays from {percent(rate)} accepted"
        rows.append(("break-even", f"{needs}, at typical costs of K {k}"))
    return rows + [("advice", sentence) for sentence in found.advice]


def _memory_table(found: Verdict) -> Table:
    estimate = found.memory
    table = Table(box=box.SIMPLE_HEAD, title_style="dim", pad_edge=False)
    table.add_column("memory", no_wrap=True)
    for heading in ("weights", f"caches at {estimate.context_tokens}", "sum"):
        table.add_column(heading, justify="right", no_wrap=True)
    for model in estimate.footprints:
        parts = model.weight_bytes, model.cache_bytes, model.weight_bytes + model.cache_bytes
        table.add_row(safe(model.name).rsplit("/", 1)[-1], *map(size, parts))
    table.add_row("reading the prompt", "", "", size(estimate.prefill_bytes))
    peak = f"{size(estimate.peak_bytes)} of {size(estimate.limit_bytes)}"
    table.add_row(Text("peak, of what is usable", "bold"), "", "", Text(peak, "bold"))
    return table


def print_line(out: TextIO, text: str) -> None:
    """One filtered line."""
    if is_terminal(out):
        print_words(make_console(out, plain=False), Text(safe(text)))
    else:
        out.write(spelled(safe(text) + "\n", out))
