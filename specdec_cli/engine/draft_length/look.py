"""A spell of drafting and its budget (pure). Law: a draft that loses is given up before its budget is lost."""

from __future__ import annotations

from dataclasses import dataclass

# Rounds that a look takes before its draft is as deep as it pays.
LOOK_ROUNDS = 4
# Share of what may still be lost that one round of a look may risk.
RISKED_SHARE = 0.67
# A draft that loses is kept while it might gain if acceptance were so many standard deviations higher; fewer, the more
# of the budget is lost.
HOPE_DEVIATIONS = 1.5
# Plain steps of gains that count against later losses, and that may be spent on finding a gain again.
CREDIT_STEPS = 3.0


@dataclass(slots=True)
class Look:
    """What drafting may lose and has lost since it began, in plain steps, and its drafted rounds.

    Gains count up to `CREDIT_STEPS`, so that a long good spell does not pay for a long bad one.
    """

    may_lose: float = 0.0
    lost: float = 0.0
    rounds: int = 0

    def add(self, steps: float, tokens: int) -> None:
        """A drafted round of `steps` plain steps emitted `tokens`."""
        self.rounds += 1
        self.lost = max(self.lost + steps - tokens, -CREDIT_STEPS)

    @property
    def beginning(self) -> bool:
        """Whether it has only begun: each round may risk a part of the budget and no more."""
        return self.rounds < LOOK_ROUNDS and self.left > 0

    @property
    def left(self) -> float:
        """Plain steps that it may still lose."""
        return self.may_lose - self.lost

    @property
    def hope(self) -> float:
        """Standard deviations by which acceptance may be higher than it seems."""
        return HOPE_DEVIATIONS * min(max(self.left / self.may_lose, 0.0), 1.0) if self.may_lose else 0.0
