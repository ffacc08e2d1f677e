"""`specdec bench`. What was measured is shown and saved however the bench ends; the tables are on stdout."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specdec_cli.cli.bench_options import CONTENDERS, BenchOptions, ContenderOptions, parse_lengths, parse_seconds
from specdec_cli.cli.command import grouped
from specdec_cli.cli.export import require_writable, write_export
from specdec_cli.cli.load import forbid_network, loading, resolve_named
from specdec_cli.cli.options import PairOptions, ShapeOptions
from specdec_cli.errors import UsageError
from specdec_cli.kinds import DRAFTERS, LOOKUP, MODEL, MTP
from specdec_cli.machine import awake
from specdec_cli.request import Constraint, effective, one_name

if TYPE_CHECKING:
    from specdec_cli.bench.prompts import BenchPrompt
    from specdec_cli.bench.report import Report
    from specdec_cli.bench.result import BenchResult
    from specdec_cli.bench.sweep import BenchRequest
    from specdec_cli.pairs.resolve import Resolved

app = typer.Typer()
ENDINGS = (".json", ".html", ".svg")
EXAMPLES = """[dim]Examples:[/dim]\n
[dim]  specdec bench[/dim]\n
[dim]  specdec bench -p qwen3-8b --kinds code,chat --write[/dim]\n
[dim]  specdec bench --time-budget 10m --export bench.json --export bench.html[/dim]\n
[dim]  specdec bench --compare before.json after.json[/dim]"""


@app.command(short_help="Find the K and the draft that are fastest here, with evidence.", epilog=EXAMPLES)
@grouped
def bench(*, models: ContenderOptions, options: BenchOptions, shape: ShapeOptions) -> None:
    """Find the K, and the draft, that are fastest on this machine, by kind of text; with evidence."""
    if options.compare is not None:
        _compare(options.compare, options.json)
        return
    job, reason = _job(models, options, _shape(shape, options))
    result = _measured(job, reason, options.export or [], options.quiet)
    _show(result, options.json)
    if options.write:
        _write(result, job)
    if result.partial:
        raise typer.Exit(130)


def _shape(shape: ShapeOptions, options: BenchOptions) -> Constraint | None:
    """Raises: UsageError for a shape that no answer could have, and beside what a shape rules out."""
    constraint = shape.constraint()
    if constraint and options.fixed_length:
        raise UsageError(
            f"--fixed-length beside {constraint.flag}, which ends its answers itself", "leave out one of them"
        )
    if constraint and options.write:
        raise UsageError(f"--write beside {constraint.flag}: its K suits such answers alone", "leave one of them out")
    return constraint


def _job(models: ContenderOptions, options: BenchOptions, constraint: Constraint | None) -> tuple[BenchRequest, str]:
    """What is to be measured, and why this pair; whatever is wrong with the options is said before anything loads."""
    from specdec_cli.bench.sentences import require_pair
    from specdec_cli.bench.sweep import BenchRequest
    from specdec_cli.pairs.resolve import has_own_head

    drafts, drafters = models.drafts, _drafters(options.drafters)
    temperatures = tuple(dict.fromkeys(options.temps or (0.0,)))
    for temperature in temperatures:
        effective({}, {"temperature": temperature})
    require_writable("--export", options.export or (), ENDINGS)
    prompts = _prompts(options.prompts, options.kinds)
    budget_seconds = parse_seconds("--time-budget", options.time_budget)
    cooldown_seconds = parse_seconds("--cooldown", options.cooldown)
    found = _resolved(models, drafts, drafters)
    pair = replace(found.pair, draft=drafts[0], draft_revision=models.draft_revision) if drafts else found.pair
    is_named = found.pair.source != "command line" and not drafts
    if options.write:
        require_pair(is_named, len(drafts), len(drafters), len(temperatures))
    lacking = [name for name in drafters if DRAFTERS[name].needs_draft and DRAFTERS[name].uses_draft]
    if options.drafters and lacking and not pair.draft:
        raise UsageError(f"--drafter {lacking[0]}, and {pair.name} has no draft", "name one: --draft ID")
    if not options.drafters and not pair.draft:
        own = has_own_head(pair.target, pair.target_revision)
        drafters = (MTP.name if own else LOOKUP.name,)  # without a draft, the text itself drafts
    job = BenchRequest(
        pair=pair,
        named=is_named,
        drafts=drafts[1:],
        drafters=drafters,
        ks=parse_lengths(options.k),
        temperatures=temperatures,
        rule=options.rule,
        seed=options.seed,
        prompts=prompts,
        source=str(options.prompts) if options.prompts else "",
        max_tokens=options.max_tokens,
        raw=options.raw,
        fixed_length=options.fixed_length,
        budget_seconds=budget_seconds,
        cooldown_seconds=cooldown_seconds,
        force=models.force,
        constraint=constraint,
    )
    return job, found.reason


def _resolved(models: ContenderOptions, drafts: tuple[str, ...], drafters: tuple[str, ...]) -> Resolved:
    """The pair; a draft beside `--pair` joins it later."""
    forbid_network(models.offline)
    first = drafts[0] if models.target and drafts else None
    names = PairOptions(models.target, first, models.target_revision, models.draft_revision)
    return resolve_named(models.pair, names, here=any(DRAFTERS[name].needs_draft for name in drafters))


def _measured(job: BenchRequest, reason: str, exports: list[Path], quiet: bool) -> BenchResult:
    """Load, run, and save, whatever happens after the first figure."""
    from specdec_cli.bench.sweep import Bench
    from specdec_cli.session.signals import Interrupt
    from specdec_cli.ui.bench.page import WRITERS
    from specdec_cli.ui.bench.terminal import bench_progress, silent

    with ExitStack() as stack:
        stack.enter_context(awake())
        with loading(job.pair.name, reason, shown=not quiet) as tell:
            from specdec_cli.bench.live import load_machine

            interrupt = stack.enter_context(Interrupt())
            machine, about = load_machine(job, interrupt.requested, tell)
        progress = stack.enter_context(bench_progress(sys.stderr) if not quiet else silent())
        run = Bench(job, machine, about, progress.report, progress.say)
        try:
            run.run()
        finally:
            # Also after a second Ctrl-C, a signal or an error: what was measured is kept.
            if run.begun:
                for path in exports:
                    text = WRITERS[path.suffix.lower()](run.result())
                    write_export("--export", path, text, shown=False, plain=False)
    if not run.begun:
        raise KeyboardInterrupt
    return run.result()


def _show(result: BenchResult, json: bool) -> None:
    from specdec_cli.bench.report import reports
    from specdec_cli.bench.sentences import json_text
    from specdec_cli.ui.bench.terminal import print_bench
    from specdec_cli.ui.terminal import make_console

    if json:
        sys.stdout.write(json_text(result))
    else:
        print_bench(make_console(sys.stdout, plain=False), result, reports(result))


def _write(result: BenchResult, job: BenchRequest) -> None:
    from specdec_cli.bench.report import reports
    from specdec_cli.bench.sentences import chosen_k, entry
    from specdec_cli.pairs import registry as models_toml
    from specdec_cli.pairs.registry import user_file
    from specdec_cli.ui.pairs import print_line

    report: Report = reports(result)[0]
    k = chosen_k(result, report)
    models_toml.record_measured(user_file(), job.pair, k, entry(result, report))
    print_line(sys.stderr, f"{job.pair.name} now starts at K {k}: {user_file()}")


def _compare(paths: tuple[Path, Path], json: bool) -> None:
    from dataclasses import asdict

    from specdec_cli.bench.report import compare
    from specdec_cli.bench.result import read_result
    from specdec_cli.ui.bench.terminal import print_comparison
    from specdec_cli.ui.pairs import print_json

    found = compare(*map(read_result, paths))
    if json:
        print_json(sys.stdout, asdict(found))
    else:
        print_comparison(sys.stdout, found, (paths[0].name, paths[1].name))


def _drafters(names: list[str] | None) -> tuple[str, ...]:
    check = one_name("--drafter", CONTENDERS)
    return tuple(dict.fromkeys(map(check, names or [MODEL.name])))


def _prompts(file: Path | None, kinds: str | None) -> tuple[BenchPrompt, ...]:
    from specdec_cli.bench.prompts import from_file, load

    if file is not None and kinds is not None:
        raise UsageError(f"--prompts {file} and --kinds {kinds} both choose the prompts", "give one of the two")
    if file is not None:
        return from_file(file)
    return load(None if kinds is None else [kind.strip() for kind in kinds.split(",")])
