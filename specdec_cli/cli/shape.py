"""The options of a constrained answer. Law: at most one of them, and what no model could keep is refused before any."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from specdec_cli.cli.options import option
from specdec_cli.errors import UsageError
from specdec_cli.request import Constraint

PLACES = {"schema": 'give a file, or the JSON itself: --schema \'{"type": "object"}\'', "grammar": "name a file"}


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
        given = {name: value for name in ("schema", "regex", "grammar") if (value := getattr(self, name)) is not None}
        if len(given) > 1:
            one, other, *_ = given
            raise UsageError(f"--{one} and --{other} both say what the answer must be", "give one of them")
        if not given:
            return None
        constraint = self._read()
        from specdec_cli.models.grammar import require_possible

        require_possible(constraint, stop)
        return constraint

    def _read(self) -> Constraint:
        if self.regex is not None:
            return Constraint("regex", self.regex)
        if self.grammar is not None:
            return Constraint("grammar", _text("grammar", self.grammar))
        assert self.schema is not None
        inline = self.schema.lstrip().startswith(("{", "["))
        return Constraint("schema", self.schema if inline else _text("schema", Path(self.schema)))


def _text(option: str, path: Path) -> str:
    """Raises: UsageError for a file that cannot be read as UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--{option} {path} cannot be read: {error.strerror}", PLACES[option]) from error
    except ValueError as error:
        raise UsageError(f"--{option} {path} is not UTF-8", PLACES[option]) from error
