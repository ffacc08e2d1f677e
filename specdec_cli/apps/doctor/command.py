"""`specdec doctor`. It reports whatever it finds; only a self-test in which something is wrong exits 1."""

from __future__ import annotations

import json as jsons
import os
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specdec_cli.command.command import ask, grouped
from specdec_cli.command.export import require_writable, write_export
from specdec_cli.command.load import specify
from specdec_cli.command.machines import take_part
from specdec_cli.command.options import HostOptions, ModelOptions, PairOptions
from specdec_cli.command.values import parse_seconds
from specdec_cli.core.errors import UsageError
from specdec_cli.system.machine import awake

if TYPE_CHECKING:
    from specdec_cli.engine.selftest import Outcome

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class ReportOptions(PairOptions):
    """What is reported on, for how long, and where it goes."""

    report: Path | None = None
    pair: str | None = None
    time_budget: str = "5m"
    yes: bool = False
    offline: bool = False

    @property
    def models(self) -> ModelOptions:
        return ModelOptions(
            **{field.name: getattr(self, field.name) for field in fields(PairOptions)},
            pair=self.pair,
            offline=self.offline,
        )


@app.command()
@grouped
def doctor(
    *,
    selftest: bool = False,
    json: bool = False,
    options: ReportOptions,
    machines: HostOptions,
) -> None:
    """What works on this machine, and what specdec keeps here."""
    if json and not selftest:
        raise UsageError("--json was given without --selftest", "specdec doctor --selftest --json")
    if selftest and options.report is not None:
        raise UsageError(f"--selftest and --report {options.report} were given", "--report runs the self-test too")
    if options.report is not None:
        _report(options.report, options)
        return
    if selftest:
        _selftest(json)
        return
    take_part(machines)
    from specdec_cli.apps.doctor.findings import diagnose, diagnose_group
    from specdec_cli.engine.group import joined
    from specdec_cli.terminal.display import print_columns

    print_columns(sys.stdout, [(f"{'✓' if well else '✗'} {name}", *found) for well, name, *found in diagnose()])
    from specdec_cli.apps.doctor.kept import kept_here

    print_columns(sys.stdout, [("kept here", "size", "removed by"), *kept_here()])
    if (group := joined()) is not None:
        print_columns(sys.stdout, diagnose_group(group))


def _selftest(json: bool) -> None:
    # Before mlx is imported: some devices would round float32 products, by which rounding is judged.
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    from specdec_cli.apps.doctor.findings import run_selftest
    from specdec_cli.terminal.display import print_columns
    from specdec_cli.terminal.panel.status import StatusLine

    watched = sys.stdout.isatty()
    with StatusLine(sys.stderr, "testing", shown=watched) as line:  # else the lines below would run into it

        def on_outcome(done: int, expected: int, outcome: Outcome) -> None:
            line.count(done, expected, outcome.name)
            if json:
                sys.stdout.write(jsons.dumps(asdict(outcome)) + "\n")
            elif not watched:
                print_columns(sys.stdout, [(outcome.name, outcome.status, outcome.detail)])
            sys.stdout.flush()

        found = run_selftest(on_outcome)
    if not json:
        print_columns(sys.stdout, found.findings() if watched else found.totals())
    if found.wrong:
        raise typer.Exit(1)


def _report(file: Path, options: ReportOptions) -> None:
    """Measure, show, ask, write; whatever is wrong with the options is said before anything is measured."""
    from specdec_cli.apps.doctor.machine_report import NOTHING_PRIVATE, make_report, report_rows
    from specdec_cli.terminal.display import print_columns, print_notice
    from specdec_cli.terminal.panel.status import StatusLine

    require_writable("--report", [file], (".json",))
    budget_seconds = parse_seconds("--time-budget", options.time_budget)
    if not options.yes and not sys.stdin.isatty():
        raise UsageError(
            f"{file} is written only if you agree, and there is no terminal to ask on",
            "add --yes to write it without asking",
        )
    spec = specify(options.models, raw=True)
    if spec.reason:
        print_notice(sys.stderr, spec.reason, plain=False)
    with awake(), StatusLine(sys.stderr, "measuring") as line:
        report = make_report(spec.pair, spec.drafter, budget_seconds, line.count)
    print_columns(sys.stdout, report_rows(report))
    print_notice(sys.stdout, NOTHING_PRIVATE, plain=False)
    ask(f"Write {file}?", options.yes)
    write_export("--report", file, jsons.dumps(report, indent=1) + "\n", shown=True, plain=False)
