"""The options of a constrained answer. Law: at most one of them, and what no model could keep is refused before any."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from specdec_cli.cli.options import option
from specdec_cli.errors import UsageError
from specdec_cli.request import SHAPES, Constraint


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
