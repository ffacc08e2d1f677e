"""`specdec bench`. Law: what was measured is shown and saved however the bench ends; the tables are on stdout."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli.cli import bench_options as given
from specdec_cli.cli import options
from specdec_cli.cli.pipes import quietly
from specdec_cli.errors import UsageError
from specdec_cli.request import effective, one_name

if TYPE_CHECKING:
    from specdec_cli.bench.prompts import BenchPrompt
    from specdec_cli.bench.report import Report
    from specdec_cli.bench.result import BenchResult
    from specdec_cli.bench.run import BenchRequest
    from specdec_cli.pairs.resolve import Resolved

app = typer.Typer()
EXAMPLES = """[dim]Examples:[/dim]\n
[dim]  specdec bench[/dim]\n
[dim]  specdec bench -p qwen3-8b --kinds code,chat --write[/dim]\n
[dim]  specdec bench --time-budget 10m --export bench.json --export bench.md[/dim]\n
[dim]  specdec bench --compare before.json after.json[/dim]"""


@app.command(epilog=EXAMPLES)
@quietly
def bench(
    pair: options.PairName = None,
    target: options.Target = None,
    draft: given.Drafts = None,
    k: given.Ks = "0-8,auto",
    kinds: given.Kinds = None,
    prompts: given.Prompts = None,
    max_tokens: given.Tokens = None,
    time_budget: given.Budget = "2m",
    write: given.Write = False,
    export: given.Exports = None,
    compare: given.Compare = None,
    temp: given.Temps = None,
    drafter: given.Drafters = None,
    raw: options.Raw = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    rule: given.Rule = "auto",
    seed: given.Seed = 0,
    cooldown: given.Cooldown = "0s",
    fixed_length: given.FixedLength = False,
    target_revision: options.TargetRevision = None,
    draft_revision: options.DraftRevision = None,
    offline: options.Offline = False,
    force: options.Force = False,
) -> None:
    """Find the K, and the draft, that are fastest on this machine, by kind of text; with evidence."""
    if compare is not None:
        _compare(compare, json)
        return
    from specdec_cli.bench.plan import parse_lengths, parse_seconds
    from specdec_cli.bench.record import require_pair
    from specdec_cli.bench.run import BenchRequest
    from specdec_cli.pairs.resolve import resolve_pair
    from specdec_cli.ui.bench.export import require_writable

    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    drafts, drafters = tuple(dict.fromkeys(draft or ())), _drafters(drafter)
    temperatures = tuple(dict.fromkeys(temp or (0.0,)))
    for heat in temperatures:
        effective({}, {"temperature": heat})
    require_writable(export or ())
    chosen = _prompts(prompts, kinds)
    lengths = parse_lengths(k)
    budget = parse_seconds("--time-budget", time_budget)
    rest = parse_seconds("--cooldown", cooldown)
    resolved = resolve_pair(
        pair,
        target,
        drafts[0] if target and drafts else None,
        target_revision,
        draft_revision,
        here="model" in drafters,
    )
    named = resolved.pair.source != "command line" and not drafts
    if write:
        require_pair(named, len(drafts), len(drafters), len(temperatures))
    if drafter and "model" in drafters and not (drafts or resolved.pair.draft):
        raise UsageError(f"--drafter model, and {resolved.pair.name} has no draft", "name one: --draft ID")
    job = BenchRequest(
        pair=replace(resolved.pair, draft=drafts[0], draft_revision=draft_revision) if drafts else resolved.pair,
        named=named,
        drafts=drafts[1:],
        drafters=drafters if drafter or drafts else _fallback(resolved),
        ks=lengths,
        temperatures=temperatures,
        rule=rule,
        seed=seed,
        prompts=chosen,
        source=str(prompts) if prompts else "",
        max_tokens=max_tokens,
        raw=raw,
        fixed_length=fixed_length,
        budget_seconds=budget,
        cooldown_seconds=rest,
        force=force,
    )
    result = _measured(job, resolved.reason, export or [], quiet)
    _show(result, json)
    if write:
        _write(result, job)
    if result.partial:
        raise typer.Exit(130)


def _measured(job: BenchRequest, reason: str, exports: list[Path], quiet: bool) -> BenchResult:
    """Load, run, and save, whatever happens after the first figure."""
    from specdec_cli.bench.run import Bench
    from specdec_cli.session.interrupt import Interrupt
    from specdec_cli.ui.bench.export import export
    from specdec_cli.ui.bench.progress import bench_progress, silent
    from specdec_cli.ui.display import loading
    from specdec_cli.ui.pairs import print_line

    if reason and not quiet:
        print_line(sys.stderr, reason)
    with ExitStack() as stack:
        with loading(sys.stderr, job.pair.name, shown=not quiet):
            from specdec_cli.bench.load import load_machine

            interrupt = stack.enter_context(Interrupt())
            machine, about = load_machine(job, interrupt.requested)
        report = stack.enter_context(bench_progress(sys.stderr) if not quiet else silent())
        run = Bench(job, machine, about, lambda progress: report(progress.what, progress.share, progress.seconds_left))
        try:
            run.run()
        finally:
            # Also behind a second Ctrl-C, a signal or an error: what was measured is kept.
            if run.begun:
                for path in exports:
                    export(run.result(), path)
    if not run.begun:
        raise KeyboardInterrupt
    for sentence in run.notices if not quiet else ():
        print_line(sys.stderr, sentence)
    return run.result()


def _show(result: BenchResult, json: bool) -> None:
    from specdec_cli.bench.report import reports
    from specdec_cli.ui.bench.export import json_text
    from specdec_cli.ui.bench.table import print_bench

    if json:
        sys.stdout.write(json_text(result))
    else:
        print_bench(sys.stdout, result, reports(result))


def _write(result: BenchResult, job: BenchRequest) -> None:
    from specdec_cli.bench.record import chosen_k, entry
    from specdec_cli.bench.report import reports
    from specdec_cli.pairs import userfile
    from specdec_cli.pairs.registry import user_file
    from specdec_cli.ui.pairs import print_line

    report: Report = reports(result)[0]
    k = chosen_k(result, report)
    userfile.record_measured(user_file(), job.pair, k, entry(result, report))
    print_line(sys.stderr, f"{job.pair.name} now starts at K {k}: {user_file()}")


def _compare(paths: tuple[Path, Path], json: bool) -> None:
    from dataclasses import asdict

    from specdec_cli.bench.compare import compare
    from specdec_cli.bench.file import read_result
    from specdec_cli.ui.bench.comparison import print_comparison
    from specdec_cli.ui.pairs import print_json

    found = compare(*map(read_result, paths))
    if json:
        print_json(sys.stdout, asdict(found))
    else:
        print_comparison(sys.stdout, found, (paths[0].name, paths[1].name))


def _drafters(asked: list[str] | None) -> tuple[str, ...]:
    check = one_name("--drafter", given.DRAFTERS)
    return tuple(dict.fromkeys(map(check, asked or ["model"])))


def _fallback(resolved: Resolved) -> tuple[str, ...]:
    """Without a draft, the text itself drafts."""
    return ("model",) if resolved.pair.draft else ("ngram",)


def _prompts(file: Path | None, kinds: str | None) -> tuple[BenchPrompt, ...]:
    from specdec_cli.bench.prompts import from_file, load

    if file is not None and kinds is not None:
        raise UsageError(f"--prompts {file} and --kinds {kinds} both choose the prompts", "give one of the two")
    if file is not None:
        return from_file(file)
    return load(None if kinds is None else [kind.strip() for kind in kinds.split(",")])
