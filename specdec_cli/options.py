"""Options that several commands share: one spelling, one help line, one environment variable each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_cli.pairs import MAX_K

ADVANCED = "Advanced"

PairName = Annotated[
    str | None, typer.Option("--pair", "-p", metavar="NAME", envvar="SPECDEC_PAIR", help="A pair from models.toml.")
]
Target = Annotated[
    str | None, typer.Option(metavar="ID", envvar="SPECDEC_TARGET", help="Target: a local folder or a Hub id.")
]
DraftModel = Annotated[
    str | None, typer.Option("--draft", metavar="ID", envvar="SPECDEC_DRAFT", help="Draft: a local folder or a Hub id.")
]
K = Annotated[
    int | None,
    typer.Option(
        "--num-draft-tokens",
        "-k",
        min=0,
        max=MAX_K,
        metavar="N",
        envvar="SPECDEC_K",
        help=f"Tokens drafted per round, 0 to {MAX_K}; 0 is plain decoding. [default: the pair's]",
    ),
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", min=1, metavar="N", envvar="SPECDEC_MAX_TOKENS", help="Longest answer, in tokens.")
]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop before this text; repeatable.")]
System = Annotated[str | None, typer.Option("--system", "-s", metavar="TEXT", help="System message.")]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the prompt's own text: no chat template.")]
Json = Annotated[bool, typer.Option("--json", help="Events as JSON Lines on stdout instead of text.")]
Panel = Annotated[
    bool | None,
    typer.Option("--panel/--no-panel", help="The live panel. [default: on where stderr is a terminal]", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="The answer only: no panel, no summary.")]
Plain = Annotated[
    bool, typer.Option("--plain", envvar="SPECDEC_PLAIN", help="No control codes at all.", rich_help_panel=ADVANCED)
]
DrafterName = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        metavar="NAME",
        envvar="SPECDEC_DRAFTER",
        help="Who drafts: model, or none for plain decoding. [default: model]",
        rich_help_panel=ADVANCED,
    ),
]
TargetRevision = Annotated[
    str | None, typer.Option(metavar="REV", help="Pin the target to a commit.", rich_help_panel=ADVANCED)
]
DraftRevision = Annotated[
    str | None, typer.Option(metavar="REV", help="Pin the draft to a commit.", rich_help_panel=ADVANCED)
]
MaxContext = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        envvar="SPECDEC_MAX_CONTEXT",
        help="Prompt and answer together, in tokens. [default: the models' own]",
        rich_help_panel=ADVANCED,
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the JSON Lines to FILE as well.", rich_help_panel=ADVANCED),
]
