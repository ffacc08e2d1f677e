"""`specdec serve --switch`: which other pairs may be asked for, and how one of them is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_cli.errors import NotAvailable, UsageError
from specdec_cli.kinds import DEFAULT_DRAFTER
from specdec_cli.request import Request

if TYPE_CHECKING:
    from specdec_cli.pairs.pair import Pair, Registry
    from specdec_cli.pairs.resolve import Resolved
    from specdec_cli.serve.switch import Switch
    from specdec_cli.session.session import LoadedPair


@dataclass(frozen=True, slots=True)
class Others:
    """The pairs of models.toml that are here, but for the `first`; `drafter` drafts for all, or each one's own."""

    first: str
    drafter: str | None
    based: Callable[[Resolved], Request]
    load: Callable[[Resolved], LoadedPair]

    def here(self) -> Mapping[str, Pair]:
        """By name, as models.toml and the model cache are now. Raises: NotAvailable for a wrong models.toml."""
        from specdec_cli.pairs.catalog import downloaded

        return {name: p for name, p in _registry().pairs.items() if name != self.first and downloaded(p)}

    def switch(self) -> Switch:
        """What a server knows of them."""
        from specdec_cli.serve.switch import Switch

        return Switch(self.here, lambda pair: self.based(self._resolved(pair)))

    def loaded(self, name: str) -> LoadedPair:
        """The pair of that name. Raises: NotAvailable, Refused, DoesNotFit."""
        return self.load(self._resolved(_registry().find(name)))

    def _resolved(self, pair: Pair) -> Resolved:
        from specdec_cli.pairs.resolve import Resolved

        return Resolved(pair, drafter=self.drafter or pair.drafter or DEFAULT_DRAFTER)


def _registry() -> Registry:
    """All pairs now. Raises: NotAvailable, for no request is to blame."""
    from specdec_cli.pairs.catalog import registry

    try:
        return registry()
    except UsageError as error:
        raise NotAvailable(error.message, error.hint) from error
