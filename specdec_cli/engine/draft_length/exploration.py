"""What looks at drafting may cost while it is parked (pure). Law: looks at what does not pay lose 2 % of the tokens.

What short replies and short processes do not spend adds up, so they look too, only more rarely. A pair that usually
pays is tried at once by each process: in a short reply to text that it cannot guess, that may lose more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from specdec_cli.engine.draft_length.estimates import coming_tokens
from specdec_cli.engine.draft_length.look import CREDIT_STEPS, Look

# Rounds between looks that did not pay, doubled each time, up to five times.
FIRST_WAIT_ROUNDS, DOUBLINGS = 16, 5
LAST_WAIT_ROUNDS = FIRST_WAIT_ROUNDS << DOUBLINGS
# Share of the time since the last look that the next one may lose, reading what the draft has missed included.
EXPLORED_SHARE = 0.02
# What a first look may lose: this share of (tokens so far + tokens still allowed), at assumed costs.
FIRST_LOOK_SHARE = 0.02
# Plain steps that any look may lose of a pair that is known.
LOOK_STEPS = 2.0
# Rounds until a refused investment is weighed again.
RECONSIDER_ROUNDS = 8


@dataclass(slots=True)
class Exploration:
    """Looks so far: whether there was one, tokens of all replies, rounds since the last one, and rounds to wait.

    `failures` counts looks in a row that did not pay; `credit_steps` are plain steps of gains that may be spent.
    """

    known: bool = False
    tokens: int = 0
    rounds_since: float = inf
    failures: int = 0
    credit_steps: float = 0.0
    wait: int = 0

    def begin(self, parked: bool) -> None:
        """A new reply is new text: a parked controller looks again soon, within the budget."""
        self.wait = min(self.wait, FIRST_WAIT_ROUNDS) if parked else 0

    def waits(self) -> bool:
        """Count a round; whether it is one of those to wait."""
        self.rounds_since += 1
        if not self.wait:
            return False
        self.wait -= 1
        return True

    def steps(self, left_tokens: float) -> float:
        """Plain steps that the next look may lose, the draft's reading included; the reply has `left_tokens` left."""
        if not self.known:
            return FIRST_LOOK_SHARE * (self.tokens + left_tokens)
        return EXPLORED_SHARE * self.rounds_since + self.credit_steps

    def most_steps(self, left_tokens: float) -> float:
        """Plain steps that it may lose without the reading, however much was saved."""
        return max(LOOK_STEPS, FIRST_LOOK_SHARE * left_tokens)

    def taught_tokens(self, left_tokens: float, emitted_tokens: int) -> float:
        """Tokens that probably gain by what it finds: those of this reply; by a first look, later ones too."""
        here = coming_tokens(left_tokens, emitted_tokens)
        return here if self.known else max(here, coming_tokens(inf, self.tokens))

    def rechecks(self, price_steps: float, left_tokens: float) -> bool:
        """Whether costs by which no draft could pay are measured again: rarely, and in a reply that hardly feels it."""
        return LAST_WAIT_ROUNDS <= self.rounds_since < inf and price_steps <= FIRST_LOOK_SHARE * left_tokens

    def looked(self) -> None:
        """A look begins."""
        self.known, self.rounds_since, self.credit_steps = True, 0.0, 0.0

    def gave_up(self, look: Look) -> None:
        """It ended: a short wait where drafting had paid until now, else one twice as long each time."""
        self.failures = 0 if look.lost < 0 else self.failures + 1
        self.wait = FIRST_WAIT_ROUNDS << min(max(self.failures - 1, 0), DOUBLINGS)
        self.credit_steps = min(max(-look.lost, 0.0), CREDIT_STEPS)

    def forgive(self) -> None:
        """Drafting usually pays: the first look of a process need not be saved up for."""
        self.rounds_since, self.failures = inf, 0

    def to_dict(self, parked: bool) -> dict[str, Any]:
        """For a later process: it waits only where the last look of this one did not pay."""
        since = self.rounds_since if parked and self.rounds_since < inf else None
        return {"tokens": self.tokens, "rounds_since": since, "failures": self.failures}

    def restore(self, values: Mapping[str, Any]) -> None:
        """What `to_dict` wrote. Raises: KeyError, TypeError, ValueError, ArithmeticError for anything else."""
        since = values["rounds_since"]
        tokens, failures = float(values["tokens"]), float(values["failures"])
        rounds = inf if since is None else float(since)
        if not (0 <= tokens < inf and 0 <= failures < inf and rounds >= 0):
            raise ValueError("looks are counted from 0")
        self.tokens, self.failures, self.rounds_since = int(tokens), int(failures), rounds
