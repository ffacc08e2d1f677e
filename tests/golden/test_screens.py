"""Golden (g): what a screen shows, a pure function of a state, under the name of what it is to show.

`data/screens.txt` has a heading for each, and below it its rows. What holds of every screen, such as its width, is in
`unit/terminal/test_screens` and `unit/terminal/panel/test_frame`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from fakes.bench import estimate, sample_result
from fakes.racing import scripted
from fakes.ui_script import GAIN, PREFILL, ROUNDS, START, WHY, drafted, finish, folded, measured, undrafted
from golden.record import Table
from specdec_cli.apps.audit.screen import print_audit
from specdec_cli.apps.bench import sentences
from specdec_cli.apps.bench.report import reports
from specdec_cli.apps.bench.result import Contender
from specdec_cli.apps.bench.screen import print_bench
from specdec_cli.apps.pairs.screen import print_pairs
from specdec_cli.apps.race.events import DRAFTED, LaneSeconds, RaceFinish
from specdec_cli.apps.race.screen import RaceView, frame_rows, race_display, verdict
from specdec_cli.core.events import Finish, Prefill
from specdec_cli.core.gain import Gain
from specdec_cli.core.kinds import FORCED, UNTRIED
from specdec_cli.core.stats import Stats
from specdec_cli.measure.divergence import Audit, Divergence, Finding, Token
from specdec_cli.measure.rounding import Changes, LeadChange, Rounding, SeveralRows
from specdec_cli.models.vocab import VocabVerdict
from specdec_cli.pairs.pair import Pair, PairRow
from specdec_cli.terminal.display import open_display
from specdec_cli.terminal.look import Look
from specdec_cli.terminal.panel.frame import LOWEST, render
from specdec_cli.terminal.panel.rounds import round_rows
from specdec_cli.terminal.summary import summary
from specdec_cli.terminal.terminal import make_console

FAST = Pair("fast", "mlx-community/Big", "mlx-community/Small", 4, source="packaged", verified=True)
HUGE = Pair("huge", "org/Huge-70B-4bit", "org/Small", source="packaged")
LONG = Pair("long", "org/" + "a" * 50, "org/" + "b" * 50, verified=True)
ROWS = (
    PairRow(HUGE, None, False, False, False, estimated_bytes=41_000_000_000),
    PairRow(
        Pair("lost", "/gone/target", None, source="yours", verified=True), None, False, None, False, pullable=False
    ),
    PairRow(Pair("listed", "org/L", None, source="packaged", verified=True), 80, False, True, False),
    PairRow(Pair("mine", "org/Alone", None, source="yours"), None, False, None, False),
    PairRow(FAST, 4_340_000_000, True, True, True),
)
TOKENIZERS = {
    "odd": VocabVerdict("translated", "", 7, 0.955),
    "few": VocabVerdict("incompatible", "", 40, 0.42),
    "broken": VocabVerdict("incompatible", "no tokenizer"),
    "alike": VocabVerdict("compatible", ""),
}
BESIDE = [
    PairRow(replace(FAST, name=name), 4_340_000_000, True, True, False, tokenizers=found)
    for name, found in TOKENIZERS.items()
]
NEAR = Divergence(2, Token(1, "a"), Token(2, "\n"), 0.25, 0.5)
WRONG = Divergence(0, Token(1, "a"), None, 7.0, 0.5)
WORDS = [" accepted", " words", " without", " end", " rejected", " lost", " too", " and", " gone"]
TURNS = [
    drafted(0, [], 0, "a", "none"),
    drafted(1, ["b"], 1, "c", "model"),
    drafted(2, ["d"], 1, "e", "model"),
    drafted(3, [], 0, "f", "none"),
    drafted(4, ["g"], 1, "h", "model"),
    drafted(5, ["i"], 0, "j", "ngram"),
]
BENCH = sample_result(budget_seconds=120.0)
RACE = scripted(("def", "日本 ", " x\n", "    return"))
EARLY = next(at for at, event in enumerate(RACE) if getattr(event, "lane", "") == DRAFTED) + 4
STOPPED = drafted(1, ["a", "<end>"], 2, "z")
Screen = Callable[[io.StringIO], object]


def pairs(*rows: PairRow, every: bool = False) -> Screen:
    return lambda out: print_pairs(out, rows, 16_000_000_000, every)


def audit(*found: tuple[str, Divergence | None, int], change: float = 0.05, given: float | None = 0.5) -> Screen:
    """`change` is every change of ours; the machine's are all 0.05."""
    places = [(at, at % 5) for at in range(400)]
    machine, ours = (Changes("g", [LeadChange("code", "whole", *at, size) for at in places]) for size in (0.05, change))
    rounding = Rounding("bfloat16", 400, [SeveralRows(5, machine, ours, "bfloat16", 2.0)], given)
    findings = [Finding(name, "coupled", k, 40, 20, 30, divergence) for name, divergence, k in found]
    whole = Audit("t", "d", "model", "bfloat16", "metal", "mlx-lm", 64, 0.8, 0, {}, rounding, findings)
    return lambda out: print_audit(out, whole)


def bench(*arguments: str, **settings: object) -> Screen:
    result = sample_result(*arguments, **settings)
    return lambda out: print_bench(make_console(out, plain=False), result, reports(result))


def advised(arms: dict[int | str, list[float]], **settings: object) -> Screen:
    """The sentence, the command and the draft's context of the entry, on log speed-ups by K, else on those measured."""
    (found,) = reports(replace(BENCH, settings=replace(BENCH.settings, **settings)))
    if arms:
        vars(found)["estimates"] = [estimate(k, logs) for k, logs in arms.items()]
    kept = "" if arms else f"draft_context = {sentences.entry(found)['draft_context']}"
    return lambda out: out.write(f"{sentences.conclusion(found)}\n{sentences.command(found)}\n{kept}")


def frame(state, width: int = 80, height: int = 24) -> Screen:
    return lambda out: out.write(render(state, width, height).plain + "\n")


def rounds(*done, start=START) -> Screen:
    """What `--rounds` prints of them into a pipe."""

    def show(out: io.StringIO) -> None:
        with open_display(io.StringIO(), out, Look(rounds=True), "demo") as show:
            for event in (start, *done):
                show(event)

    return show


def race_frame(upto: int | None = None) -> Screen:
    view = RaceView()
    for event in RACE[:upto]:
        view.apply(event)
    return lambda out: out.write("".join(row.plain + "\n" for row in frame_rows(view, 80, 24)))


def race_in_a_pipe(out: io.StringIO) -> None:
    with race_display(out, io.StringIO(), json=False, quiet=False, plain=True) as show:
        for event in scripted():
            show(event)


def raced(speedup: float, low: float | None, high: float | None, found: Divergence | None = None) -> Screen:
    seconds = LaneSeconds(40 if found else 100, 1.96, 1.21, speedup, low, high)
    finish = RaceFinish("done", (100, 100), (100, 41), seconds, found)
    return lambda out: out.write("\n".join(verdict(finish)))


def summed(reason: str = "stop", seconds: float | None = 0.012, stats: object = None, **options: object) -> Screen:
    """The scripted reply, with these changes to its `stats`, to its Start and to the options of `summary`."""
    ended = finish(reason, seconds)
    ended = replace(ended, stats={**ended.stats, **(stats or {})}, complete=options.pop("complete", None))
    begun = {name: options.pop(name) for name in {*options} & {field.name for field in fields(START)}}
    return lambda out: out.write("\n".join(line.plain for line in summary(replace(START, **begun), ended, **options)))


def row(width: int) -> Screen:
    (made,) = round_rows([drafted(7, WORDS, 4, " corrected")], replace(START, k="auto"), width)
    return lambda out: out.write(made.plain)


AUTO = replace(START, drafter="auto", k="auto")
PLAIN = folded((ROUNDS[0],), replace(START, k=0, drafter="none", draft=None)).apply(Finish("stop", "def", (), "", {}))
NEEDY = replace(HUGE, min_memory_gb=32.0)
SHARED = {"machine_bytes": (1_200_000_000, 1_200_100_000)}
KNOWN = {"seconds": 0.002, "verbose": True, "width": 80}
NOBODY = {"seconds": None, "stats": {"draft_n": 0, "why": ""}}
SHAPED = {
    "constraint": "schema",
    "unenforced": ("nullable",),
    "max_tokens": 5,
    "stats": {"accepted_by": {FORCED.name: 3}},
}
FORMED = (drafted(0, [], 0, "{"), drafted(1, ["ada", "x"], 1, '", '), drafted(2, ['"', "a"], 2, ' "', FORCED.name))
LOOKED_UP = measured((drafted(3, ["a"], 1, "b", "ngram"),), Gain(0.82, 0.7, 0.9, 0.71, 0.66, 0.78))
READ = Prefill(1234, 1200, 0.1)
SUMMARIES = {
    # The bug: four lines after every piped run, and "47 target passes instead of 100".
    "a gain": summed(),
    "a loss": summed(seconds=0.002),
    "nothing to compare with": summed(seconds=None),
    "two machines": summed(**SHARED),
    "three machines": summed(machine_bytes=(1_200_000_000, 800_000_000, 1)),
    "below a panel": summed(below_panel=True, **SHARED),
    "below a panel, cut": summed("length", below_panel=True, **SHARED),
    "80 columns": summed(width=80),
    "60 columns, cut": summed("length", width=60),
    "40 columns, cut": summed("length", width=40),
    "10 columns": summed(width=10),
    # The bug: "a plain step is being measured" after the end, "so few tokens" beside 60 % accepted.
    "nothing drafted": summed(**NOBODY),
    "too short": summed(seconds=None, stats={"draft_n": 0, "why": UNTRIED}),
    "parked": summed(seconds=None, stats={"draft_n": 0, "why": WHY}),
    "drafted after all": summed(stats={"why": UNTRIED}),
    "cut": summed("length"),
    "a full context": summed("length", prompt_tokens=1000, max_tokens=24, context_limit=1024),
    "interrupted": summed("interrupted"),
    "a loop": summed("repetition"),
    "what a round costs and where drafting pays, on request": summed(verbose=True),
    "the same below a panel": summed(verbose=True, below_panel=True),
    "how fast the prompt was read": summed(verbose=True, prefill=PREFILL),
    "in 80 columns, a draft that loses": summed(**KNOWN),
    "in 80 columns, a K that adapts": summed(**KNOWN, k="auto"),
    "in 80 columns, a CPU": summed(**KNOWN, device="cpu"),
    "how much of a chat's prompt was in the cache": summed(prefill=READ, tells_read=True),
    "in 80 columns not": summed(prefill=READ, tells_read=True, width=80),
    "what a shape forced, and what the answer lacks": summed("length", complete=False, **SHAPED),
    "in 40 columns what it lacks": summed("length", complete=False, width=40, **SHAPED),
    "a shape that is whole": summed(complete=True, **SHAPED),
}
# By what it is to show; at 80 columns, unless it says so.
SCREENS = {
    "pairs: what can run now comes first, and what does not fit is folded": pairs(*ROWS),
    "pairs: all of them on request, with estimates marked and one source said": pairs(*ROWS, every=True),
    "pairs: at 60 columns, what finds no room beside the figures has a line of its own": pairs(
        PairRow(replace(FAST, verified=False), 4_340_000_000, False, True, False, recommended=True)
    ),
    "pairs: with a second source none says one source": pairs(
        PairRow(replace(HUGE, evidence="a catalogue, 2026-11-23"), 1, False, True, False)
    ),
    "pairs: a draft of another tokenizer has its share, and is not ready where that is refused": pairs(*BESIDE),
    "pairs: one that is here is shown although it does not fit": pairs(
        PairRow(HUGE, 41_000_000_000, True, False, False)
    ),
    "pairs: at 120 columns, one line each": pairs(*ROWS),
    "pairs: long ids take two lines instead of being broken": pairs(PairRow(LONG, 1, True, True, False)),
    "pairs: why a draft that is here drafts is folded between words": pairs(
        PairRow(
            replace(FAST, note=f"draft lmstudio-community/Small{'-' * 30}: in LM Studio, 3 times smaller"),
            *(7_000_000_000, True, True, False),
            folder=f"/models/lmstudio-community/Big{'-' * 40}",
        )
    ),
    # 16.5 GB stood under "too large for 25.3 GB"; the stated minimum was not shown.
    "pairs: what is too large says how much memory it needs": pairs(
        PairRow(NEEDY, 13_800_000_000, False, False, False), every=True
    ),
    "pairs: what fits does not": pairs(PairRow(NEEDY, 13_800_000_000, False, True, False), every=True),
    "audit: each result has its place, its gap and both tokens": audit(
        ("same", None, 4), ("near", NEAR, 4), ("wrong", WRONG, 4)
    ),
    "audit: rounding has a table of its own": audit(("same", None, 4), given=None),
    "audit: a fault has a name and a sentence": audit(("same", None, 4), change=-0.5, given=None),
    "audit: K has a column where there are several": audit(("a", None, 4), ("a", None, 2)),
    "bench: all of it": bench(budget_seconds=120.0),
    "bench: one that says don't says so, and names plain decoding": bench("M1 Pro", budget_seconds=120.0),
    "bench: several drafts are compared in one table at their best K": bench(
        contenders=(Contender("model", "org/small"), Contender("translated", "org/other"))
    ),
    "bench: one K is faster, and a larger one not clearly": advised(
        {2: [0.30, 0.36, 0.33, 0.35], 3: [0.31, 0.35, 0.31, 0.36]}
    ),
    "bench: none is, and auto loses nothing": advised({1: [0.2, -0.1, 0.15], "auto": [0.1, -0.1, 0.05]}),
    "bench: all are slower": advised({1: [-0.2, -0.21, -0.19], 2: [-0.3, -0.31, -0.29]}),
    "bench: one prompt is too few, and no longer bench is asked for": advised({1: [0.3], "auto": [0.2]}),
    # K was written and commanded without the draft's context that it was measured under.
    "bench: a context for one command": advised({}, draft_context=33, own_context=False),
    "bench: of texts that were continued": advised({}, raw=True),
    "bench: all of it, under a rule": advised({}, draft_context="full", own_context=False, rule="token"),
    "bench: the pair's own context": advised({}, draft_context=33),
    "bench: a pair that has no name": advised({}, draft_context=33, named=False),
    "bench: a pair that has no name, and the usual context": advised({}, draft_context=1024, named=False),
    "panel: running, the newest rounds a row each and the verdict": frame(folded(measured(ROUNDS[:4], GAIN))),
    "panel: of plain decoding the target's words alone": frame(PLAIN, 60),
    "panel: an adaptive reply that never drafted says why": frame(undrafted().apply(Finish("stop", "x", (), "", {}))),
    "panel: nothing came": frame(folded(()).apply(Finish("interrupted", "", (), "", Stats().to_dict())), 80, LOWEST),
    "panel: a loss of looking up": frame(folded(LOOKED_UP, replace(START, drafter="ngram")), 80, LOWEST),
    "panel: too few rounds": frame(folded().apply(finish(plain_step_seconds=None)), 80, LOWEST),
    "panel: a shape": frame(folded(FORMED, replace(START, constraint="schema")), 80, 12),
    "panel: several machines": frame(folded(ROUNDS, replace(START, **SHARED)), 80, LOWEST),
    **{
        f"panel: in {width} columns and few rows, one line": frame(folded(measured(ROUNDS, GAIN)), width, LOWEST - 1)
        for width in (80, 60, 50, 36, 6)
    },
    "rounds: every fate, the target's own token, the count and the time": rounds(*ROUNDS),
    **{f"rounds: in {width} columns the ends of long words go first": row(width) for width in (116, 76, 56)},
    "rounds: a drafter is named where it changes, and a plain round changes none": rounds(*TURNS, start=AUTO),
    "rounds: of a pair with a head this is named by nobody": rounds(
        drafted(1, ["b"], 1, "c", "mtp"), drafted(2, ["d"], 1, "e", "grammar"), start=replace(START, drafter="mtp")
    ),
    "rounds: an accepted stop token ends one without a token of the target's": rounds(
        replace(STOPPED, round=replace(STOPPED.round, emitted=STOPPED.round.draft[:2]))
    ),
    **{f"summary: {name}": screen for name, screen in SUMMARIES.items()},
    "race: the drafted lane's newest rounds as the panel draws them": race_frame(),
    "race: early, where there are few": race_frame(EARLY),
    "race: into a pipe, lines without control codes": race_in_a_pipe,
    "race: faster": raced(1.62, 1.55, 1.7),
    "race: slower": raced(0.83, 0.79, 0.88),
    "race: no difference": raced(1.02, 0.95, 1.09),
    "race: no telling yet": raced(1.3, 0.9, 1.9),
    "race: too few rounds": raced(2.0, None, None),
    "race: a near-tie": raced(2.0, 1.8, 2.2, Divergence(56, Token(13, " b\x1b"), Token(12, " a"), 0.0123, 0.031)),
    "race: more than one": raced(2.0, 1.8, 2.2, Divergence(3, Token(13, "b"), Token(12, "a"), 5.0, 0.031)),
    "race: a text that ends": raced(2.0, 1.8, 2.2, Divergence(3, Token(13, "b"), None, math.inf, 0.0)),
}


TABLE = Table("screens")


@pytest.mark.parametrize("claim", SCREENS)
def test_a_screen_is_as_recorded(claim, monkeypatch):
    columns = next((word for word in claim.split() if word.isdigit() and claim.startswith("pairs")), "80")
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm-256color")
    out = io.StringIO()
    SCREENS[claim](out)
    TABLE.check(claim, "", *out.getvalue().rstrip("\n").splitlines())


def test_nothing_is_recorded_that_is_drawn_no_more():
    assert {claim for claim, _ in TABLE.rows} == SCREENS.keys()
