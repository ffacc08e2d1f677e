"""The other pairs that a server may load instead of its own. Law: only what is on this machine, and one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specdec_cli.kinds import DRAFTERS
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request
from specdec_cli.serve.model import Model, shown
from specdec_cli.session.load import pair_facts


@dataclass(frozen=True, slots=True)
class Switch:
    """`here` gives them by name, as they are now; `base` is what every request to one of them starts from.

    What is known of one is read when it is first asked for, without its weights, and stays so.
    """

    here: Callable[[], Mapping[str, Pair]]
    base: Callable[[Pair], Request]
    since: int = field(default_factory=lambda: int(time.time()))
    _known: dict[str, Model] = field(default_factory=dict)

    def find(self, name: str) -> Model | None:
        """The pair of that name, else one with that target; None if it is not here. Raises: NotAvailable, Refused."""
        if name not in self._known:
            pairs = self.here()
            pair = pairs.get(name) or next((pair for pair in pairs.values() if shown(pair.target) == name), None)
            if pair is None:
                return None
            base = self.base(pair)
            self._known[name] = Model.of_facts(pair.name, pair_facts(pair, DRAFTERS[base.drafter]), base, self.since)
        return self._known[name]
