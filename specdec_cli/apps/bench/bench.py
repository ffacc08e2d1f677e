"""The work of `specdec bench`: what is asked for becomes a request, which is measured, shown and saved.

What was measured is shown and saved however the bench ends.
"""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

from specdec_cli.apps.bench import page, report, sentences
from specdec_cli.apps.bench.options import BenchOptions
from specdec_cli.apps.bench.result import BenchResult, BenchSettings
from specdec_cli.apps.bench.screen import print_bench
from specdec_cli.apps.bench.sweep import Bench, BenchRequest
from specdec_cli.command.command import say
from specdec_cli.command.export import require_writable, write_export
from specdec_cli.command.load import loading, require_named
from specdec_cli.command.options import ContenderOptions
from specdec_cli.command.table import CONTENDERS
from specdec_cli.command.values import parse_seconds
from specdec_cli.core.errors import UsageError
from specdec_cli.core.kinds import DRAFTERS, LOOKUP, MODEL, MTP
from specdec_cli.core.request import MAX_K, effective, one_name, parse_draft_context
from specdec_cli.measure import prompts
from specdec_cli.pairs.choose import choose
from specdec_cli.pairs.files import find
from specdec_cli.pairs.names import settle
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.pairs.registry import record_measured, user_file
from specdec_cli.session.signals import Interrupt
from specdec_cli.system.machine import awake
from specdec_cli.terminal.panel.status import StatusLine
from specdec_cli.terminal.terminal import make_console


def run(models: ContenderOptions, options: BenchOptions) -> bool:
    """Whether all was measured that was asked for."""
    with loading(models.pair or models.target, shown=not options.quiet, at_once=True):
        request, reason = _request(models, options)
    unwritten: list[UsageError] = []
    try:
        result = _measure(request, reason, options.export or [], unwritten, options.quiet)
        if options.json:
            sys.stdout.write(sentences.json_text(result))
        else:
            print_bench(make_console(sys.stdout, plain=False), result, report.reports(result))
        if options.write:
            _write(result, request.pair)
    finally:
        if unwritten:
            raise unwritten[0]
    return not result.partial


def parse_lengths(text: str) -> tuple[int | Literal["auto"], ...]:
    """`0-4,8,auto` -> (0, 1, 2, 3, 4, 8, auto), each once. 0, the baseline, is always measured.

    Raises: UsageError for anything else, or out of bounds.
    """
    found: list[int | Literal["auto"]] = []
    for part in map(str.strip, text.split(",")):
        bounds = re.fullmatch(r"(\d+)\s*(?:-\s*(\d+))?", part)
        if part == "auto":
            found.append("auto")
        elif bounds is None:
            problem = f"-k {text}: {part or 'nothing'} is neither a number, a range nor auto"
            raise UsageError(problem, "for example: -k 0-8,auto")
        else:
            first, last = int(bounds[1]), int(bounds[2] or bounds[1])
            if last > MAX_K or first > last:
                problem = f"is outside 0 to {MAX_K}" if last > MAX_K else "runs backwards"
                raise UsageError(f"-k {text}: {part} {problem}", f"the widest range: -k 0-{MAX_K}")
            found += range(first, last + 1)
    if not any(found):
        raise UsageError(f"-k {text} drafts nothing, and K 0 is already the baseline", "for example: -k 0-8,auto")
    return tuple(dict.fromkeys(found))


def _request(models: ContenderOptions, options: BenchOptions) -> tuple[BenchRequest, str]:
    """What is to be measured, and why this pair; whatever is wrong with the options is said before anything loads."""
    drafts = tuple(dict.fromkeys(map(settle, models.draft or ())))
    drafters = tuple(dict.fromkeys(map(one_name("--drafter", CONTENDERS), options.drafters or [MODEL.name])))
    temperatures = tuple(dict.fromkeys(options.temps or (0.0,)))
    for temperature in temperatures:
        effective({}, {"temperature": temperature}, "--")
    require_writable("--export", options.export or (), tuple(page.WRITERS))
    if options.prompts is not None and options.kinds is not None:
        problem = f"--prompts {options.prompts} and --kinds {options.kinds} both choose the prompts"
        raise UsageError(problem, "give one of the two")
    if options.prompts is not None:
        texts = prompts.from_file(options.prompts)
    else:
        kinds = prompts.KINDS if options.kinds is None else [kind.strip() for kind in options.kinds.split(",")]
        texts = prompts.load(kinds)
    budget_seconds = parse_seconds("--time-budget", options.time_budget)
    cooldown_seconds = parse_seconds("--cooldown", options.cooldown)
    first = drafts[0] if models.target and drafts else None  # a draft beside --pair joins it below
    needed = any(DRAFTERS[name].needs_draft for name in drafters)
    spec = choose(models.pair, models.target, first, here=needed)
    spec = spec.reading(parse_draft_context(models.draft_context))
    require_named(spec, options.raw)
    pair = spec.pair
    if drafts:
        pair = replace(pair, draft=drafts[0], draft_revision=None, draft_adapter=None)
    listed = spec.pair.source != "command line" and not drafts
    if options.write:
        _require_one_k(listed, len(drafts) + len(drafters) + len(temperatures) > 2)
    lacking = [name for name in drafters if DRAFTERS[name].needs_draft and DRAFTERS[name].uses_draft]
    if options.drafters and lacking and not pair.draft:
        raise UsageError(f"--drafter {lacking[0]}, and {pair.name} has no draft", "name one: --draft ID")
    if not options.drafters and not pair.draft:
        own = find(PairSpec(pair)).draft
        drafters = (MTP.name if own else LOOKUP.name,)  # without a draft, the text itself drafts
    settings = BenchSettings(
        pair=pair.name,
        named=listed,
        target=pair.target,
        contenders=(),
        ks=parse_lengths(options.k),
        temperatures=temperatures,
        rule=options.rule,
        kinds=(),
        prompts=str(options.prompts or ""),
        max_tokens=options.max_tokens or 0,
        ends="fixed" if options.fixed_length else "natural",
        raw=options.raw,
        budget_seconds=budget_seconds,
        cooldown_seconds=cooldown_seconds,
        seed=options.seed,
        draft_context=pair.draft_context,
        own_context=models.draft_context is None,
        of_a_pair=pair.of_a_pair,
    )
    return BenchRequest(pair, settings, drafts[1:], drafters, texts, models.force), spec.reason


def _require_one_k(listed: bool, several: bool) -> None:
    """Checks --write before any time is spent.

    Raises: UsageError where the pair has no entry, or there is more than one K to write.
    """
    if not listed:
        raise UsageError(
            "--write needs a pair by name, and this one was named by its models",
            "specdec pairs add NAME --target ID --draft ID, then specdec bench -p NAME --write",
        )
    if several:
        raise UsageError(
            "--write keeps one K, for the pair's own draft at one temperature",
            "leave out --draft, further --drafter and further --temp",
        )


def _measure(
    request: BenchRequest, reason: str, exports: list[Path], unwritten: list[UsageError], quiet: bool
) -> BenchResult:
    """Load, run, and save, whatever happens after the first figure.

    `unwritten` gets the errors of exports, which are raised once all else is shown and saved.
    """
    with ExitStack() as stack:
        stack.enter_context(awake())
        with loading(request.pair.name, reason, shown=not quiet) as line:
            from specdec_cli.apps.bench.live import load_machine  # mlx takes seconds

            interrupt = stack.enter_context(Interrupt())
            machine = load_machine(request, interrupt.requested, line.tell, line.say)
        line = stack.enter_context(StatusLine(sys.stderr, "measuring", shown=not quiet))
        run = Bench(request, machine, line.say, line.tell)
        try:
            run.run()
        finally:
            # Also after a second Ctrl-C, a signal or an error: what was measured is kept.
            for path in exports if run.samples else ():
                text = page.WRITERS[path.suffix.lower()](run.result())
                try:
                    write_export("--export", path, text, shown=False, plain=False)
                except UsageError as error:
                    unwritten.append(error)
    if not run.samples:
        raise KeyboardInterrupt
    return run.result()


def _write(result: BenchResult, pair: Pair) -> None:
    found = report.reports(result)[0]
    k = sentences.chosen_k(found)
    record_measured(user_file(), pair, k, sentences.entry(found))
    say(f"{pair.name} now starts at K {k}: {user_file()}")
