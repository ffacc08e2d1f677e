"""How a head is used, and how well it guesses so. Law: an agreement is refused by its numbers, also one remembered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from mlx.utils import tree_flatten, tree_unflatten

from specdec_cli.engine.heads.mtp import MtpHead, Recipe
from specdec_cli.engine.hidden import READ
from specdec_cli.errors import Refused
from specdec_cli.format import percent

STEPS = 3
# Odds that luck alone does something: replaces the family's variant, or lets a head pass.
ODDS = 0.01
# Agreement beyond chance (Cohen's kappa) of a head that guesses: less is a head of another model.
LEAST_KAPPA = 0.05
# A text that says the same again and again proves nothing: where guesses agree by chance so often, nobody is refused.
MONOTONOUS = 0.9


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to use a head's weights. `zero_centred`: its norms are stored less 1."""

    recipe: Recipe
    zero_centred: bool

    @property
    def first_guess(self) -> Variant:
        """The same for variants whose first guesses are the same: what is carried on comes later."""
        return replace(self, recipe=replace(self.recipe, carries="normed"))

    def distance(self, other: Variant) -> int:
        """In how many ways they differ."""
        return sum(ours != theirs for ours, theirs in zip(self._words(), other._words(), strict=True))

    def unlike(self, other: Variant) -> str:
        """What differs from `other`, in words."""
        return ", ".join(ours for ours, theirs in zip(self._words(), other._words(), strict=True) if ours != theirs)

    def _words(self) -> tuple[str, ...]:
        recipe = self.recipe
        return (
            f"it reads the state {'after' if recipe.reads == READ else 'before'} the target's last norm",
            f"its norms are stored {'less 1' if self.zero_centred else 'as they are'}",
            f"the {'token' if recipe.embedding_first else 'state'} comes first",
            f"its own state is carried on {'after' if recipe.carries == 'normed' else 'before'} its norm",
            f"it reads the token {'of' if recipe.lag else 'after'} the state's position",
        )


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was found: `by_step[i]` is the share of `positions` at which the first i + 1 guesses were all right.

    `variant` is to be used, `known` is the family's, and `known_by_step` how well that one guesses. `chance` is how
    often first guesses would be right if they had nothing to do with the text, `odds` that luck made them this good.
    `shortlist` is how many of the first tokens drafts are scored over, 0: all.
    """

    variant: Variant
    known: Variant
    positions: int
    by_step: tuple[float, ...]
    known_by_step: tuple[float, ...]
    chance: float
    odds: float
    shortlist: int = 0

    @property
    def repaired(self) -> bool:
        """Whether another variant than the family's is to be used."""
        return self.variant != self.known

    @property
    def guesses(self) -> bool:
        """Whether the head agrees with the target beyond chance."""
        if self.positions and self.chance > MONOTONOUS:
            return True
        lead = self.by_step[0] - self.chance
        return self.odds < ODDS and lead >= LEAST_KAPPA * (1 - self.chance)

    @property
    def summary(self) -> str:
        """The shares in one line, and what was repaired."""
        shares = ", ".join(map(percent, self.by_step))
        text = f"agrees with its target {shares} at steps 1 to {len(self.by_step)} ({self.positions} tokens)"
        if self.repaired:
            was = ", ".join(map(percent, self.known_by_step))
            text += f"; used unlike its family ({was}): {self.variant.unlike(self.known)}"
        return f"{text}; drafts from the first {self.shortlist} tokens" if self.shortlist else text

    def require_guesses(self, name: str, target: str) -> None:
        """Raises: Refused, with the numbers, if the head `name` agrees with `target` no more than chance does."""
        if self.guesses:
            return
        raise Refused(
            f"the MTP head of {name} guesses {percent(self.by_step[0])} of {self.positions} tokens of {target}, and "
            f"chance {percent(self.chance)}: it is another model's, or damaged",
            "take the head of this very target, or draft otherwise: --drafter ngram",
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Agreement:
        """Raises: KeyError, TypeError, ValueError for values that are none."""
        chosen, known = (
            Variant(Recipe(**values[k]["recipe"]), values[k]["zero_centred"]) for k in ("variant", "known")
        )
        shares = [tuple(float(share) for share in values[key]) for key in ("by_step", "known_by_step")]
        chance, odds = float(values["chance"]), float(values["odds"])
        if len(shares[0]) != STEPS or len(shares[1]) != STEPS:
            raise ValueError(f"{STEPS} steps")
        shortlist = int(values.get("shortlist", 0))
        return cls(chosen, known, int(values["positions"]), shares[0], shares[1], chance, odds, shortlist)


@contextmanager
def used(head: MtpHead, variant: Variant, loaded_as_zero_centred: bool) -> Iterator[None]:
    """Inside, `head` works as `variant` says; afterwards it is what it was."""
    recipe, norms = head.recipe, _norms(head)
    by = float(variant.zero_centred) - float(loaded_as_zero_centred)
    head.recipe = variant.recipe
    if by:
        head.update(tree_unflatten([(name, value + by) for name, value in norms]))
    try:
        yield
    finally:
        head.recipe = recipe
        head.update(tree_unflatten(norms))


def _norms(head: MtpHead) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in tree_flatten(head.parameters()) if is_norm(name, value.ndim)]


def is_norm(name: str, axes: int) -> bool:
    """Whether the tensor of that name, of so many axes, is the weight of a norm."""
    return axes == 1 and (name.endswith("norm.weight") or "norm_" in name)
