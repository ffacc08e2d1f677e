"""Options that several commands share: one spelling, one help line, and SPECDEC_* in the environment as default."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.kinds import DEFAULT_DRAFTER, DEFAULT_RULE, DRAFTERS, rule_names
from specdec_cli.request import KV_BITS, MAX_K, SHAPES, Constraint, one_name, one_of, parse_bias, sampling_flags, within

if TYPE_CHECKING:
    from specdec_cli.ui.display import Display

Complete = Callable[[str], list[str]]


def pair_names(incomplete: str) -> list[str]:
    """Names in both models.toml, in their order."""
    from specdec_cli.pairs.registry import load_registry, packaged_file, user_file

    try:
        known = load_registry(packaged_file(), user_file())
    except SpecdecError:
        return []
    return [name for name in known.pairs if name.startswith(incomplete)]


def complete_from(names: Iterable[str]) -> Complete:
    """Any of `names`."""
    known = tuple(names)
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


ADVANCED = "Advanced"
PANEL_SIZES = FULL, SMALL = ("full", "small")


def option(*names: str, env: str | None = None, advanced: bool = False, **more: Any) -> Any:
    """A Typer option whose default the environment variable SPECDEC_`env` may set."""
    variable = env and f"SPECDEC_{env}"
    panel = ADVANCED if advanced else None
    return typer.Option(*names, envvar=variable, show_envvar=False, rich_help_panel=panel, **more)


def whole_number(name: str, low: int, env: str, help: str, show_default: str) -> Any:
    """An advanced option that is a whole number from `low` on."""
    check = within(name, low)
    return option(name, callback=check, metavar="N", env=env, help=help, show_default=show_default, advanced=True)


PAIR = "A pair from models.toml; or a target, by its Hub id or folder."
K_HELP = f"Tokens drafted per round, 0 to {MAX_K}; 0 is plain decoding, auto adapts every round."
LOOPS = "Stop when the last N tokens repeat one phrase; 0 goes on."
COLOURS = "Above the panel: what the draft guessed right in green, the target's own tokens in bold amber."
HEAD_HELP = "Draft with the MTP head taken out of the target's original repository."
WHO_DRAFTS = ", ".join(f"{kind.name} ({kind.about})" if kind.drafts else kind.name for kind in DRAFTERS.values())

Pair = Annotated[str | None, option("--pair", "-p", metavar="NAME", env="PAIR", help=PAIR, autocompletion=pair_names)]
Target = Annotated[
    str | None, option("--target", metavar="ID", env="TARGET", help="Target: a local folder or a Hub id.")
]
Draft = Annotated[str | None, option("--draft", metavar="ID", env="DRAFT", help="Draft: a local folder or a Hub id.")]
HeadFrom = Annotated[str | None, option("--head-from", metavar="ID", env="HEAD_FROM", help=HEAD_HELP, advanced=True)]
TargetRevision = Annotated[
    str | None, option("--target-revision", metavar="REV", help="Pin the target to a commit.", advanced=True)
]
DraftRevision = Annotated[
    str | None, option("--draft-revision", metavar="REV", help="Pin the draft to a commit.", advanced=True)
]
Drafter = Annotated[
    str | None,
    option(
        "--drafter",
        metavar="NAME",
        env="DRAFTER",
        help=f"Who drafts: {WHO_DRAFTS}.",
        show_default=DEFAULT_DRAFTER,
        advanced=True,
        autocompletion=complete_from(DRAFTERS),
    ),
]
DraftLength = Annotated[
    str | None, option("--num-draft-tokens", "-k", metavar="N|auto", env="K", help=K_HELP, show_default="the pair's")
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
    whole_number("--max-context", 1, "MAX_CONTEXT", "Prompt and answer together, in tokens.", "the models' own"),
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
    int | None, whole_number("--stop-repetition", 0, "STOP_REPETITION", LOOPS, "the pair's, else 0")
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
    bool, option("--colour-answer/--no-colour-answer", env="COLOUR_ANSWER", help=COLOURS, advanced=True)
]
Quiet = Annotated[bool, option("--quiet", "-q", help="The answer only: no panel, no summary.")]
Verbose = Annotated[
    bool, option("--verbose", "-v", help="What a round costs, too, and from where drafting pays.", advanced=True)
]
Plain = Annotated[bool, option("--plain", env="PLAIN", help="No control codes at all.", advanced=True)]
Offline = Annotated[bool, option("--offline", env="OFFLINE", help="No network call at all.", advanced=True)]
Force = Annotated[bool, option("--force", help="Go on although it does not fit.", advanced=True)]


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
    drafter: Drafter = None
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


def targets_own(metavar: str, env: str, help: str, advanced: bool = True) -> Any:
    """An option of sampling whose default is the target's own value."""
    return option(metavar=metavar, env=env, help=help, show_default="the target's own", advanced=advanced)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are drawn; None is the target's own value."""

    temp: Annotated[float | None, targets_own("T", "TEMP", "Temperature; 0 is greedy.", advanced=False)] = None
    top_p: Annotated[float | None, targets_own("P", "TOP_P", "Sample from the best tokens that hold this mass.")] = None
    seed: Annotated[
        int | None,
        option(
            metavar="N",
            env="SEED",
            help="Same seed, same text up to rounding, for every K and drafter (rule coupled).",
            show_default="a new one",
        ),
    ] = None
    rule: Annotated[
        str,
        option(
            metavar="NAME",
            callback=one_name("--rule", rule_names()),
            env="RULE",
            help="Above temperature 0: token, block, coupled or match; auto is coupled under --seed, else block.",
            autocompletion=complete_from(rule_names()),
            advanced=True,
        ),
    ] = DEFAULT_RULE
    top_k: Annotated[int | None, targets_own("N", "TOP_K", "Sample from the N best tokens.")] = None
    min_p: Annotated[
        float | None, targets_own("P", "MIN_P", "Leave out tokens less likely than this share of the best.")
    ] = None
    repetition_penalty: Annotated[
        float | None,
        targets_own("X", "REPETITION_PENALTY", "Over 1: tokens already in prompt or answer are less likely."),
    ] = None
    presence_penalty: Annotated[
        float | None, targets_own("X", "PRESENCE_PENALTY", "Taken from the logits of tokens the answer has used.")
    ] = None
    frequency_penalty: Annotated[
        float | None,
        targets_own(
            "X", "FREQUENCY_PENALTY", "Taken from the logits of tokens the answer has used, once for each use."
        ),
    ] = None
    logit_bias: Annotated[
        list[str] | None, option(metavar="ID=V", help="Add V to a token's logit; repeatable.", advanced=True)
    ] = None

    def values(self) -> dict[str, float | None]:
        """The flags by the names of `request.BOUNDS`. Raises: UsageError for one out of its bounds."""
        penalties = self.repetition_penalty, self.presence_penalty, self.frequency_penalty
        return sampling_flags(self.temp, self.top_p, self.top_k, self.min_p, *penalties)

    def bias(self) -> tuple[tuple[int, float], ...]:
        """Raises: UsageError for an entry that is not ID=VALUE."""
        return parse_bias(tuple(self.logit_bias or ()))


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """The shape an answer must have, in one of three languages."""

    schema: Annotated[
        str | None, option("--schema", metavar="FILE|JSON", help="The answer is JSON of this JSON schema.")
    ] = None
    regex: Annotated[
        str | None, option("--regex", metavar="RE", help="The answer matches RE as a whole.", advanced=True)
    ] = None
    grammar: Annotated[
        Path | None,
        option("--grammar", metavar="FILE", help="The answer is of this grammar, in llguidance's Lark.", advanced=True),
    ] = None

    def constraint(self, stop: tuple[str, ...] = ()) -> Constraint | None:
        """What was given; no model is needed to refuse it.

        Raises: UsageError for two of them, what cannot be read or kept, and for `stop` strings that could cut it.
        """
        given = [(kind, str(value)) for kind in SHAPES if (value := getattr(self, kind)) is not None]
        if len(given) > 1:
            (one, _), (other, _), *_ = given
            raise UsageError(f"--{one} and --{other} both say what the answer must be", "give one of them")
        if not given:
            return None
        from specdec_cli.models.grammar import read_constraint, require_possible

        ((kind, value),) = given
        constraint = read_constraint(kind, value, f"--{kind}")
        require_possible(constraint, stop)
        return constraint
