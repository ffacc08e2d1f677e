"""Options that several commands share: one spelling, one help line, and SPECDEC_* in the environment as default."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec_cli.cli import complete
from specdec_cli.kinds import DEFAULT_DRAFTER, DRAFTERS
from specdec_cli.request import KV_BITS, MAX_K, one_name, one_of, within

if TYPE_CHECKING:
    from specdec_cli.ui.display import Display

ADVANCED = "Advanced"
PANEL_SIZES = FULL, SMALL = ("full", "small")


def option(*names: str, env: str | None = None, advanced: bool = False, **more: Any) -> Any:
    """A Typer option whose default the environment variable SPECDEC_`env` may set."""
    variable = env and f"SPECDEC_{env}"
    panel = ADVANCED if advanced else None
    return typer.Option(*names, envvar=variable, show_envvar=False, rich_help_panel=panel, **more)


Pair = Annotated[
    str | None,
    option(
        *("--pair", "-p"),
        metavar="NAME",
        env="PAIR",
        help="A pair from models.toml; or a target, by its Hub id or folder.",
        autocompletion=complete.pair_names,
    ),
]
Target = Annotated[
    str | None, option("--target", metavar="ID", env="TARGET", help="Target: a local folder or a Hub id.")
]
Draft = Annotated[str | None, option("--draft", metavar="ID", env="DRAFT", help="Draft: a local folder or a Hub id.")]
HeadFrom = Annotated[
    str | None,
    option(
        "--head-from",
        metavar="ID",
        env="HEAD_FROM",
        help="Draft with the MTP head taken out of the target's original repository.",
        advanced=True,
    ),
]
TargetRevision = Annotated[
    str | None, option("--target-revision", metavar="REV", help="Pin the target to a commit.", advanced=True)
]
DraftRevision = Annotated[
    str | None, option("--draft-revision", metavar="REV", help="Pin the draft to a commit.", advanced=True)
]
DraftLength = Annotated[
    str | None,
    option(
        *("--num-draft-tokens", "-k"),
        metavar="N|auto",
        env="K",
        help=f"Tokens drafted per round, 0 to {MAX_K}; 0 is plain decoding, auto adapts every round.",
        show_default="the pair's",
    ),
]
MaxTokens = Annotated[
    int,
    option(
        *("--max-tokens", "-n"),
        callback=within("-n", 1),
        metavar="N",
        env="MAX_TOKENS",
        help="Longest answer, in tokens.",
    ),
]
MaxContext = Annotated[
    int | None,
    option(
        "--max-context",
        callback=within("--max-context", 1),
        metavar="N",
        env="MAX_CONTEXT",
        help="Prompt and answer together, in tokens.",
        show_default="the models' own",
        advanced=True,
    ),
]
KvBits = Annotated[
    int | None,
    option(
        "--kv-bits",
        callback=one_of("--kv-bits", KV_BITS),
        metavar="N",
        env="KV_BITS",
        help=f"Quantize the KV caches to N bits: {', '.join(map(str, KV_BITS))}.",
        show_default="off",
        advanced=True,
    ),
]
StopRepetition = Annotated[
    int | None,
    option(
        "--stop-repetition",
        callback=within("--stop-repetition", 0),
        metavar="N",
        env="STOP_REPETITION",
        help="Stop when the last N tokens repeat one phrase; 0 goes on.",
        show_default="the pair's, else 0",
        advanced=True,
    ),
]
Raw = Annotated[bool, option("--raw", help="Continue the prompt's own text: no chat template.")]
Panel = Annotated[
    bool | None,
    option("--panel/--no-panel", help="The live panel; --no-panel: none.", show_default="where stderr is a terminal"),
]
PanelSize = Annotated[
    str,
    option(
        "--panel-size",
        callback=one_name("--panel-size", PANEL_SIZES),
        metavar="NAME",
        env="PANEL_SIZE",
        help="The panel: full, or small (one line).",
        advanced=True,
    ),
]
ColourAnswer = Annotated[
    bool,
    option(
        "--colour-answer/--no-colour-answer",
        env="COLOUR_ANSWER",
        help="Above the panel: what the draft guessed right in green, the target's own tokens in bold amber.",
        advanced=True,
    ),
]
Quiet = Annotated[bool, option("--quiet", "-q", help="The answer only: no panel, no summary.")]
Verbose = Annotated[
    bool,
    option("--verbose", "-v", help="What a round costs, too, and from where drafting pays.", advanced=True),
]
Plain = Annotated[bool, option("--plain", env="PLAIN", help="No control codes at all.", advanced=True)]
Offline = Annotated[bool, option("--offline", env="OFFLINE", help="No network call at all.", advanced=True)]
Force = Annotated[bool, option("--force", help="Go on although it does not fit.", advanced=True)]
WHO_DRAFTS = ", ".join(f"{kind.name} ({kind.about})" if kind.drafts else kind.name for kind in DRAFTERS.values())


@dataclass(frozen=True, slots=True)
class PairOptions:
    """Two models, beside a pair's name that is an argument."""

    target: Target = None
    draft: Draft = None
    target_revision: TargetRevision = None
    draft_revision: DraftRevision = None
    head_from: HeadFrom = None


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which models answer, and how they are loaded. `drafter` None is the pair's own."""

    pair: Pair = None
    target: Target = None
    draft: Draft = None
    drafter: Annotated[
        str | None,
        option(
            "--drafter",
            metavar="NAME",
            env="DRAFTER",
            help=f"Who drafts: {WHO_DRAFTS}.",
            show_default=DEFAULT_DRAFTER,
            advanced=True,
            autocompletion=complete.one_of(DRAFTERS),
        ),
    ] = None
    target_revision: TargetRevision = None
    draft_revision: DraftRevision = None
    kv_bits: KvBits = None
    offline: Offline = False
    force: Force = False
    head_from: HeadFrom = None


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How far an answer is drafted, where it ends, and what is said before it."""

    k: DraftLength = None
    max_tokens: MaxTokens = 512
    stop: Annotated[
        list[str] | None, option(metavar="TEXT", help="Stop before this text; repeatable.", advanced=True)
    ] = None
    system: Annotated[str | None, option("--system", "-s", metavar="TEXT", help="System message.")] = None
    max_context: MaxContext = None
    stop_repetition: StopRepetition = None


@dataclass(frozen=True, slots=True)
class DisplayOptions:
    """What is shown beside the answer, and in which form."""

    json: Annotated[bool, option("--json", help="Events as JSON Lines on stdout instead of text.")] = False
    panel: Panel = None
    panel_size: PanelSize = FULL
    colour_answer: ColourAnswer = True
    quiet: Quiet = False
    verbose: Verbose = False
    plain: Plain = False
    trace: Annotated[
        Path | None, option(metavar="FILE", help="Write the JSON Lines to FILE as well.", advanced=True)
    ] = None

    @property
    def notices(self) -> bool:
        """Whether stderr may hold more than errors."""
        return not (self.quiet or self.json)

    def no_echo(self) -> AbstractContextManager[None]:
        """While a panel may be drawn, keys (the ^C of Ctrl-C, too) are not painted into it."""
        from specdec_cli.ui.suspension import no_echo
        from specdec_cli.ui.terminal import can_draw

        drawn = self.notices and not self.plain and self.panel is not False and can_draw(sys.stderr)
        return no_echo(sys.stdin if drawn else None)

    def open(self, name: str) -> AbstractContextManager[Display]:
        """The display of one reply of the pair `name` on this process's streams.

        Raises: UsageError for the trace file.
        """
        from specdec_cli.ui.display import open_display

        return open_display(
            *(sys.stdout, sys.stderr),
            name=name,
            json=self.json,
            panel=self.panel,
            quiet=self.quiet,
            plain=self.plain,
            trace=self.trace,
            small_panel=self.panel_size == SMALL,
            colour_answer=self.colour_answer,
            verbose=self.verbose,
            names_race=True,
        )
