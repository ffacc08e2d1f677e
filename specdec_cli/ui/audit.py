"""The report of `specdec audit`. Law: every invisible character of a token is drawn, so none acts on the terminal.

Two tables: answers against plain decoding's, and what rounding does to the gap of the best two logits.
"""

from __future__ import annotations

from typing import TextIO

from rich.table import Table
from rich.text import Text

from specdec_cli.audit.divergence import Audit, Finding, Token
from specdec_cli.ui.terminal import make_console, safe, visible

COLOURS = {"identical": "green", "near-tie": "yellow", "diverged": "bold red"}


def print_audit(out: TextIO, found: Audit) -> None:
    """A line for each prompt and rule, a line for each pass of several rows, then the verdict in one sentence."""
    console = make_console(out, plain=False)
    console.print(_answers(found))
    console.print()
    console.print(_rounding(found))
    for fault in found.rounding.faults:
        console.print(Text(safe(str(fault)), "red"))
    console.print()
    name, _, rest = found.verdict.partition(":")
    colour = ("yellow" if found.count("near-tie") else "green") if found.lossless else "red"
    console.print(Text.assemble((name, f"bold {colour}"), ":", safe(rest)))


def _table() -> Table:
    return Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)


def _answers(found: Audit) -> Table:
    table = _table()
    several = len({finding.k for finding in found.findings}) > 1
    for heading in ("prompt", "rule", *(["K"] * several)):
        table.add_column(heading, no_wrap=True)
    for heading in ("accepted", "tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("against plain decoding", overflow="fold")
    for finding in found.findings:
        k = [str(finding.k)] if several else []
        accepted = f"{finding.accepted}/{finding.drafted}" if finding.drafted else "–"
        cells = [finding.rule, *k, accepted, str(finding.tokens)]
        table.add_row(Text(safe(finding.prompt), "bold"), *cells, _result(finding))
    return table


def _rounding(found: Audit) -> Table:
    table, rounding = _table(), found.rounding
    table.add_column("change of a gap, in logits", no_wrap=True)
    for heading in ("measured", "largest", "rms", "mean"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    noise, bounds = rounding.noise, rounding.bounds
    if noise:
        table.add_row(f"{found.dtype} against float32", str(rounding.positions), *_numbers(noise.largest, noise.rms))
    faulty = {fault.rows for fault in rounding.faults}
    for passes in rounding.passes:
        every, name = passes.all, "1 row, ours" if passes.rows == 1 else f"{passes.rows} rows"
        cells = _numbers(abs(every.largest.logits), every.rms, every.mean)
        table.add_row(f"{name} against 1 row", str(len(every.changes)), *cells, _explained(passes.rows in faulty))
    cells = _numbers(bounds.peak, bounds.rms, bounds.mean)
    table.add_row("rounding explains", "", *cells, style="dim")
    return table


def _numbers(*values: float) -> list[str]:
    return [f"{value:.2g}" for value in values]


def _explained(faulty: bool) -> Text:
    return Text("FAULT", "bold red") if faulty else Text("rounding", "green")


def _result(finding: Finding) -> Text:
    colour, divergence = COLOURS[finding.result], finding.divergence
    if divergence is None:
        return Text(finding.result, colour)
    name = finding.result if divergence.near_tie else finding.result.upper()
    sign = "≤" if divergence.near_tie else ">"
    text = Text(f"{name} at token {divergence.position + 1}", colour)
    detail = f", gap {divergence.gap:.2g} {sign} {divergence.limit:.2g}"
    detail += f"\nplain {_named(divergence.plain)}, specdec {_named(divergence.specdec)}"
    return text.append(detail, "default not bold")


def _named(token: Token | None) -> str:
    return "nothing" if token is None else f"{visible(token.text)} ({token.id})"
