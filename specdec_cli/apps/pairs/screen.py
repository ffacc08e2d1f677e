"""Tables of pairs and verdicts. Every cell from a file or the Hub is filtered for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec_cli.core.format import count, percent, size
from specdec_cli.core.gain import break_even_share
from specdec_cli.models.vocab import LEAST_SHARE, VocabVerdict
from specdec_cli.pairs.pair import PairRow
from specdec_cli.pairs.tuned import folder_of
from specdec_cli.pairs.verdict import PairVerdict
from specdec_cli.terminal.summary import labelled
from specdec_cli.terminal.terminal import make_console, safe

# The models of a verdict, in its order.
ROLES = ("target", "draft")
COMMON = "mlx-community/"
ONE_SOURCE = "one source: ids seen in a single thread or card"
# From this width on a pair takes one line.
WIDE = 100


def print_pairs(out: TextIO, rows: Sequence[PairRow], memory_bytes: int, every: bool = False) -> None:
    """The pairs in groups, what can run now first; those too large for `memory_bytes` are one line unless `every`."""
    console, groups = make_console(out, plain=False), _groups(rows)
    folded = [] if every else groups.pop(TOO_LARGE, [])
    shown = [row for group in groups.values() for row in group]
    names = {row.pair.name: safe(row.pair.name) + (" *" if row.default else "") for row in shown}
    width = max(map(len, names.values()), default=0)
    for heading, group in groups.items():
        console.print(Text(f"{heading} ({size(memory_bytes)})" if heading == TOO_LARGE else heading, "bold"))
        for row in sorted(group, key=lambda row: (row.pair.source != "yours", row.pair.one_source)):
            _print_pair(console, row, names[row.pair.name].ljust(width))
        console.print()
    if folded:
        need = f"{count(len(folded), 'more pair')} need{'s' if len(folded) == 1 else ''} more memory"
        console.print(Text(f"{need} than this machine's {size(memory_bytes)}: specdec pairs --all\n"))
    for sentence in _legend([row for row in shown if row.folder is None]):
        console.print(Text(sentence, "dim"))


READY = "ready to run here"
OTHERS = "here, of no listed pair: specdec run -p NAME"
USELESS = "here, but not to be run"
TOO_LARGE_HERE = "downloaded, but too large for this machine's memory"
TO_PULL = "to download: specdec pull NAME"
GONE = "a local folder is missing"
TOO_LARGE = "too large for this machine's memory"
ORDER = (READY, OTHERS, TO_PULL, TOO_LARGE_HERE, USELESS, GONE, TOO_LARGE)


def _groups(rows: Sequence[PairRow]) -> dict[str, list[PairRow]]:
    """Heading -> pairs in the order of models.toml; empty groups are left out."""
    found: dict[str, list[PairRow]] = {name: [] for name in ORDER}
    for row in rows:
        large = row.fits is False
        absent = USELESS if row.folder else GONE if not row.pullable else TOO_LARGE if large else TO_PULL
        refused = row.tokenizers is not None and row.tokenizers.status == "incompatible"
        here = USELESS if refused else TOO_LARGE_HERE if large else OTHERS if row.folder else READY
        found[here if row.downloaded else absent].append(row)
    return {heading: group for heading, group in found.items() if group}


def _print_pair(console: Console, row: PairRow, name: str) -> None:
    """Figures and models on one line where the width allows it, else the models below, unbroken."""
    pair = row.pair
    marks = [f"needs {pair.min_memory_gb:g} GB"] if row.fits is False and pair.min_memory_gb is not None else []
    marks += ["recommended for this machine"] if row.recommended else []
    marks += ["yours"] if pair.source == "yours" else []
    marks += ["one source"] * pair.one_source
    marks += [_words(row.tokenizers)] if row.tokenizers and row.tokenizers.differs else []
    figure = size(row.size_bytes) if row.estimated_bytes is None else f"~{size(row.estimated_bytes)}"
    whose = safe(pair.source) if row.folder else f"K {pair.k:<4}"
    line, models = Text("  ").append(name, "bold").append(f"  {figure:>8}  {whose}  "), _models(row)
    tail = f"  {', '.join(marks)}"
    if console.width >= WIDE and line.cell_len + cell_len(models) + len(tail) <= console.width:
        line.append(models, "dim").append(tail, "dim").rstrip()
        console.print(line)
        return
    fits = line.cell_len + len(tail) <= console.width
    line.append(tail.lstrip() if fits else "", "dim").rstrip()
    console.print(line)
    if not fits:
        console.print(Text(f"      {tail.lstrip()}", "dim"))
    models = f"      {models}"
    parts = [models] if cell_len(models) <= console.width else models.replace(" + ", "\n      + ").split("\n")
    folded = textwrap.TextWrapper(
        console.width, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
    )
    for words in (one for part in parts for one in folded.wrap(part)):
        console.print(Text(words, "dim"), soft_wrap=True)


def _words(found: VocabVerdict) -> str:
    """`translated 96 %`: how the tokenizers compare, and the share of a text that the draft can say, where known."""
    return found.status if found.share is None else f"{found.status} {percent(found.share)}"


def _models(row: PairRow) -> str:
    """`target + draft`; of a model of no pair, where it lies with its draft, or why it cannot be run."""
    pair = row.pair
    if folder_of(pair):
        return safe(pair.note)
    if row.folder:
        folder = row.folder.replace(str(Path.home()), "~", 1) if row.downloaded else ""
        return safe(" + ".join(filter(None, (folder, pair.note))))
    names = [safe(name).removeprefix(COMMON) for name, _ in pair.models]
    return " + ".join(names) if pair.draft else f"{names[0]}, {'its own head' if pair.own_head else 'no draft'}"


def _legend(rows: Sequence[PairRow]) -> list[str]:
    """What the marks mean, of those that are shown."""
    parts = ["* the default pair: used when you give no --pair"] if any(row.default for row in rows) else []
    if any(row.estimated_bytes is not None for row in rows):
        parts.append("~ estimated from the model's name")
    if any(name.startswith(COMMON) for row in rows for name, _ in row.pair.models):
        parts.append(f"ids without an organisation are {COMMON}…")
    if any(row.pair.one_source for row in rows):
        parts.append(ONE_SOURCE)
    if any(row.tokenizers and row.tokenizers.differs for row in rows):
        least = percent(LEAST_SHARE)
        parts.append(f"translated: the draft can say so much of a sample text; below {least} it is refused")
    unverified = sum(not row.pair.verified for row in rows)
    if unverified:
        be = "is" if unverified == 1 else "are"
        parts.append(f"{unverified} of {len(rows)} {be} unverified: specdec check NAME asks the Hub")
    return parts


def print_checks(out: TextIO, found: PairVerdict) -> None:
    """The verdict's five answers and the memory table."""
    console = make_console(out, plain=False)
    console.print(labelled((Text(label, "dim"), Text(safe(text))) for label, text in _answers(found)))
    console.print(_memory_table(found))


def print_verdict(out: TextIO, found: PairVerdict) -> None:
    """Every obstacle, or the command that runs the pair, in one line, so that a copy of it is a command."""
    console, rows = make_console(out, plain=False), []
    for error in found.obstacles:
        rows += [("refused", "bold red", error.message), ("hint", "cyan", error.hint)]
    if rows:
        console.print(labelled((Text(label, style), Text(safe(text))) for label, style, text in rows))
    else:
        command = Text.assemble((f"{'runs':<12}", "bold green"), safe(found.pair.run_command))
        console.print(command, soft_wrap=True)


def _answers(found: PairVerdict) -> list[tuple[str, str]]:
    name = f"{found.pair.name} ({ONE_SOURCE})" if found.pair.one_source else found.pair.name
    rows = [("pair", name), ("target", found.pair.target), ("draft", found.pair.draft or "none")]
    if found.head is not None:
        whose = "" if found.pair.draft else "the target's own "
        parts = f"{count(len(found.head.tensors), 'tensor')}, {size(found.head.loaded_bytes)}"
        about = f"{whose}{found.head.family.label}: {parts}"
        rows.append(("head", about))
    if found.vocab is not None:
        rows.append(("tokenizers", f"{found.vocab.status}: {found.vocab.reason}"))
    rows += [("warning", warning) for warning in found.warnings]
    rows.append(("template", "yes" if found.has_template else "none: prompts are continued as plain text"))
    rows.append(("stops at", " ".join(found.stop_tokens) or "no token: only --max-tokens ends an answer"))
    rows += [(f"{role} caches", kinds) for role, (_, kinds) in zip(ROLES, found.caches, strict=False)]
    contexts = zip(ROLES, found.contexts, strict=False)
    rows += [(f"{role} context", f"{tokens or 'any'} tokens ({field})") for role, (_, tokens, field) in contexts]
    if found.break_even is not None:
        k = found.pair.expected_k
        rate = break_even_share(found.break_even, k)
        needs = "not even full acceptance pays" if rate > 1 else f"pays from {percent(rate)} accepted"
        rows.append(("break-even", f"{needs}, at typical costs of K {k}"))
    return rows + [("advice", sentence) for sentence in found.advice]


def _memory_table(found: PairVerdict) -> Table:
    fit = found.memory
    table = Table(box=box.SIMPLE_HEAD, title_style="dim", pad_edge=False)
    table.add_column("memory", min_width=8)  # it folds where there is little room, and the headings
    for heading in ("weights", f"caches at {fit.tokens}", "sum"):
        table.add_column(heading, justify="right", overflow="fold")
    roles = ("target", "head") if found.head else ROLES
    for role, model in zip(roles, fit.footprints, strict=False):
        parts = model.weight_bytes, model.cache_bytes, model.weight_bytes + model.cache_bytes
        table.add_row(role, *map(size, parts))
    table.add_row("reading the prompt", "", "", size(fit.prefill_bytes))
    peak = f"{size(fit.peak_bytes)} of {size(fit.limit_bytes)}"
    table.add_row(Text("peak, of what is usable", "bold"), "", "", Text(peak, "bold"))
    for name, other in found.machines:
        table.add_row(f"the same on {safe(name)}", "", "", f"{size(other.peak_bytes)} of {size(other.limit_bytes)}")
    table.add_row("longest context that fits", "", "", f"{fit.largest_context} tokens")
    return table
