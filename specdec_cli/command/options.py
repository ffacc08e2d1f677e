"""Options that several commands share, in groups; what each is called and says is in the table."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from specdec_cli.core.errors import UsageError
from specdec_cli.core.kinds import DEFAULT_RULE
from specdec_cli.core.request import BOUNDS, SHAPES, Constraint, effective, parse_bias
from specdec_cli.terminal.look import Look

if TYPE_CHECKING:
    from specdec_cli.terminal.display import OnEvent


@dataclass(frozen=True, slots=True)
class NameOptions:
    """A pair's name, as an argument or after -p."""

    name: str | None = None
    pair: str | None = None

    @property
    def given(self) -> str | None:
        """Raises: UsageError for two names."""
        if self.name is not None and self.pair is not None:
            raise UsageError(f"{self.name} and --pair {self.pair} are two names", "give one of the two")
        return self.pair if self.name is None else self.name

    @property
    def required(self) -> str:
        """Raises: UsageError for two names, and for none."""
        if (found := self.given) is None:
            raise UsageError("no pair is named", "give a NAME; specdec pairs lists them")
        return found


@dataclass(frozen=True, slots=True)
class PairOptions:
    """Two models, beside a pair's name that is an argument."""

    target: str | None = None
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class StoredOptions(PairOptions):
    """What a pair of models.toml holds besides."""

    target_revision: str | None = None
    draft_revision: str | None = None
    head_from: str | None = None
    adapter: str | None = None
    draft_adapter: str | None = None


@dataclass(frozen=True, slots=True)
class ModelOptions(PairOptions):
    """Which models answer, and how they are loaded. `drafter` None is the pair's own."""

    pair: str | None = None
    drafter: str | None = None
    kv_bits: int | None = None
    offline: bool = False
    force: bool = False
    draft_context: str | None = None


@dataclass(frozen=True, slots=True)
class ContenderOptions:
    """One target, and the drafts to try with it."""

    pair: str | None = None
    target: str | None = None
    draft: list[str] | None = None
    offline: bool = False
    force: bool = False
    draft_context: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How far an answer is drafted, where it ends, and what is said before it."""

    k: str | None = None
    max_tokens: int = 512
    stop: list[str] | None = None
    system: str | None = None
    think: str | None = None
    max_context: int | None = None
    stop_repetition: int | None = None


@dataclass(frozen=True, slots=True)
class DisplayOptions(Look):
    """A look, on this process's streams."""

    @property
    def notices(self) -> bool:
        """Whether stderr may hold more than errors."""
        return not (self.quiet or self.json)

    @property
    def editors_terminal(self) -> TextIO | None:
        """Where a line editor is drawn; None where no person can use it."""
        from specdec_cli.terminal.terminal import can_be_awaited, can_draw, is_terminal

        out = sys.stdout if is_terminal(sys.stdout) else sys.stderr
        usable = is_terminal(sys.stdin) and not (self.json or self.plain) and can_draw(out)
        return out if usable and can_be_awaited(sys.stdin) else None

    def no_echo(self) -> AbstractContextManager[None]:
        """While a panel may be drawn, keys (the ^C of Ctrl-C, too) are not painted into it."""
        from specdec_cli.terminal import suspension, terminal

        drawn = self.notices and not self.plain and self.panel is not False and terminal.can_draw(sys.stderr)
        return suspension.no_echo(sys.stdin if drawn else None)

    def answer_press(self, presses: int) -> None:
        """As `terminal.suspension.answer_press`, on stderr."""
        from specdec_cli.terminal import suspension, terminal

        bare = self.plain or not terminal.can_draw(sys.stderr)
        suspension.answer_press(presses, sys.stderr, bare, not self.notices)

    def open(self, name: str) -> AbstractContextManager[OnEvent]:
        """What shows one reply of the pair `name`.

        Raises: UsageError for the trace file.
        """
        from specdec_cli.terminal.display import open_display

        return open_display(sys.stdout, sys.stderr, self, name)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are drawn; None is the target's own value."""

    temp: float | None = None
    top_p: float | None = None
    seed: int | None = None
    rule: str = DEFAULT_RULE
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: str = ""

    def values(self) -> dict[str, float | None]:
        """The flags by the names of `request.BOUNDS`. Raises: UsageError for one out of its bounds."""
        found = {name: getattr(self, {"temperature": "temp"}.get(name, name)) for name in BOUNDS}
        effective({}, found, "--")
        return found

    def bias(self) -> tuple[tuple[int, float], ...]:
        """Raises: UsageError for an entry that is not ID=VALUE."""
        return parse_bias(self.logit_bias.split())


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """The shape an answer must have, in one of three languages."""

    schema: str | None = None
    regex: str | None = None
    grammar: Path | None = None

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
