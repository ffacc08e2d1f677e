"""How many tokens to draft: always the same, or what rounds cost here and what was accepted lately say (pure).

Adaptive: every round K = argmin of plain steps a round / tokens a round; where that is no less than 1, K = 0. Finding
out has a budget: drafting may lose 2 % of the tokens, or two plain steps, before it is given up. Given up, it is probed
again after twice as many tokens each time. Ollama's MLX runner chooses by the same ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf
from typing import Any, ClassVar, NamedTuple, Protocol

from specdec_cli.core.events import Round
from specdec_cli.core.gain import expected_tokens
from specdec_cli.core.kinds import UNTRIED, learns_from
from specdec_cli.core.request import MAX_DRAFT, MAX_K
from specdec_cli.core.speedup import BELIEVED_SECONDS
from specdec_cli.engine.draft_length.constants import (
    BUDGET,
    FIRST_WAIT,
    HOPE,
    HOPED_RATE,
    LAST_WAIT,
    MEASURED_DOUBT,
    PROBE_ROUNDS,
    SHARE,
    TYPICAL_TOKENS,
)
from specdec_cli.engine.draft_length.costs import Costs, RoundCosts, costs_from_dict
from specdec_cli.engine.draft_length.rates import Acceptance


class DraftLength(Protocol):
    """Chooses K for each round from what earlier rounds showed."""

    @property
    def released(self) -> bool:
        """Whether the drafter may give its memory back: nothing will be drafted for hundreds of tokens."""

    @property
    def reason(self) -> str:
        """The reason of the last `next`, with its figures; empty where K is fixed."""

    def next(self) -> int:
        """K of the next round. Plain rounds ask one round ahead, so that the device never waits."""

    def lookup_k(self, rates: list[float]) -> int:
        """K of a lookup in place of `next`; 0: none this round.

        rates[i] = P(looked-up token i + 1 is accepted | those before it were).
        """

    def observe(self, round: Round) -> None:
        """Learn from a finished round."""


class Fixed:
    """The same K every round. A lookup may take the round where more of its tokens should be accepted."""

    released: ClassVar[bool] = False
    reason: ClassVar[str] = ""

    def __init__(self, k: int) -> None:
        self.k = k
        self._acceptance = Acceptance()

    def next(self) -> int:
        return self.k

    def lookup_k(self, rates: list[float]) -> int:
        looked_up, drafted = expected_tokens(rates[: self.k]), expected_tokens(self._acceptance.rates(self.k))
        return len(looked_up) - 1 if looked_up[-1] > drafted[-1] else 0

    def observe(self, round: Round) -> None:
        if learns_from(round.drafter):
            self._acceptance.observe(len(round.draft), round.accepted)


def coming_tokens(left_tokens: float, emitted_tokens: int) -> float:
    """Tokens that a reply is still expected to emit; it may emit at most `left_tokens`."""
    return min(left_tokens, TYPICAL_TOKENS + emitted_tokens)


class Choice(NamedTuple):
    """A draft length, the plain steps of a round of it, and plain steps a token."""

    k: int
    steps: float
    price: float

    @property
    def summary(self) -> str:
        return f"{self.steps / self.price:.1f} tokens a round cost {self.steps:.1f} plain steps"


class Adaptive:
    """Chooses K each round. One object per pair and drafter serves every reply; `begin` starts each."""

    def __init__(self, assumed: Costs | None = None, max_k: int = MAX_K, reload_seconds: float = 0.0) -> None:
        """`max_k` 0: there is no draft model. `reload_seconds` is the time a released draft takes to be ready again."""
        self.costs, self.acceptance = RoundCosts(assumed or Costs()), Acceptance()
        self._max_k, self._reload_seconds = max_k, reload_seconds
        self._left, self._emitted, self._after_plain, self._coming = inf, 0, False, 0
        # Context that the draft has not read; the most that it ever reads at once, and an estimate for a token of it.
        self._unread, self._context, self._most_unread = 0, 0, inf
        self._read_token_seconds: float | None = None
        self.released = False
        # Decoding plainly because drafting does not pay, or was not tried yet.
        self.parked = True
        self.tokens, self._since, self._fails, self._wait, self._credit = 0, inf, 0, 0, 0.0
        # Of the present spell of drafting, in plain steps.
        self._budget = self._lost = 0.0
        # Drafted rounds, and how many there are before a plain step that seems too dear is measured once more.
        self._rounds = self._checked = 0
        self.reason = UNTRIED if max_k else ""

    def begin(
        self,
        left_tokens: int,
        unread_tokens: int = 0,
        most_unread: float = inf,
        context_tokens: int | None = None,
    ) -> None:
        """Start a reply: tokens it may have, context the draft has not read, of all that there is.

        `most_unread`: what a draft ever has to read at once, if it keeps up with plain rounds or reads the end alone.
        """
        self._left, self._emitted, self._after_plain = left_tokens, 0, False
        self._unread, self._context = unread_tokens, unread_tokens if context_tokens is None else context_tokens
        self._most_unread = most_unread
        self.expect_reading(None)
        self._wait = min(self._wait, FIRST_WAIT) if self.parked else 0

    def expect_reading(self, seconds: float | None) -> None:
        """`seconds` is the estimated cost of reading a token of context; None: as measured or assumed."""
        self._read_token_seconds = seconds

    def next(self) -> int:
        """K of the next round. Asked once a round, before a plain round in flight is observed."""
        self._since += 1
        if not self._max_k or self._wait:
            self._coming, self._wait = 0, max(self._wait - 1, 0)
        else:
            self._coming = self._while_parked() if self.parked else self._while_drafting()
        return self._coming

    def _best(self, rates: list[float], stake: float = inf) -> Choice:
        """The cheapest token of K = 1 … len(rates) whose round loses at most `stake` plain steps."""
        tokens = expected_tokens(rates)
        best: Choice | None = None
        for k in range(1, len(tokens)):
            steps = self.costs.round_steps(k)
            if best is not None and steps - 1 > stake:
                break
            if best is None or steps / tokens[k] < best.price:
                best = Choice(k, steps, steps / tokens[k])
        assert best is not None
        return best

    def _rates(self, hope: float = 0.0) -> list[float]:
        """As deep as a round may now reach: twice what was judged; one more where nothing is known of the machine."""
        frontier = self.acceptance.frontier
        reach = 2 * frontier + 2 if self.costs.shape_known else frontier + 1
        return self.acceptance.rates(min(self._max_k, reach), hope)

    def _reading(self) -> float:
        """Plain steps until the draft has read what it missed."""
        plain = self.costs.plain_seconds()
        token = self._read_token_seconds
        if token is None or self.costs.read_measured:
            token = self.costs.read_seconds()
        return (min(self._unread, self._most_unread) * token + self.released * self._reload_seconds) / plain

    def _while_parked(self) -> int:
        """K of a probe's first round where the probe is worth its price, else 0."""
        reading = self._reading() * (1.0 if self.costs.read_measured else exp(self.costs.assumed.doubt))
        saved = SHARE * (self.tokens + self._left if self._unprobed else self._since) + self._credit
        budget = min(saved - reading, max(BUDGET, SHARE * self._left))
        first = self._best(self._rates(), budget)
        hoped = self._best([HOPED_RATE] * self._max_k).price
        if hoped >= 1 and not self.costs.rows_measured and self.costs.assumed.doubt > MEASURED_DOUBT:
            hoped *= exp(-self.costs.assumed.doubt)  # rows that were never measured may cost less
        if hoped >= 1:
            self._release()
        if first.steps - 1 > budget or not self._promises(hoped, first.steps - 1 + reading):
            self._wait = FIRST_WAIT
            if self._unprobed:
                self.reason = UNTRIED if hoped < 1 else "no draft is expected to pay here"
            return 0
        if not self.costs.ready and hoped > exp(-self.costs.assumed.doubt):
            self._wait = 3  # this round and three more: the first starts the pipeline, the last ends it
            return 0
        self.parked, self._budget, self._lost, self._rounds, self._checked = False, budget, 0.0, 0, 0
        self._since, self._credit = 0.0, 0.0
        self.reason = "probing whether drafting pays"
        return first.k

    @property
    def _unprobed(self) -> bool:
        """Nothing was ever drafted, or drafting paid in an earlier process."""
        return self._since == inf

    def _promises(self, hoped: float, price: float) -> bool:
        """Whether what gains by the probe, at a price of `hoped` a token, should earn its own `price` back.

        After f probes in a row that did not pay the next one pays with odds of 1 in f + 2 (rule of succession). Where
        nothing could pay, costs are measured again after long: they may have been measured at a bad moment.
        """
        if hoped >= 1:
            return LAST_WAIT <= self._since < inf and price <= SHARE * self._left
        taught = coming_tokens(self._left, self._emitted)
        if self._unprobed:  # later replies gain too
            taught = max(taught, TYPICAL_TOKENS + self.tokens)
        return (1 - hoped) * taught >= (2 + self._fails) * price

    @property
    def _probing(self) -> bool:
        """A spell of drafting has only begun: each round may risk a part of its budget and no more."""
        return not self.parked and self._rounds < PROBE_ROUNDS and self._lost < self._budget

    def _while_drafting(self) -> int:
        if self.costs.implied or (self.costs.disputed and self._rounds >= self._checked):
            self._wait, self._checked = 2, self._rounds + PROBE_ROUNDS
            return 0
        left = max(self._budget - self._lost, 0.0)
        if self._probing:
            choice = self._best(self._rates(), left)
            if choice.steps - 1 <= left:
                return choice.k
        best = self._best(self._rates())
        # Acceptance may be better than it seems, which counts the less, the less is left of the budget.
        hope = HOPE * left / self._budget if self._budget > 0 else 0.0
        if best.price >= 1 and self._best(self._rates(hope)).price >= 1:
            self._park()
            self.reason = f"parked: {best.summary}"
            return 0
        reading = self._reading()
        if reading > 1 and (1 - best.price) * coming_tokens(self._left, self._emitted) < 2 * reading:
            self._wait = FIRST_WAIT
            unread = min(self._unread, self._most_unread)
            self.reason = f"short answer: reading {unread} tokens would cost the draft {reading:.0f} plain steps"
            return 0
        self.reason = best.summary
        return best.k

    def _park(self) -> None:
        self.parked, self._credit = True, max(-self._lost, 0.0)
        self._fails = 0 if self._lost < 0 else self._fails + 1
        self._wait = min(FIRST_WAIT << min(max(self._fails - 1, 0), 16), LAST_WAIT)
        if self._wait == LAST_WAIT:
            self._release()

    def _release(self) -> None:
        """The draft gives its memory back, and will have to read everything again."""
        self.released, self._unread = True, self._context

    def lookup_k(self, rates: list[float]) -> int:
        """K of a lookup with these rates; 0 where the model, or plain decoding, costs less.

        A lookup costs nothing but its rows. While drafting is probed nothing is looked up, or nothing would be learned.
        Where nothing is known of the machine, K is at most twice what was verified at once: the next one tells.
        """
        drafts = bool(self._max_k) and not self.parked
        if self._probing or not (drafts or self.costs.ready):
            return 0
        reach = MAX_DRAFT if self.costs.shape_known else 2 * max(self.costs.most_rows - 1, 1)
        tokens = expected_tokens(rates[:reach])
        price, k = min((self.costs.pass_steps(k + 1) / found, k) for k, found in enumerate(tokens))
        if not k or price >= (self._best(self._rates()).price if drafts else 1.0):
            return 0
        self._coming = k
        return k

    def observe(self, round: Round) -> None:
        """Learn the cost and the acceptance of one round."""
        emitted, k = len(round.emitted), len(round.draft)
        self._left, self._emitted = self._left - emitted, self._emitted + emitted
        self.tokens, self._context = self.tokens + emitted, self._context + emitted
        if learns_from(round.drafter):
            self._observe_drafted(round)
        else:
            self._unread += emitted
            # A plain round after a drafted one, or a reply's first, starts the pipeline and costs more than a step. One
            # before a drafted round, or a reply's last, seems to cost less: queueing its successor blocked the host
            # in the round before, and nothing blocks it now.
            if k:  # a lookup has no cost of its own: all its time is the pass's
                self.costs.observe_drafted(k, None, round.draft_seconds + round.verify_seconds)
            elif not self._after_plain:
                self.costs.observe_start(round.verify_seconds)
            elif not self._coming and self._left > 0:
                self.costs.observe_plain(round.verify_seconds)
        self._after_plain = not k

    def _observe_drafted(self, round: Round) -> None:
        k, read_seconds = len(round.draft), round.draft_prefill_seconds
        unread = max(int(min(self._unread, self._most_unread)), round.draft_read_tokens)
        caught_up = unread > 0 and not read_seconds
        if caught_up and self.costs.ready:
            read_seconds = round.draft_seconds - self.costs.draft_seconds(k)
        if not self.released:
            self.costs.observe_reading(unread, read_seconds)
        self.released, self._unread = False, 0
        self.costs.observe_drafted(k, None if caught_up else round.draft_seconds, round.verify_seconds)
        self.acceptance.observe(k, round.accepted)
        steps = (round.draft_seconds + round.verify_seconds) / self.costs.plain_seconds()
        self._rounds += 1
        self._lost = max(self._lost + steps - len(round.emitted), -BUDGET)

    def to_dict(self, now_seconds: float) -> dict[str, Any]:
        """Costs, acceptance and probes for a later process to start from; `now_seconds` since the epoch."""
        since = self._since if self.parked and self._since < inf else None
        return {
            "at": now_seconds,
            "costs": self.costs.to_dict(),
            "judged": self.acceptance.all_judged,
            "accepted": self.acceptance.all_accepted,
            "tokens": self.tokens,
            "since": since,
            "fails": self._fails,
        }

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], now_seconds: float, max_k: int = MAX_K, reload_seconds: float = 0.0
    ) -> Adaptive | None:
        """A controller that assumes what `to_dict` wrote; None when that is too old. Raises KeyError, TypeError and
        ValueError for anything else."""
        if not 0 <= now_seconds - float(values["at"]) <= BELIEVED_SECONDS:
            return None
        adaptive = cls(costs_from_dict(values["costs"]), max_k, reload_seconds)
        judged, accepted, tokens, fails = (float(values[name]) for name in ("judged", "accepted", "tokens", "fails"))
        since = inf if values["since"] is None else float(values["since"])
        adaptive.acceptance = Acceptance(judged, accepted)
        adaptive.tokens, adaptive._since, adaptive._fails = int(tokens), since, int(fails)
        if max_k and adaptive._best(adaptive._rates()).price < 1:  # it usually pays: nothing is saved up for a probe
            adaptive._since, adaptive._fails = inf, 0
        elif max_k and since < inf:
            adaptive.reason = "parked: drafting did not pay before"
        return adaptive
