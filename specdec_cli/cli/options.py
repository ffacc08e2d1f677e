"""Options that several commands share: one spelling, one help line, and SPECDEC_* in the environment as default."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.kinds import DEFAULT_DRAFTER, DEFAULT_RULE, DRAFTERS, RULES, rule_names
from specdec_cli.request import (
    BOUNDS,
    KV_BITS,
    MAX_K,
    SHAPES,
    Constraint,
    effective,
    one_name,
    one_of,
    parse_bias,
    within,
)

if TYPE_CHECKING:
    from specdec_cli.ui.display import Display, Look

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
    variable, panel = env and f"SPECDEC_{env}", ADVANCED if advanced else None
    return typer.Option(*names, envvar=variable, show_envvar=False, rich_help_panel=panel, **more)


def usual(names: str, metavar: str, env: str, help: str, **more: Any) -> Any:
    """An option by its names in one string; an empty `metavar` or `env` is none."""
    return option(*names.split(), metavar=metavar or None, env=env or None, help=help, **more)


advanced = partial(usual, advanced=True)
sampled = partial(advanced, show_default="the target's own")
"""An advanced option, and one of sampling, whose default is the target's own value."""


def bounded(name: str, low: int, env: str, help: str, show_default: str) -> Any:
    """An advanced option that is a whole number from `low` on."""
    return advanced(name, "N", env, help, callback=within(name, low), show_default=show_default)


PAIR = "A pair from models.toml; or a target, by its Hub id or folder."
HEAD = "Draft with the MTP head taken out of the target's original repository."
WHO_DRAFTS = ", ".join(f"{kind.name} ({kind.about})" if kind.drafts else kind.name for kind in DRAFTERS.values())
DRAFT_LENGTH = f"Tokens drafted per round, 0 to {MAX_K}; 0 is plain decoding, auto adapts every round."
READ_BY_DRAFT = "The draft reads the last N tokens of a long context, and holds at most about 2 N; full: all of it."
QUANTIZE = f"Quantize the KV caches to N bits: {', '.join(map(str, KV_BITS))}."
SIZES = "The panel: full, or small (one line)."
GRAMMAR = "The answer is of this grammar, in llguidance's Lark."
LOOPS = "Stop when the last N tokens repeat one phrase; 0 goes on."
COLOURS = "Above the panel: what the draft guessed right in green, the target's own tokens in bold amber."
EVERY_ROUND = "Every round as a line on stderr: what was drafted, accepted, rejected and written instead."
STRUCK = "Strike rejected words through in the answer, on a terminal; [-so-] without colour."
SAME_SEED = "Same seed, same text up to rounding, for every K and drafter (rule coupled)."
*FIRST_RULES, LAST_RULE = RULES
WHICH_RULE = f"Above temperature 0: {', '.join(FIRST_RULES)} or {LAST_RULE}; auto is coupled under --seed, else block."
UNLIKELY = "Leave out tokens less likely than this share of the best."
REPEATED = "Over 1: tokens already in prompt or answer are less likely."
PRESENT = "Taken from the logits of tokens the answer has used."
FREQUENT = "Taken from the logits of tokens the answer has used, once for each use."
COST = "What a round costs, too, and from where drafting pays."
one_rule, rules = one_name("--rule", rule_names()), complete_from(rule_names())

Pair = Annotated[str | None, usual("--pair -p", "NAME", "PAIR", PAIR, autocompletion=pair_names)]
Target = Annotated[str | None, usual("--target", "ID", "TARGET", "Target: a local folder or a Hub id.")]
Draft = Annotated[str | None, usual("--draft", "ID", "DRAFT", "Draft: a local folder or a Hub id.")]
HeadFrom = Annotated[str | None, advanced("--head-from", "ID", "HEAD_FROM", HEAD)]
TargetRevision = Annotated[str | None, advanced("--target-revision", "REV", "", "Pin the target to a commit.")]
DraftRevision = Annotated[str | None, advanced("--draft-revision", "REV", "", "Pin the draft to a commit.")]
DraftLength = Annotated[
    str | None, usual("--num-draft-tokens -k", "N|auto", "K", DRAFT_LENGTH, show_default="the pair's")
]
MaxTokens = Annotated[
    int, usual("--max-tokens -n", "N", "MAX_TOKENS", "Longest answer, in tokens.", callback=within("-n", 1))
]
MaxContext = Annotated[
    int | None, bounded("--max-context", 1, "MAX_CONTEXT", "Prompt and answer together, in tokens.", "the models' own")
]
KvBits = Annotated[
    int | None,
    advanced("--kv-bits", "N", "KV_BITS", QUANTIZE, callback=one_of("--kv-bits", KV_BITS), show_default="off"),
]
DraftContext = Annotated[
    str | None, advanced("--draft-context", "N|full", "DRAFT_CONTEXT", READ_BY_DRAFT, show_default="the pair's")
]
StopRepetition = Annotated[int | None, bounded("--stop-repetition", 0, "STOP_REPETITION", LOOPS, "the pair's, else 0")]
Raw = Annotated[bool, usual("--raw", "", "", "Continue the prompt's own text: no chat template.")]
Panel = Annotated[
    bool | None,
    usual("--panel/--no-panel", "", "", "The live panel; --no-panel: none.", show_default="where stderr is a terminal"),
]
PanelSize = Annotated[
    str, advanced("--panel-size", "NAME", "PANEL_SIZE", SIZES, callback=one_name("--panel-size", PANEL_SIZES))
]
ColourAnswer = Annotated[bool, advanced("--colour-answer/--no-colour-answer", "", "COLOUR_ANSWER", COLOURS)]
Rounds = Annotated[bool, advanced("--rounds", "", "ROUNDS", EVERY_ROUND)]
ShowRejected = Annotated[bool, advanced("--show-rejected", "", "SHOW_REJECTED", STRUCK)]
Quiet = Annotated[bool, usual("--quiet -q", "", "", "The answer only: no panel, no summary.")]
Plain = Annotated[bool, advanced("--plain", "", "PLAIN", "No control codes at all.")]
Offline = Annotated[bool, advanced("--offline", "", "OFFLINE", "No network call at all.")]
Force = Annotated[bool, advanced("--force", "", "", "Go on although it does not fit.")]
Number = float | None
Words = list[str] | None


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
        advanced(
            *("--drafter", "NAME", "DRAFTER", f"Who drafts: {WHO_DRAFTS}."),
            show_default=DEFAULT_DRAFTER,
            autocompletion=complete_from(DRAFTERS),
        ),
    ] = None
    target_revision: TargetRevision = None
    draft_revision: DraftRevision = None
    kv_bits: KvBits = None
    offline: Offline = False
    force: Force = False
    head_from: HeadFrom = None
    draft_context: DraftContext = None


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How far an answer is drafted, where it ends, and what is said before it."""

    k: DraftLength = None
    max_tokens: MaxTokens = 512
    stop: Annotated[Words, advanced("--stop", "TEXT", "", "Stop before this text; repeatable.")] = None
    system: Annotated[str | None, usual("--system -s", "TEXT", "", "System message.")] = None
    max_context: MaxContext = None
    stop_repetition: StopRepetition = None


@dataclass(frozen=True, slots=True)
class DisplayOptions:
    """What is shown beside the answer, and in which form. The fields are those of `Look`."""

    json: Annotated[bool, usual("--json", "", "", "Events as JSON Lines on stdout instead of text.")] = False
    panel: Panel = None
    panel_size: PanelSize = FULL
    colour_answer: ColourAnswer = True
    rounds: Rounds = False
    show_rejected: ShowRejected = False
    quiet: Quiet = False
    verbose: Annotated[bool, advanced("--verbose -v", "", "", COST)] = False
    plain: Plain = False
    trace: Annotated[Path | None, advanced("--trace", "FILE", "", "Write the JSON Lines to FILE as well.")] = None

    @property
    def look(self) -> Look:
        """As displays take it."""
        from specdec_cli.ui.display import Look

        return Look(**asdict(self))

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

    def answer_press(self, presses: int) -> None:
        """As `ui.suspension.answer_press`, on stderr."""
        from specdec_cli.ui.suspension import answer_press
        from specdec_cli.ui.terminal import can_draw

        answer_press(presses, sys.stderr, self.plain or not can_draw(sys.stderr), not self.notices)

    def open(self, name: str) -> AbstractContextManager[Display]:
        """The display of one reply of the pair `name` on this process's streams.

        Raises: UsageError for the trace file.
        """
        from specdec_cli.ui.display import open_display

        return open_display(sys.stdout, sys.stderr, self.look, name)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are drawn; None is the target's own value."""

    temp: Annotated[Number, sampled("--temp", "T", "TEMP", "Temperature; 0 is greedy.", advanced=False)] = None
    top_p: Annotated[Number, sampled("--top-p", "P", "TOP_P", "Sample from the best tokens that hold this mass.")] = (
        None
    )
    seed: Annotated[int | None, usual("--seed", "N", "SEED", SAME_SEED, show_default="a new one")] = None
    rule: Annotated[str, advanced("--rule", "NAME", "RULE", WHICH_RULE, callback=one_rule, autocompletion=rules)] = (
        DEFAULT_RULE
    )
    top_k: Annotated[int | None, sampled("--top-k", "N", "TOP_K", "Sample from the N best tokens.")] = None
    min_p: Annotated[Number, sampled("--min-p", "P", "MIN_P", UNLIKELY)] = None
    repetition_penalty: Annotated[Number, sampled("--repetition-penalty", "X", "REPETITION_PENALTY", REPEATED)] = None
    presence_penalty: Annotated[Number, sampled("--presence-penalty", "X", "PRESENCE_PENALTY", PRESENT)] = None
    frequency_penalty: Annotated[Number, sampled("--frequency-penalty", "X", "FREQUENCY_PENALTY", FREQUENT)] = None
    logit_bias: Annotated[Words, advanced("--logit-bias", "ID=V", "", "Add V to a token's logit; repeatable.")] = None

    def values(self) -> dict[str, float | None]:
        """The flags by the names of `request.BOUNDS`. Raises: UsageError for one out of its bounds."""
        found = {name: getattr(self, {"temperature": "temp"}.get(name, name)) for name in BOUNDS}
        effective({}, found)
        return found

    def bias(self) -> tuple[tuple[int, float], ...]:
        """Raises: UsageError for an entry that is not ID=VALUE."""
        return parse_bias(tuple(self.logit_bias or ()))


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """The shape an answer must have, in one of three languages."""

    schema: Annotated[str | None, usual("--schema", "FILE|JSON", "", "The answer is JSON of this JSON schema.")] = None
    regex: Annotated[str | None, advanced("--regex", "RE", "", "The answer matches RE as a whole.")] = None
    grammar: Annotated[Path | None, advanced("--grammar", "FILE", "", GRAMMAR)] = None

    def constraint(self, stop: tuple[str, ...] = ()) -> Constraint | None:
        """What was given; no model is needed to refuse it.

        Raises: UsageError for two of them, what cannot be read or kept, and for `stop` strings that could cut it.
        """
        given = [(kind, str(value)) for kind in SHAPES if (value := getattr(self, kind)) is not None]
        if len(given) > 1:
            raise UsageError(
                f"--{given[0][0]} and --{given[1][0]} both say what the answer must be", "give one of them"
            )
        if not given:
            return None
        from specdec_cli.models.grammar import read_constraint, require_possible

        ((kind, value),) = given
        constraint = read_constraint(kind, value, f"--{kind}")
        require_possible(constraint, stop)
        return constraint
