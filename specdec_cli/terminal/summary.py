"""Texts after the work: summaries, errors, boxes, tables. Every figure comes from the events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec_cli.core.events import Finish, Prefill, Start
from specdec_cli.core.format import SEPARATOR, count, percent, size, speed
from specdec_cli.core.gain import Gain, Verdict
from specdec_cli.core.kinds import FORCED, UNTRIED
from specdec_cli.terminal.terminal import safe

Words = tuple[str, str]
"""Words and their style."""
Closing = Callable[..., list[Text]]
"""`summary`, with some of its options given."""


class ErrorLike(Protocol):
    """A `SpecdecError` or the `Failure` event: both carry the two lines."""

    @property
    def message(self) -> str: ...

    @property
    def hint(self) -> str: ...


def summary(
    start: Start,
    finish: Finish,
    width: int | None = None,
    prefill: Prefill | None = None,
    below_panel: bool = False,
    *,
    verbose: bool = False,
    tells_read: bool = False,
) -> list[Text]:
    """What a reply cost, what drafting gained, and why it ended early: one line of at most `width` cells, if given.

    `below_panel` leaves out what the panel says. `verbose` adds how fast was read and written, and what a round costs.
    `tells_read` adds how much of the prompt had to be read. Several machines have a line of their own.
    """
    stats = finish.stats
    said = reply_figures(stats) if stats.get("rounds") and not below_panel else []
    if forced := stats.get("accepted_by", {}).get(FORCED.name, 0):
        said.append((f"{count(forced, 'token')} forced by the constraint", "dim"))
    if said and tells_read and prefill:
        read = f"prompt {count(prefill.prompt_tokens, 'token')}"
        cached = f"{prefill.cached_tokens:,}".replace(",", " ")
        place = "disk" if prefill.disk_tokens else "cache"
        said.append((f"{read}, {cached} from {place}" if prefill.cached_tokens else read, "dim"))
    line = fitted(said, [*_cut(start, finish), *_unkept(start, finish)], width)
    told = [(", ".join(machines(start)), "dim")] if said and start.machine_bytes else []
    told += [*paces(prefill, stats), *costs(start, stats)] if verbose else []
    return [*([line] if line else []), *flow(told, width)]


def machines(start: Start | None) -> list[str]:
    """How many share the target and, by rank, how much each holds: ["2 machines", "1.2 GB on each"]; else nothing."""
    held = list(map(size, start.machine_bytes if start else ()))
    on_each = f"{held[0]} on each" if len(set(held)) == 1 else " + ".join(held)
    return [count(len(held), "machine"), on_each] if held else []


def _unkept(start: Start, finish: Finish) -> list[Words]:
    """Where the answer is not all of the shape that it must have."""
    incomplete = [(f"the {'JSON' if start.constraint == 'schema' else 'answer'} is incomplete", "yellow")]
    words = ", ".join(map(safe, start.unenforced))
    unknown = [(f"no effect, unknown to JSON Schema: {words}", "yellow")] if words else []
    return [*(incomplete if finish.complete is False else []), *unknown]


def _cut(start: Start, finish: Finish) -> list[Words]:
    """What ended the reply before the model did."""
    if finish.reason == "length":
        full = start.context_limit is not None and start.prompt_tokens + start.max_tokens >= start.context_limit
        full_context = f"the context of {start.context_limit} tokens is full" if full else ""
        return [(full_context or f"stopped at --max-tokens {start.max_tokens}", "yellow")]
    if finish.reason == "repetition":
        goes_on = "specdec config set stop_repetition 0 turns this off"
        return [("stopped: the answer was repeating itself", "yellow"), (goes_on, "dim")]
    if finish.reason == "interrupted" and finish.text:
        return [("interrupted: the text above is partial", "yellow")]
    return []


def reply_figures(stats: Mapping[str, Any]) -> list[Words]:
    """Tokens and passes, pace, what drafting gained over plain decoding, and how much of it was accepted."""
    tokens, gain = count(stats["emitted_tokens"], "token"), Gain.of_stats(stats)
    said = [(f"{tokens} in {count(stats['target_passes'], 'pass')}", "dim")]
    if (rate := reliable_pace(stats)) is not None:
        said.append((speed(rate), "dim"))
    if not stats["draft_n"]:
        why = reason(stats)
        return [*said, *([(why, "dim")] if why else [])]
    ratio = [(gain.sentence, verdict_style(gain.verdict))] if gain else []
    return [*said, *ratio, (f"accepted {percent(stats['draft_acceptance_rate'])} of drafted", "dim")]


# Fewer are timed by chance.
FEWEST_TIMED = 5


def reliable_pace(stats: Mapping[str, Any]) -> float | None:
    """Tokens a second, None of so few tokens that the figure would say nothing."""
    rate: float | None = stats["tokens_per_second"]
    return rate if stats["emitted_tokens"] >= FEWEST_TIMED else None


def verdict_style(verdict: Verdict) -> str:
    """Green for faster, yellow for slower, and no colour for what is neither.

    Yellow is not bold: many terminals draw bold yellow in a bright one, unreadable on white.
    """
    return {"faster": "bold green", "slower": "yellow"}.get(verdict, "default")


def reason(stats: Mapping[str, Any]) -> str:
    """Why the last round's K, or why nothing was drafted; empty for a fixed K."""
    why = str(stats.get("why") or "")
    if why != UNTRIED:
        return safe(why)
    return "" if stats["draft_n"] else f"{count(stats['emitted_tokens'], 'token')} are too few to try drafting"


def paces(prefill: Prefill | None, stats: Mapping[str, Any]) -> list[Words]:
    """How fast the prompt was read and the answer written, where enough tokens were timed."""
    said, read = [], prefill.prompt_tokens - prefill.cached_tokens if prefill else 0
    if prefill and prefill.seconds and not prefill.disk_tokens and read >= FEWEST_TIMED:
        said.append(f"read {count(read, 'token')} at {speed(read / prefill.seconds)}")
    if (rate := reliable_pace(stats)) is not None:
        said.append(f"wrote {count(stats['emitted_tokens'], 'token')} at {speed(rate)}")
    return [(words, "dim") for words in said]


def costs(start: Start, stats: Mapping[str, Any]) -> list[Words]:
    """Why it was faster or slower: a round's cost in plain steps, its yield in tokens, and what it takes to pay.

    The cost is `decode_seconds` ÷ rounds after the first, whose pass belongs to the prompt. `draft` is the time spent
    drafting and `verify` the rest, so the parts add up, and yield ÷ cost is the speed-up.
    """
    gain, step = Gain.of_stats(stats), stats.get("plain_step_seconds")
    rounds = stats.get("rounds", 0) - 1
    if gain is None or not step or rounds < 1 or not stats["draft_n"]:
        return []
    cost = round(stats["decode_seconds"] / rounds / step, 1)
    draft = round(stats["draft_seconds"] / rounds / step, 1)
    spent = f"a round takes the time of {cost:.1f} plain tokens (draft {draft:.1f} + verify {cost - draft:.1f})"
    parts = [(f"{spent} and yields {stats['timed_tokens'] / rounds:.1f} tokens", "dim")]
    if gain.pays_from:
        parts.append((f"{gain.pays_from} accepted", "dim"))
    if start.k == "auto":
        (plain, *drafted), every = stats["rounds_at_k"], stats["rounds"]
        parts.append((f"K {1 + drafted.index(max(drafted))} mostly, plain in {plain} of {every} rounds", "dim"))
    if gain.high < 1 and start.device == "cpu":
        parts.append(("this is a CPU, which rarely gains: -k 0 decodes plainly", "yellow"))
    elif gain.high < 1 and start.k != "auto":
        parts.append(("-k auto drafts only where it pays", "yellow"))
    return parts


def fitted(parts: Sequence[Words], kept: Sequence[Words], width: int | None) -> Text:
    """One line of (words, style): the last of `parts` are left out where `width` is too small, never those `kept`."""
    for number in range(len(parts), -1, -1):
        line = Text().join(flow([*parts[:number], *kept], None))
        if width is None or line.cell_len <= width or (number == 1 and not kept):
            break
    return line


def flow(parts: Iterable[Words], width: int | None) -> list[Text]:
    """Joins statements into lines of at most `width` cells; a longer statement has its own line."""
    lines: list[Text] = []
    for words, style in parts:
        if lines and (width is None or lines[-1].cell_len + len(SEPARATOR) + len(words) <= width):
            lines[-1].append(SEPARATOR, "dim").append(words, style)
        else:
            lines.append(Text.assemble((words, style)))
    return lines


def print_lines(console: Console, lines: Iterable[Text], width: int | None) -> None:
    """Prints each Text on its own line, folded at words where it exceeds `width`; without one it is never folded."""
    for line in lines:
        console.print(line, width=width, soft_wrap=width is None)


def error_lines(error: ErrorLike) -> Text:
    """The two lines of an error; line breaks in message and hint become spaces."""
    message, hint = (safe(words).replace("\n", " ").strip() for words in (error.message, error.hint))
    text = Text.assemble(("error:", "bold red"), " ", message)
    return text.append("\n").append("hint:", "cyan").append(f" {hint}") if hint else text


def bare_table(lefts: Sequence[str] = (), rights: Sequence[str] = (), space: int = 2, *, labels: bool = False) -> Table:
    """A table without lines: columns to the left, then some to the right. Where there is little room only the first one
    folds, if it holds `labels`.
    """
    headed = bool(lefts or rights)
    table = Table(box=None, show_header=headed, header_style="dim", padding=(0, space, 0, 0), pad_edge=False)
    for place, heading in enumerate(lefts):
        table.add_column(heading, no_wrap=place > 0 or not labels)
    for heading in rights:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def labelled(rows: Iterable[tuple[Text, Text]]) -> Table:
    """Labels, and texts that fold in a column of their own."""
    table = bare_table()
    table.add_column(no_wrap=True, min_width=10)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def columns(rows: Iterable[Sequence[str]]) -> Table:
    """A bold name, a value and perhaps a note, in columns without lines; long ones fold inside their column."""
    table = bare_table()
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", style="dim")
    for row in rows:
        table.add_row(*(Text(safe(words)) for words in row))
    return table
