"""The options of `specdec bench` that other commands have not, or have for one value only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from specdec_cli.cli.options import (
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
from specdec_cli.kinds import DEFAULT_RULE, DRAFTERS, HEAD, MODEL, rule_names
from specdec_cli.request import MAX_K, one_name, within

CONTENDERS = tuple(kind.name for kind in DRAFTERS.values() if kind.drafts)


def complete_kinds(incomplete: str) -> list[str]:
    """Kinds of bundled prompts; of several, with commas between them, the last."""
    from specdec_cli.bench.prompts import KINDS

    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{kind}" for kind in KINDS if kind.startswith(last) and kind not in given]


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
            metavar="KIND,…",
            help="Kinds of bundled prompts.",
            show_default="all seven",
            autocompletion=complete_kinds,
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
