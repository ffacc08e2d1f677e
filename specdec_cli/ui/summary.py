"""Texts after the work: summaries, errors, boxes, tables. Law: every figure comes from the events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specdec_cli.events import Finish, Start
from specdec_cli.format import count, percent, speed
from specdec_cli.gain import Gain
from specdec_cli.kinds import FORCED
from specdec_cli.ui.terminal import MUTED, safe

SEPARATOR = " · "


class ErrorLike(Protocol):
    """A `SpecdecError` or the `Failure` event: both carry the two lines."""

    @property
    def message(self) -> str: ...

    @property
    def hint(self) -> str: ...


def summary(start: Start, finish: Finish, width: int = 80) -> list[Text]:
    """What a reply cost, what drafting gained, and why it ended early; lines break between statements."""
    stats = finish.stats
    lines = [_counts(stats), _costs(start, stats)] if stats.get("rounds") else []
    return [text for parts in [*lines, _early(start, finish)] for text in _flow(parts, width)]


def closing_line(start: Start, finish: Finish, width: int) -> Text:
    """The first statements of the summary that fit, and why the reply ended early, in one line: for below a panel."""
    parts, early = _counts(finish.stats) if finish.stats.get("rounds") else [], _early(start, finish)
    for kept in range(len(parts), 0, -1):
        lines = _flow([*parts[:kept], *early], width)
        if len(lines) == 1:
            return lines[0]
    return Text(SEPARATOR, "dim").join(Text(*part) for part in early or parts[:1])


def _early(start: Start, finish: Finish) -> list[tuple[str, str]]:
    """Why the reply ended before the model ended it, and what it lacks; nothing where all is well."""
    return [*_cut(start, finish), *_unkept(start, finish)]


def _unkept(start: Start, finish: Finish) -> list[tuple[str, str]]:
    """Where the answer is not all of the shape that it must have."""
    incomplete = [(f"the {'JSON' if start.constraint == 'schema' else 'answer'} is incomplete", "yellow")]
    words = ", ".join(map(safe, start.unenforced))
    unknown = [(f"of no effect, since unknown in a schema: {words}", "yellow")] if words else []
    return [*(incomplete if finish.complete is False else []), *unknown]


def _cut(start: Start, finish: Finish) -> list[tuple[str, str]]:
    """What ended the reply before the model did."""
    if finish.reason == "length":
        full = start.context_limit is not None and start.prompt_tokens + start.max_tokens >= start.context_limit
        full_context = f"the context of {start.context_limit} tokens is full" if full else ""
        return [(full_context or f"stopped at --max-tokens {start.max_tokens}", "yellow")]
    if finish.reason == "repetition":
        return [("stopped: the answer had become a loop", "yellow"), ("--stop-repetition 0 goes on", "dim")]
    if finish.reason == "interrupted":
        return [("interrupted: the text above is partial", "yellow")]
    return []


def _counts(stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Tokens, passes, pace, what drafting gained over plain decoding, and how much of it was accepted."""
    tokens, passes, gain = stats["emitted_tokens"], stats["target_passes"], Gain.of_stats(stats)
    counted = f"{count(tokens, 'token')} in {count(passes, 'target pass')}"
    pace = (speed(stats["tokens_per_second"]), "dim")
    if not stats["draft_n"]:
        reason = [(stats["why"], "dim")] if stats.get("why") else []
        return [(f"{counted}, nothing drafted", "dim"), pace, *reason]
    parts = [(f"{counted} instead of {tokens}" if passes < tokens else f"{counted}, none saved", "dim"), pace]
    if gain is not None:
        parts.append((gain.sentence, "green" if gain.low > 1 else "yellow" if gain.high < 1 else "default"))
    return [*parts, (accepted(stats), "dim"), *_forced(stats)]


def _forced(stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How much of the answer cost no drafter and no choice."""
    forced = stats.get("accepted_by", {}).get(FORCED.name, 0)
    return [(f"{count(forced, 'token')} forced by the shape", "dim")] if forced else []


def accepted(stats: Mapping[str, Any]) -> str:
    """ "accepted 61 % of drafted, pays from 35 %": the one rate people need, and what it takes here."""
    gain = Gain.of_stats(stats)
    words = f"accepted {percent(stats['draft_acceptance_rate'])} of drafted"
    return f"{words}, {gain.pays_from}" if gain and gain.pays_from else words


def _costs(start: Start, stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Why it was faster or slower: a round's cost in plain steps, and its yield in tokens.

    The cost is `decode_seconds` ÷ rounds after the first, whose pass belongs to the prompt. `draft` is the time spent
    drafting and `verify` the rest, so the parts add up, and yield ÷ cost is the speed-up.
    """
    gain, step = Gain.of_stats(stats), stats.get("plain_step_seconds")
    rounds = stats["rounds"] - 1
    if gain is None or not step or rounds < 1 or not stats["draft_n"]:
        return []
    cost = round(stats["decode_seconds"] / rounds / step, 1)
    draft = round(stats["draft_seconds"] / rounds / step, 1)
    spent = f"a round costs {cost:.1f} plain steps (draft {draft:.1f} + verify {cost - draft:.1f})"
    parts = [(f"{spent} and yields {(stats['emitted_tokens'] - 1) / rounds:.1f} tokens", "dim")]
    if start.k == "auto":
        parts.append((_lengths(stats["rounds_at_k"]), "dim"))
    if gain.high < 1 and start.device == "cpu":
        parts.append(("this is a CPU, which rarely gains: -k 0 decodes plainly", "yellow"))
    elif gain.high < 1 and start.k != "auto":
        parts.append(("-k auto drafts only where it pays", "yellow"))
    return parts


def _lengths(rounds_at_k: Sequence[int]) -> str:
    """The choices of -k auto: the commonest K, and how often plain decoding."""
    plain, drafted = rounds_at_k[0] - 1, rounds_at_k[1:]  # the first token's pass never drafts
    usual = f"K {1 + drafted.index(max(drafted))} mostly"
    return f"{usual}, plain in {plain} of {sum(rounds_at_k) - 1} rounds" if plain else usual


def _flow(parts: Iterable[tuple[str, str]], width: int) -> list[Text]:
    """Joins statements into lines of at most `width` cells; a longer statement has its own line."""
    lines: list[Text] = []
    for words, style in parts:
        if lines and lines[-1].cell_len + len(SEPARATOR) + len(words) <= width:
            lines[-1].append(SEPARATOR, "dim").append(words, style)
        else:
            lines.append(Text.assemble((words, style)))
    return lines


def print_lines(console: Console, lines: Iterable[Text], width: int | None = None) -> None:
    """Prints each Text on its own line, folded at words where it exceeds `width` or the console."""
    for line in lines:
        console.print(line, width=width)


def error_lines(error: ErrorLike) -> Text:
    """The two lines of an error; line breaks in message and hint become spaces."""
    message, hint = (safe(words).replace("\n", " ").strip() for words in (error.message, error.hint))
    text = Text.assemble(("error:", "bold red"), " ", message)
    return text.append("\n").append("hint:", "cyan").append(f" {hint}") if hint else text


def demo_box(title: str, sentences: Sequence[str], command: str) -> Panel:
    """A small box: one paragraph that folds at any width, and the next command."""
    body = Text(" ".join(map(safe, sentences)))
    body.append("\n").append("next  ", "dim").append(safe(command), "bold cyan")
    heading = Text(safe(title), "bold default")
    return Panel(body, box=box.ROUNDED, title=heading, title_align="left", border_style=MUTED, width=80)


def doctor_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    """(name, value, note) in columns without lines; long notes fold inside their column."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", style="dim")
    for row in rows:
        what, value, note = (Text(safe(words)) for words in row)
        what.stylize("bold")
        table.add_row(what, value, note)
    return table
