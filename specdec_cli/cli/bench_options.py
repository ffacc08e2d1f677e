"""The options of `specdec bench` that other commands have not, or have for one value only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from specdec_cli.cli.options import (
    DraftContext,
    DraftRevision,
    Force,
    HeadFrom,
    Offline,
    Pair,
    Target,
    TargetRevision,
    complete_from,
    option,
)
from specdec_cli.errors import UsageError
from specdec_cli.kinds import DEFAULT_RULE, DRAFTERS, HEAD, MODEL, rule_names
from specdec_cli.request import MAX_K, one_name, within

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
CONTENDERS = tuple(kind.name for kind in DRAFTERS.values() if kind.drafts)


def complete_kinds(incomplete: str) -> list[str]:
    """Kinds of bundled prompts; of several, with commas between them, the last."""
    from specdec_cli.bench.prompts import KINDS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{kind}" for kind in KINDS if kind.startswith(last) and kind not in before.split(",")]


@dataclass(frozen=True, slots=True)
class ContenderOptions:
    """One target, and the drafts to try with it."""

    pair: Pair = None
    target: Target = None
    draft: Annotated[
        list[str] | None,
        option("--draft", metavar="ID", help="Draft to try: a local folder or a Hub id; repeatable."),
    ] = None
    target_revision: TargetRevision = None
    draft_revision: DraftRevision = None
    offline: Offline = False
    force: Force = False
    head_from: HeadFrom = None
    draft_context: DraftContext = None

    @property
    def drafts(self) -> tuple[str, ...]:
        """The drafts to try, each once."""
        head = [] if self.head_from is None else [HEAD + self.head_from]
        return tuple(dict.fromkeys([*(self.draft or ()), *head]))


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is measured, for how long, and where the result goes."""

    k: Annotated[
        str,
        option(
            *("--num-draft-tokens", "-k"),
            metavar="N-N,auto",
            help=f"Draft lengths to try: numbers, ranges, auto; at most {MAX_K}. 0, the baseline, is always there.",
        ),
    ] = "0-8,auto"
    kinds: Annotated[
        str | None,
        option(
            metavar="KIND,…", help="Kinds of bundled prompts.", show_default="all seven", autocompletion=complete_kinds
        ),
    ] = None
    prompts: Annotated[Path | None, option(metavar="FILE", help="Your own prompts: lines, or JSON Lines.")] = None
    max_tokens: Annotated[
        int | None,
        option(
            *("--max-tokens", "-n"),
            callback=within("-n", 8),
            metavar="N",
            help="Longest answer, in tokens.",
            show_default="128, fewer where the budget demands",
        ),
    ] = None
    time_budget: Annotated[
        str,
        option(
            metavar="TIME", help="Time to spend, loading left out: 90s, 2m, 1h. Three prompts are measured in any case."
        ),
    ] = "2m"
    write: Annotated[bool, option("--write", help="Put the recommended K into your models.toml.")] = False
    export: Annotated[
        list[Path] | None,
        option("--export", metavar="FILE", help="Write the result to FILE, by its extension; repeatable."),
    ] = None
    compare: Annotated[
        tuple[Path, Path] | None, option(metavar="A.json B.json", help="Compare two exported results instead.")
    ] = None
    temps: Annotated[
        list[float] | None,
        option("--temp", metavar="T", help="Temperature; repeatable.", show_default="0", advanced=True),
    ] = None
    drafters: Annotated[
        list[str] | None,
        option(
            "--drafter",
            metavar="NAME",
            help=f"Who drafts: {', '.join(CONTENDERS)}; repeatable.",
            show_default=MODEL.name,
            autocompletion=complete_from(CONTENDERS),
        ),
    ] = None
    raw: Annotated[bool, option("--raw", help="Continue the prompt's own text: no chat template.", advanced=True)] = (
        False
    )
    json: Annotated[bool, option("--json", help="One JSON object on stdout.")] = False
    quiet: Annotated[bool, option("--quiet", "-q", help="No progress.")] = False
    rule: Annotated[
        str,
        option(
            callback=one_name("--rule", rule_names()),
            autocompletion=complete_from(rule_names()),
            metavar="NAME",
            help="Above temperature 0; auto is coupled. Under token and block, acceptance comes from real runs.",
            advanced=True,
        ),
    ] = DEFAULT_RULE
    seed: Annotated[int, option(metavar="N", help="Seed of the order and of every draw.", advanced=True)] = 0
    cooldown: Annotated[str, option(metavar="TIME", help="Rest before every answer.", advanced=True)] = "0s"
    fixed_length: Annotated[
        bool, option("--fixed-length", help="Answers never stop early, which changes them.", advanced=True)
    ] = False


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


def parse_seconds(option: str, text: str) -> float:
    """`90`, `90s`, `2m`, `1.5m` or `1h` in seconds.

    Raises: UsageError for anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|)", text.strip())
    if found is None:
        raise UsageError(f"{option} {text} is not a time", f"seconds, minutes or hours: {option} 90s, {option} 2m")
    return float(found[1]) * UNITS[found[2]]
