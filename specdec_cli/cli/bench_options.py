"""The options of `specdec bench` that other commands have not, or have for one value only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_cli.cli.options import ADVANCED
from specdec_cli.kinds import rule_names
from specdec_cli.request import MAX_K, one_name, within

DRAFTERS = ("model", "ngram", "auto")

Ks = Annotated[
    str,
    typer.Option(
        "--num-draft-tokens",
        "-k",
        metavar="N-N,auto",
        help=f"Draft lengths to try: numbers, ranges, auto; at most {MAX_K}. 0, the baseline, is always there.",
    ),
]
Drafts = Annotated[
    list[str] | None,
    typer.Option("--draft", metavar="ID", help="Draft to try: a local folder or a Hub id; repeatable."),
]
Drafters = Annotated[
    list[str] | None,
    typer.Option("--drafter", metavar="NAME", help="Who drafts: model, ngram, auto; repeatable.", show_default="model"),
]
Kinds = Annotated[
    str | None, typer.Option(metavar="KIND,…", help="Kinds of bundled prompts.", show_default="all seven")
]
Prompts = Annotated[Path | None, typer.Option(metavar="FILE", help="Your own prompts: lines, or JSON Lines.")]
Temps = Annotated[
    list[float] | None, typer.Option("--temp", metavar="T", help="Temperature; repeatable.", show_default="0")
]
Budget = Annotated[str, typer.Option(metavar="TIME", help="Time to spend, loading left out: 90s, 2m, 1h.")]
Exports = Annotated[
    list[Path] | None,
    typer.Option("--export", metavar="FILE", help="Write the result to FILE, by its extension; repeatable."),
]
Write = Annotated[bool, typer.Option("--write", help="Put the recommended K into your models.toml.")]
Compare = Annotated[
    tuple[Path, Path] | None, typer.Option(metavar="A.json B.json", help="Compare two exported results instead.")
]
Tokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        "-n",
        callback=within("-n", 8),
        metavar="N",
        help="Longest answer, in tokens.",
        show_default="128, fewer where the budget demands",
    ),
]
Cooldown = Annotated[str, typer.Option(metavar="TIME", help="Rest before every answer.", rich_help_panel=ADVANCED)]
FixedLength = Annotated[
    bool,
    typer.Option("--fixed-length", help="Answers never stop early; changes them.", rich_help_panel=ADVANCED),
]
Rule = Annotated[
    str,
    typer.Option(
        callback=one_name("--rule", rule_names()),
        metavar="NAME",
        help="Above temperature 0; auto is coupled. token and block cannot be rehearsed, only run.",
        rich_help_panel=ADVANCED,
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Of the order and of all draws.", rich_help_panel=ADVANCED)]
