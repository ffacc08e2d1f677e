"""The report of `specdec audit`. Law: every invisible character of a token is drawn, so none acts on the terminal.

Two tables: answers against plain decoding's, and what passes of several rows change in the leads of its tokens.
"""

from __future__ import annotations

from typing import TextIO

from rich.table import Table
from rich.text import Text

from specdec_cli.measure.divergence import Audit, Finding, Token
from specdec_cli.terminal.summary import bare_table
from specdec_cli.terminal.terminal import make_console, safe, visible

COLOURS = {"identical": "green", "near-tie": "yellow", "diverged": "bold red"}


def print_audit(out: TextIO, audit: Audit) -> None:
    """A line for each prompt and rule, a line for each pass of several rows, then the verdict in one sentence."""
    console = make_console(out, plain=False)
    console.print(_answers(audit))
    console.print()
    console.print(_rounding(audit))
    for fault in audit.rounding.faults:
        console.print(Text(safe(str(fault)), "red"))
    console.print()
    name, _, rest = audit.verdict.partition(":")
    style = "bold red" if audit.lossless is False else "yellow" if audit.count("near-tie") else "bold green"
    console.print(Text.assemble((name, style), ":", safe(rest)))


def _answers(audit: Audit) -> Table:
    several = len({finding.k for finding in audit.findings}) > 1
    table = bare_table(("prompt", "rule", *(["K"] * several)), ("accepted", "tokens"))
    table.add_column("against plain decoding", overflow="fold")
    for finding in audit.findings:
        k = [str(finding.k)] if several else []
        accepted = f"{finding.draft_n_accepted}/{finding.draft_n}" if finding.draft_n else "–"
        cells = [finding.rule, *k, accepted, str(finding.tokens_compared)]
        table.add_row(Text(safe(finding.prompt), "bold"), *cells, _result(finding))
    return table


def _rounding(audit: Audit) -> Table:
    table = bare_table(("change of a lead, in logits",), ("measured", "largest", "rms"), labels=True)
    table.add_column("", no_wrap=True)
    for passes in audit.rounding.passes:
        machine, ours = passes.machine, passes.ours
        rows = "1 row" if passes.rows == 1 else f"{passes.rows} rows"
        several = f"mlx-lm, {rows} against 1 row"
        table.add_row(several, str(len(machine.changes)), *_numbers(machine.size, machine.rms), "the machine's")
        judged = Text("FAULT", "bold red") if passes.fault else Text("rounding", "green")
        table.add_row(f"specdec against mlx-lm, {rows}", str(len(ours.changes)), *_numbers(ours.size, ours.rms), judged)
        rms, peak = passes.bounds
        table.add_row("rounding explains", "", *_numbers(peak, rms), style="dim")
    return table


def _numbers(*values: float) -> list[str]:
    return [f"{value:.2g}" for value in values]


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
