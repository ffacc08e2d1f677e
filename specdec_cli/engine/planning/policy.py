"""Who drafts the next round, how many tokens, and why: one pure function of a frozen situation.

A round of K costs K draft steps and a pass of K + 1 rows, and yields E[tokens]: the plan is the drafter and the K whose
token costs least (Leviathan et al. 2023, arXiv:2211.17192, theorem 3.8, with a verify pass that is not free); K = 0,
plain decoding, costs one step a token. Not in the paper: what is not known has to be tried, so drafting comes in spells
with a budget of plain steps that it may lose; after one that did not pay the next waits twice as many tokens.
Letters: K drafted tokens, n rows of a target pass. Costs are in plain steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf
from typing import NamedTuple

from specdec_cli.core.gain import expected_tokens
from specdec_cli.core.kinds import FORCED, NONE, UNTRIED
from specdec_cli.engine.planning.tuning import (
    BUDGET,
    COLD_K,
    FIRST_WAIT,
    HOPED_RATE,
    LAST_WAIT,
    MEASURED_DOUBT,
    SHARE,
    TRIED_ROUNDS,
    TYPICAL_TOKENS,
)

# Plain rounds in a row that measure a step: the first starts the pipeline, and the last is cut short by the next draft.
MEASURING_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Spell:
    """A spell in which the network drafts, or of plain decoding after one that did not pay.

    `lost` plain steps so far, negative where it gained, of the `budget`; `rounds` drafted in it. `since`: tokens since
    the last such spell, infinite before the first. `fails`: spells in a row that did not pay. `plain`: plain rounds in
    a row.
    """

    drafts: bool = False
    lost: float = 0.0
    budget: float = 0.0
    rounds: int = 0
    since: float = inf
    fails: int = 0
    plain: int = 0

    @property
    def left(self) -> float:
        """Plain steps that may still be lost."""
        return max(self.budget - self.lost, 0.0)

    @property
    def wait(self) -> int:
        """Tokens that pass before the next spell."""
        return min(FIRST_WAIT << min(max(self.fails - 1, 0), 16), LAST_WAIT)

    def drafted(self, steps: float, tokens: int) -> Spell:
        """After a drafted round that took `steps` and emitted `tokens`."""
        return replace(self, lost=max(self.lost + steps - tokens, -BUDGET), rounds=self.rounds + 1, plain=0)

    def decoded(self, tokens: int) -> Spell:
        """After a round that the network did not draft."""
        return replace(self, since=self.since + tokens, plain=self.plain + 1)


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a round is decided by.

    `most`: tokens that a draft may have. `k`: as asked for, None: `auto`. `first`: nothing was emitted in this reply.
    `shared`: other replies are to share the pass. `forced`: tokens that the grammar forces.
    `source`: who looks up after a `match` of so many tokens; `lookup`[i] = P(its token i + 1 is accepted | those before
    were); `predicted`: the K at which a caller's prediction is tried, 0: as any lookup.
    `network`: the drafter that the pair's draft is, empty without one; `rates` as `lookup`, `hoped` the same at its
    best; `steps`[K] its rounds' costs, `passes`[K] those of passes of K + 1 rows; `reading`: what the draft must read
    first, `unread` tokens.
    `ready`: a plain step was measured; `tried`: drafted rounds were; `doubt`: how far (log) assumed costs may be off.
    `left`: tokens that the reply may still emit; `emitted` in it so far; `tokens`: in all replies.
    """

    most: int
    k: int | None = None
    first: bool = False
    shared: bool = False
    forced: int = 0
    source: str = ""
    lookup: tuple[float, ...] = ()
    match: int = 0
    predicted: int = 0
    network: str = ""
    rates: tuple[float, ...] = ()
    hoped: tuple[float, ...] = ()
    steps: tuple[float, ...] = ()
    passes: tuple[float, ...] = ()
    reading: float = 0.0
    unread: int = 0
    ready: bool = False
    tried: bool = False
    doubt: float = 0.0
    left: float = inf
    emitted: int = 0
    tokens: int = 0
    spell: Spell = Spell()

    @property
    def coming(self) -> float:
        """Tokens that the reply is still expected to emit."""
        return coming_tokens(self.left, self.emitted)

    @property
    def cold(self) -> bool:
        """Whether nothing was ever measured on this machine."""
        return self.doubt > MEASURED_DOUBT and not self.tried


@dataclass(frozen=True, slots=True)
class Plan:
    """The next round: `drafter` proposes at most `k` tokens. `spell`: one that begins or ends. `release`: it rests.

    `shared`: nothing is drafted, and other replies share the pass.
    """

    drafter: str = NONE.name
    k: int = 0
    reason: str = ""
    spell: Spell | None = None
    release: bool = False
    shared: bool = False


class Choice(NamedTuple):
    """A K, the plain steps of a round of it, and plain steps a token."""

    k: int
    steps: float
    price: float

    @property
    def summary(self) -> str:
        return f"{self.steps / self.price:.1f} tokens a round cost {self.steps:.1f} plain steps"


def coming_tokens(left: float, emitted: int) -> float:
    """Tokens that a reply is still expected to emit, which may emit at most `left`."""
    return min(left, TYPICAL_TOKENS + emitted)


def cheapest(steps: Sequence[float], rates: Sequence[float], stake: float = inf) -> Choice:
    """The cheapest token of K = 1 … len(rates); K above 1 only where the round costs at most `stake` more than one."""
    tokens = expected_tokens(rates)
    best = Choice(1, steps[1], steps[1] / tokens[1])
    for k in range(2, len(tokens)):
        if steps[k] - 1 > stake:
            break
        if steps[k] / tokens[k] < best.price:
            best = Choice(k, steps[k], steps[k] / tokens[k])
    return best


def shares(pass_steps: float, turn_steps: float) -> bool:
    """Whether replies should share a pass of `pass_steps`, which gives each of them a token, or take turns.

    In turns these tokens cost `turn_steps`: the sum of what each costs alone, with its drafts.
    """
    return pass_steps < turn_steps


def plan(situation: Situation) -> Plan:
    """The next round. Law: equal situations have equal plans."""
    s = situation
    if s.shared:
        return Plan(reason="requests share the pass", shared=True)
    if s.first:
        return plan_first(s)
    if s.forced and s.most:
        return Plan(FORCED.name, min(s.forced, s.most))
    chosen = plan_fixed(s, s.k) if s.k is not None else plan_auto(s)
    return replace(chosen, k=min(chosen.k, s.most)) if s.most else replace(chosen, drafter=NONE.name, k=0)


def plan_first(s: Situation) -> Plan:
    """What is known without a draft, as much as delays the first word by less than it saves of the whole.

    The first word waits for the pass's further rows, which save what its further tokens would cost plainly.
    """
    # No network: by simulation (35 chips and drafts, 32 tokens) it saved 0.28 plain steps and cost the first word 0.8,
    # 1.7, 8.4 after 16, 64, 400 tokens. Two Xeon cores, inflated pair, K 4, processor time, whole ÷ whole drafted so:
    # 1.053 (1.004–1.069, n 28) after 20 to 60 tokens, 84 ms saved, 74 later; after 400 1.013 (0.987–1.054), 40 and 233.
    if s.k is not None or s.cold:
        return Plan()
    rates = (1.0,) * min(s.forced, s.most) or s.lookup[: min(s.predicted, s.most)]
    passes = enumerate(zip(s.passes, expected_tokens(rates), strict=False))
    k = max((k for k, (steps, tokens) in passes if steps - 1 < 1 - steps / tokens), default=0)
    if not k:
        return Plan()
    return Plan(FORCED.name, k, "the shape forces them") if s.forced else Plan(s.source, k, found_reason(s))


def plan_fixed(s: Situation, k: int) -> Plan:
    """The K that was asked for; a lookup takes the round where more of its tokens should be accepted."""
    looked_up, drafted = expected_tokens(s.lookup[:k]), expected_tokens(s.rates[:k] if s.network else ())
    if looked_up[-1] > drafted[-1]:
        return Plan(s.source, len(looked_up) - 1)
    return Plan(s.network, k) if s.network and k else Plan()


def plan_auto(s: Situation) -> Plan:
    """A prediction at once; else the network or a lookup, whose token costs least, or neither."""
    if s.predicted:
        return Plan(s.source, s.predicted, found_reason(s))
    drafted = plan_network(s) if s.rates else Plan()
    spell = drafted.spell or s.spell
    trying = spell.drafts and spell.rounds < TRIED_ROUNDS
    if not s.lookup or trying or not (s.ready or drafted.k):
        return drafted  # nothing is looked up while drafting is tried, or nothing would be learned
    tokens = expected_tokens(s.lookup)
    price, k = min((s.passes[k] / found, k) for k, found in enumerate(tokens))
    if not k or price >= (cheapest(s.steps, s.rates).price if drafted.k else 1.0):
        return drafted
    return Plan(s.source, k, found_reason(s))


def found_reason(s: Situation) -> str:
    return f"the last {s.match} tokens occurred before"


def plan_network(s: Situation) -> Plan:
    """Go on with the present spell, end it, or begin another."""
    best = cheapest(s.steps, s.rates)
    chosen = _go_on(s, best) if s.spell.drafts else _begin(s, best)
    return replace(chosen, k=min(chosen.k, COLD_K)) if s.cold else chosen


def _begin(s: Situation, best: Choice) -> Plan:
    """The first round of a spell where it is worth its price, else a plain one."""
    spell, untried = s.spell, s.spell.since == inf
    hoped = cheapest(s.steps, [HOPED_RATE] * (len(s.steps) - 1)).price
    waiting = Plan(reason=UNTRIED if untried else "drafting did not pay", release=spell.wait >= LAST_WAIT)
    if spell.since < spell.wait:
        return waiting
    if hoped >= 1:
        return replace(waiting, reason="no draft is expected to pay here", release=True)
    if untried and best.price >= 1 and not s.ready:
        return waiting
    budget = max(BUDGET, SHARE * s.left)
    saved = SHARE * (s.tokens + s.left if untried else spell.since)
    stake = budget if untried and s.cold and best.price < 1 else min(saved - s.reading, budget)
    first = cheapest(s.steps, s.rates, stake)
    price = first.steps - 1 + s.reading
    # After f spells in a row that did not pay the next one pays with odds of 1 in f + 2 (rule of succession).
    taught = max(s.coming, TYPICAL_TOKENS + s.tokens) if untried else s.coming
    if first.steps - 1 > stake or (1 - hoped) * taught < (2 + spell.fails) * price:
        return waiting
    begun = replace(spell, drafts=True, lost=0.0, budget=budget if untried else min(saved, budget), rounds=0)
    return Plan(s.network, first.k, "trying whether drafting pays", begun)


def _go_on(s: Situation, best: Choice) -> Plan:
    """The next round of a spell of drafting, or its end."""
    spell = s.spell
    if spell.rounds < TRIED_ROUNDS and spell.left:
        first = cheapest(s.steps, s.rates, spell.left)
        if first.steps - 1 <= spell.left:
            return Plan(s.network, first.k, "trying whether drafting pays")
    if best.price >= 1 and (not spell.left or cheapest(s.steps, s.hoped).price >= 1):
        ended = replace(spell, drafts=False, since=0.0, fails=0 if spell.lost < 0 else spell.fails + 1)
        return Plan(reason=f"drafting did not pay: {best.summary}", spell=ended, release=ended.wait >= LAST_WAIT)
    if not s.ready and spell.plain < MEASURING_ROUNDS and best.price > exp(-s.doubt):
        return Plan(reason="measuring a plain step")
    if s.reading > 1 and (1 - best.price) * s.coming < 2 * s.reading:
        reason = f"short answer: reading {s.unread} tokens would cost the draft {s.reading:.0f} plain steps"
        return Plan(reason=reason)
    return Plan(s.network, best.k, best.summary)
