"""`specdec doctor`. It reports whatever it finds; only a self-test that found wrong tokens exits 1."""

from __future__ import annotations

import json as jsons
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli.cli.bench_options import parse_seconds
from specdec_cli.cli.command import Yes, ask, grouped
from specdec_cli.cli.export import require_writable, write_export
from specdec_cli.cli.load import load_session, resolve
from specdec_cli.cli.options import (
    Draft,
    DraftRevision,
    HeadFrom,
    ModelOptions,
    Offline,
    Pair,
    Target,
    TargetRevision,
    option,
)
from specdec_cli.errors import UsageError
from specdec_cli.machine import awake
from specdec_cli.request import one_name

if TYPE_CHECKING:
    from specdec_cli.engine.conformance.suite import Outcome
    from specdec_cli.session.session import Session

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What is reported on, for how long, and where it goes."""

    report: Annotated[
        Path | None,
        option(
            "--report",
            metavar="FILE",
            help="Measure a pair here; then, if you agree, write FILE (.json).",
        ),
    ] = None
    pair: Pair = None
    target: Target = None
    draft: Draft = None
    time_budget: Annotated[str, option(metavar="TIME", help="Time for --report: 90s, 5m.")] = "5m"
    yes: Yes = False
    target_revision: TargetRevision = None
    draft_revision: DraftRevision = None
    offline: Offline = False
    head_from: HeadFrom = None

    @property
    def models(self) -> ModelOptions:
        names = (self.pair, self.target, self.draft, None, self.target_revision, self.draft_revision)
        return ModelOptions(*names, offline=self.offline, head_from=self.head_from)


@app.command(short_help="Chip, memory, versions, caches: what works here.")
@grouped
def doctor(
    *,
    selftest: Annotated[
        bool,
        typer.Option(
            "--selftest",
            help="Decode a tiny model of every architecture here in float32, and eight families in 16 and 4 bits.",
        ),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="cpu|gpu",
            help="With --selftest: where; gpu compares every kernel with the CPU as well.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="With --selftest: JSON Lines, one for each result.")] = False,
    options: ReportOptions,
) -> None:
    """Chip, memory, versions, cache folder: what works here and what does not."""
    if json and not selftest:
        raise UsageError("--json was given without --selftest", "specdec doctor --selftest --json")
    if device and one_name("--device", ("cpu", "gpu"))(device) and not selftest:
        raise UsageError(
            f"--device {device} was given without --selftest", f"specdec doctor --selftest --device {device}"
        )
    if selftest and options.report is not None:
        raise UsageError(f"--selftest and --report {options.report} were given", "--report runs the self-test too")
    if options.report is not None:
        _report(options.report, options)
        return
    # Before mlx is imported: some devices would round float32 products, and near-ties would count as errors.
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    if selftest:
        _selftest(json, device)
        return
    from specdec_cli.audit.doctor import diagnose
    from specdec_cli.ui.display import print_columns

    print_columns(sys.stdout, diagnose())


def _selftest(json: bool, place: str | None) -> None:
    from specdec_cli.audit.doctor import run_selftest
    from specdec_cli.engine.device import compute_on
    from specdec_cli.ui.display import counting, print_columns

    if place:
        compute_on(place)
    watched = sys.stdout.isatty()
    with counting(sys.stderr) as report:

        def on_outcome(done: int, expected: int, outcome: Outcome) -> None:
            if watched:  # else the lines below would run into the count
                report(done, expected, outcome.name)
            if json:
                sys.stdout.write(jsons.dumps(asdict(outcome)) + "\n")
            elif not watched:
                print_columns(sys.stdout, [(outcome.name, outcome.status, outcome.detail)])
            sys.stdout.flush()

        found = run_selftest(on_outcome, against_cpu=place == "gpu")
    if not json:
        print_columns(sys.stdout, found.findings() if watched else found.totals())
    if found.wrong:
        raise typer.Exit(1)


def _report(file: Path, options: ReportOptions) -> None:
    """Measure, show, ask, write; whatever is wrong with the options is said before anything is measured."""
    from specdec_cli.audit.report import NOTHING_PRIVATE, make_report, report_rows, sampled_request
    from specdec_cli.ui.display import counting, print_columns, print_notice

    require_writable("--report", [file], (".json",))
    budget_seconds = parse_seconds("--time-budget", options.time_budget)
    if not options.yes and not sys.stdin.isatty():
        raise UsageError(
            f"{file} is written only if you agree, and there is no terminal to ask on",
            "add --yes to write it without asking",
        )
    models = options.models
    found = resolve(models)

    def open_session(reserve_tokens: int) -> Session:
        request = sampled_request(found.drafter)
        return load_session(
            found, models, reserve_tokens=reserve_tokens, shown=False, remember_costs=False, request=request
        )

    if found.reason:
        print_notice(sys.stderr, found.reason, plain=False)
    with awake(), counting(sys.stderr) as progress:
        report = make_report(found.pair, open_session, budget_seconds, progress)
    print_columns(sys.stdout, report_rows(report))
    print_notice(sys.stdout, NOTHING_PRIVATE, plain=False)
    ask(f"Write {file}?", options.yes)
    write_export("--report", file, jsons.dumps(report, indent=1) + "\n", shown=True, plain=False)
