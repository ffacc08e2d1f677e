"""A tuning on a terminal: what is to be gained, how the training goes, and what it brought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TextIO

from rich.text import Text

from specdec_cli.apps.tune.documents import Split
from specdec_cli.apps.tune.figures import Evaluation, Judged, Measured, Trained, TuningProgress, passes
from specdec_cli.core.format import SEPARATOR, clock, count, elapsed, percent
from specdec_cli.core.progress import Step
from specdec_cli.measure.intervals import Interval
from specdec_cli.terminal.panel.status import StatusLine, status_row
from specdec_cli.terminal.summary import bare_table, labelled
from specdec_cli.terminal.terminal import encodable, make_console, safe, terminal_size

# The time of a long training, and more cells than any row, for the room that curves are left.
LONG_SECONDS, LONGEST = 3599, 999
BARS = "▁▂▃▄▅▆▇█"
# Bars of a curve in the live line, and at the end.
LIVE_BARS, BARS_AT_END = 12, 48


def print_split(out: TextIO, parts: Split, seed: int) -> None:
    """Who is judged on what."""
    near = f", {len(parts.dropped)} dropped as near-duplicates" if parts.dropped else ""
    words = f"{len(parts.judged)} judged, {len(parts.watched)} watched, {len(parts.trained)} to learn from{near}"
    _print(out, {"documents": f"{words}; seed {seed}"})


def print_prediction(out: TextIO, found: Measured) -> None:
    """The figures before any training, and what a draft that is always right would change."""
    now, perfect, share = f"{found.speedup:.2f}× plain decoding", f"{found.perfect:.2f}×", found.acceptance
    low, high = max(share.low, 0.0), min(share.high, 1.0)  # few documents spread further than a share can
    accepted = f"{percent(share.mean, digits=1)} ({100 * low:.1f}–{100 * high:.1f})"
    rows = {
        "accepted": f"{accepted} of judged draft tokens, rounds of K {found.k}",
        "per pass": f"{found.tokens_a_pass:.2f} tokens; {found.k + 1} if the draft were always right",
        "speed": f"{now}; {perfect} if always right, at costs measured now",
        "near": f"{percent(found.near_share)} of rejections: the target's token is in the draft's best four",
    }
    _print(out, rows)


def curve(values: Sequence[float], bars: int) -> str:
    """A bar for each value, or for the last of each stretch of them, between the least and the largest."""
    shown = [values[(at + 1) * len(values) // bars - 1] for at in range(bars)] if len(values) > bars else values
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    return "".join(BARS[round((value - low) / (high - low or 1) * (len(BARS) - 1))] for value in shown)


def curves(looks: Sequence[Evaluation], bars: int) -> tuple[str, str]:
    """Of the loss, and of the agreement on watched documents."""
    losses = [look.loss for look in looks if look.loss is not None]
    return curve(losses, bars), curve([look.watched for look in looks], bars)


def print_curve(out: TextIO, done: Trained) -> None:
    """How loss and agreement went."""
    losses = [look.loss for look in done.looks if look.loss is not None]
    loss, agrees = curves(done.looks, BARS_AT_END) if encodable(BARS, out) == BARS else ("", "")
    watched = [f"{100 * look.watched:.1f}" for look in done.looks]
    best = max(done.looks, key=lambda look: look.watched)
    rows = {"loss": f"{losses[0]:.3f} {loss} {losses[-1]:.3f}"} if losses else {}
    agreed = f"best {100 * best.watched:.1f} % at step {best.step}"
    _print(out, rows | {"agrees": f"{watched[0]:>5} {agrees} {watched[-1]} %, {agreed}"})


def print_beside(out: TextIO, others: Mapping[str, Measured]) -> None:
    """What other drafters do on the same documents, by their names."""
    if not others:
        return
    table = bare_table(("beside", "accepted", "tokens a pass", "over plain decoding"))
    for name, one in others.items():
        rate = one.acceptance.mean if one.rates else None  # lookups may find nothing at all
        table.add_row(name, percent(rate, digits=1), f"{one.tokens_a_pass:.2f}", f"{one.speedup:.2f}×")
    make_console(out, plain=False).print(table)


def print_judged(out: TextIO, judged: Judged) -> None:
    """Before and after, side by side, also on prompts of other kinds, where there are any; then other drafters."""
    before, after, found, general = judged.before, judged.after, judged.judgement, judged.general
    table = bare_table(("", "before", "after", f"change, 95 % over {found.acceptance.prompts} documents"), labels=True)
    rates = (percent(one.acceptance.mean, digits=1) for one in (before, after))
    table.add_row("accepted", *rates, _change(found.acceptance, " points", 0.0))
    shares = (" ".join(f"{100 * share:.0f}" for share in one.positions) for one in (before, after))
    table.add_row("at each position", *shares)
    table.add_row("tokens a pass", *(f"{one.tokens_a_pass:.2f}" for one in (before, after)), _change(found.passes))
    if general and min(len(one.stats) for one in general) > 1:  # an interval takes two
        forgotten = passes(*general)
        shown = f"{_change(forgotten)}, {count(forgotten.prompts, 'prompt')}"
        table.add_row("on bench's prompts", *(f"{one.tokens_a_pass:.2f}" for one in general), shown)
    table.add_row("over plain decoding", *(f"{one.speedup:.2f}×" for one in (before, after)), "as measured each time")
    table.add_row("a round's draft", elapsed(before.draft_seconds), elapsed(after.draft_seconds))
    make_console(out, plain=False).print(table)
    print_beside(out, judged.beside)


def _change(found: Interval, unit: str = " %", none: float = 1.0) -> str:
    """In hundredths, beyond the value of no change."""
    mean, low, high = (100 * (end - none) for end in (found.mean, found.low, found.high))
    return f"{mean:+.1f}{unit} ({low:+.1f} to {high:+.1f})"


@contextmanager
def tune_progress(err: TextIO, title: str) -> Iterator[Callable[[TuningProgress], None]]:
    """How far a tuning is, with curves where the row has room."""

    def on_progress(now: TuningProgress) -> None:
        step, left = Step("step", now.number, now.of), f"{clock(now.seconds)} left"
        if now.loss is None:
            line.say(replace(step, part=now.doing, note=left))
            return
        first, watched = (f"{100 * look.watched:.1f}" for look in (now.looks[0], now.looks[-1]))
        said = [left, f"loss {now.loss:.2f}", f"agrees {first} → {watched} %"]
        taken = len(status_row("", replace(step, note=SEPARATOR.join(said)), LONG_SECONDS, LONGEST))
        bars = min((terminal_size(err)[0] - 2 - taken) // 2, LIVE_BARS)
        if bars > 1 and len(now.looks) > 1 and encodable(BARS, err) == BARS:
            falling, rising = curves(now.looks, bars)
            said = [left, f"{said[1]} {falling}", f"{said[2]} {rising}"]
        line.say(replace(step, note=SEPARATOR.join(said)))

    with StatusLine(err, title) as line:
        yield on_progress


def _print(out: TextIO, rows: dict[str, str]) -> None:
    told = ((Text(label, "dim"), Text(safe(text))) for label, text in rows.items())
    make_console(out, plain=False).print(labelled(told))
