"""Who drafts the next round, how many tokens, and why: one pure function of a frozen situation.

A round of K costs K draft steps and a pass of K + 1 rows, and yields E[tokens]: the plan is the drafter and the K whose
tokens cost least (Leviathan et al. 2023, arXiv:2211.17192, theorem 3.8, with a verify pass that is not free); K = 0,
plain decoding, costs one step a token. Not in the paper: where drafting does not seem to pay, rounds may still be tried
at the rate of a good text, out of a credit, which is a share of the emitted tokens less what drafted rounds lost.
Exact at any temperature: K depends on earlier rounds, never on what is drawn in this one.
Letters: K drafted tokens, n rows of a target pass. Costs are in plain steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from specdec_cli.core.format import percent
from specdec_cli.core.gain import expected_tokens
from specdec_cli.core.kinds import FORCED, NONE, UNTRIED

# The rate of a good text, at which rounds are tried. At 0.78 the worst chip, disturbed, keeps 0.90 of plain decoding's
# speed in place of 0.84, and code and edits, warm, 0.956 of the best K's in place of 0.972.
GOOD_RATE = 0.85
# Share of the tokens that finding out may lose; also a reply's own, before they are emitted.
SHARE = 0.02
# What drafting is expected to save over the price that is paid at once: reading; reading and a round that is tried.
# With 1.2 for both, a draft of nothing costs 1 % more; with 2 for both, 40 tokens of code and edits, cold, lose 4 %.
ODDS, TRYING_ODDS = 1.2, 2.0
# A reply still has this many tokens and as many as it had so far: lengths are long-tailed.
TYPICAL_TOKENS = 64
# Plain tokens in a row after which the draft gives its memory back.
RELEASE_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Worth:
    """What drafts of K would be worth to a reply: [K] tokens that its round is expected to emit, [K] draft steps."""

    tokens: tuple[float, ...] = (1.0,)
    steps: tuple[float, ...] = (0.0,)

    def at(self, k: int) -> tuple[float, float]:
        """(tokens, draft steps) where a pass has room for k drafted tokens of each reply."""
        k = min(k, len(self.tokens) - 1)
        return self.tokens[k], self.steps[k]


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a round is decided by.

    `most`: tokens that a draft may have. `k`: as asked for, None: `auto`. `first`: nothing was emitted in this reply.
    `in_flight`: tokens of a pass that is not read yet.
    `others`: what drafts are worth to those who are to share the pass, None where it is its own; `shares_steps`: they
    share the network's steps, too.
    `forced`: tokens that the grammar forces.
    `source`: who looks up after a `match` of so many tokens; `lookup`[i] = P(its token i + 1 is accepted | those before
    were); `predicted`: the K at which a caller's prediction is tried, 0: as any lookup.
    `network`: the drafter that the pair's draft is, empty without one; `deepest`: the K that it may reach, 0: it drafts
    nothing; `rate`: P(its token is accepted | those before were); `judged`: whether any was.
    `steps`[K] its rounds' costs, `passes`[K] those of passes of K + 1 rows; `measured`: whether any was, here.
    `reading`: what the draft must read first, `unread` tokens. `credit`: plain steps that trying may lose.
    `stale`: no plain step was measured for so long that drafts may seem to pay which do not.
    `left`: tokens that the reply may still emit; `emitted` in it so far; `idle`: since the network drafted last.
    """

    most: int
    k: int | None = None
    first: bool = False
    in_flight: int = 0
    others: tuple[Worth, ...] | None = None
    shares_steps: bool = False
    forced: int = 0
    source: str = ""
    lookup: tuple[float, ...] = ()
    match: int = 0
    predicted: int = 0
    network: str = ""
    deepest: int = 0
    rate: float = 0.0
    judged: bool = False
    steps: tuple[float, ...] = ()
    passes: tuple[float, ...] = ()
    measured: bool = False
    reading: float = 0.0
    unread: int = 0
    credit: float = 0.0
    stale: bool = False
    left: float = inf
    emitted: int = 0
    idle: int = 0

    @property
    def coming(self) -> float:
        """Tokens that the reply is still expected to emit."""
        return coming_tokens(self.left, self.emitted)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next round: `drafter` proposes at most `k` tokens. `release`: the network's draft rests.

    `shared`: other replies share the pass; `worth` tells them what its drafts are.
    """

    drafter: str = NONE.name
    k: int = 0
    reason: str = ""
    release: bool = False
    shared: bool = False
    worth: Worth = Worth()


Planner = Callable[[Situation], Plan]
"""`plan`, or what decides in its place."""


class Choice(NamedTuple):
    """A K, the plain steps of a round of it, and the tokens that it is expected to emit."""

    k: int = 0
    steps: float = 1.0
    tokens: float = 1.0

    @property
    def price(self) -> float:
        """Plain steps a token."""
        return self.steps / self.tokens

    @property
    def summary(self) -> str:
        return f"expected: {self.tokens:.1f} tokens in the time of {self.steps:.1f} plain ones"


def coming_tokens(left: float, emitted: int) -> float:
    """Tokens that a reply is still expected to emit, which may emit at most `left`."""
    return min(left, TYPICAL_TOKENS + emitted)


def cheapest(steps: Sequence[float], rates: Sequence[float], stake: float = inf) -> Choice:
    """The cheapest token of K = 0 … len(rates), where `steps`[K] cost at most `stake` more than a plain step."""
    rounds = enumerate(zip(steps[1:], expected_tokens(rates)[1:], strict=False), start=1)
    return min((Choice(), *(Choice(k, s, t) for k, (s, t) in rounds if s - 1 <= stake)), key=lambda c: c.price)


def plan(situation: Situation) -> Plan:
    """The next round. Law: equal situations have equal plans."""
    s = situation
    if s.others is not None:
        return plan_shared(s, s.others)
    if s.first:
        return plan_first(s)
    if s.forced and s.most:
        return Plan(FORCED.name, min(s.forced, s.most))
    chosen = plan_fixed(s, s.k) if s.k is not None else plan_auto(s)
    return replace(chosen, k=min(chosen.k, s.most)) if s.most else replace(chosen, drafter=NONE.name, k=0)


def plan_shared(s: Situation, others: Sequence[Worth]) -> Plan:
    """The round of a pass that replies share: all have as many rows as the longest draft, and pay for it together.

    A pass of B replies, each with a draft of up to K, has B (K + 1) rows, and costs what one reply's pass of so many
    does; drafts are made one after another, or in passes of B rows. The K is the one whose tokens cost least, all
    replies' together. A reply that drafts alone pays for the rows of all, so each tells what its drafts would be worth
    if all drafted as it does, whether it drafts or not: else nobody would begin.
    """
    undrafted = Plan(reason="requests share the pass", shared=True)
    if len(others) >= len(s.passes):  # more of them than rows of any pass whose cost is known
        return undrafted
    plain = hoped = Choice(0, s.passes[len(others)], 1.0 + len(others))
    best, drafter, k, told = shared_choice(s.passes, [Worth(), *others]), NONE.name, 0, Worth()
    for name, rates, drafts in offers(s):
        own = Worth(tuple(expected_tokens(rates)), drafts)
        reading = s.reading if name == s.network and s.unread > 1 else 0.0
        alike, choice = (shared_choice(s.passes, worths) for worths in ([own] * (1 + len(others)), [own, *others]))
        alike_pays, pays = ((plain.price - one.price) * s.coming >= ODDS * reading for one in (alike, choice))
        if alike_pays and alike.price < hoped.price and not k:
            hoped, told = alike, own
        if pays and choice.k and choice.price < best.price:
            best, drafter, k, told = choice, name, min(choice.k, len(own.tokens) - 1), own
    return replace(undrafted, drafter=drafter, k=k, worth=told)


def offers(s: Situation) -> Sequence[tuple[str, tuple[float, ...], tuple[float, ...]]]:
    """(drafter, the rates of its tokens, [K] plain steps that they take to draft) of all who could draft."""
    if s.first or not s.most or s.k == 0:
        return []
    most = s.most if s.k is None else min(s.most, s.k)
    if s.forced:
        return [(FORCED.name, (1.0,) * min(s.forced, most), (0.0,) * (most + 1))]
    found = [(s.source, s.lookup[: min(s.predicted or most, most)], (0.0,) * (most + 1))] if s.lookup else []
    if s.network and (deepest := min(s.deepest, most, len(s.steps) - 1)) > 0:
        sharers = 1 + len(s.others or ()) if s.shares_steps else 1
        part = s.passes[sharers - 1] / sharers  # of a step of all: more rows cost the draft what they cost the target
        drafts = (part * (whole - judged) for whole, judged in zip(s.steps, s.passes, strict=False))
        found.append((s.network, (s.rate,) * deepest, tuple(drafts)))
    return found


def shared_choice(passes: Sequence[float], worths: Sequence[Worth]) -> Choice:
    """The K that replies of these `worths` should have room for in a pass that they share; `passes`[n - 1]: n rows."""
    found = []
    for k in range(len(passes) // len(worths)):
        told = [worth.at(k) for worth in worths]
        steps = passes[len(worths) * (k + 1) - 1] + sum(steps for _, steps in told)
        found.append(Choice(k, steps, sum(tokens for tokens, _ in told)))
    return min(found, key=lambda choice: choice.price)


def plan_first(s: Situation) -> Plan:
    """What is known without a draft, as much as delays the first word by less than it saves of the whole.

    The first word waits for the pass's further rows, which save what its further tokens would cost plainly.
    """
    # No network: by simulation (35 chips and drafts, 32 tokens) it saved 0.28 plain steps and cost the first word 0.8,
    # 1.7, 8.4 after 16, 64, 400 tokens. Two Xeon cores, inflated pair, K 4, processor time, whole ÷ whole drafted so:
    # 1.053 (1.004–1.069, n 28) after 20 to 60 tokens, 84 ms saved, 74 later; after 400 1.013 (0.987–1.054), 40 and 233.
    if s.k is not None or not s.measured:
        return Plan()
    rates = (1.0,) * min(s.forced, s.most) or s.lookup[: min(s.predicted, s.most)]
    passes = enumerate(zip(s.passes, expected_tokens(rates), strict=False))
    k = max((k for k, (steps, tokens) in passes if steps - 1 < 1 - steps / tokens), default=0)
    if not k:
        return Plan()
    return Plan(FORCED.name, k, "the shape forces them") if s.forced else Plan(s.source, k, found_reason(s))


def plan_fixed(s: Situation, k: int) -> Plan:
    """The K that was asked for; a lookup takes the round where more of its tokens should be accepted."""
    looked_up = expected_tokens(s.lookup[:k])
    if looked_up[-1] > expected_tokens([s.rate] * k * bool(s.network))[-1]:
        return Plan(s.source, len(looked_up) - 1)
    return Plan(s.network, k) if s.network and k else Plan()


def plan_auto(s: Situation) -> Plan:
    """A prediction at once; else the network or a lookup, whose token costs least, or neither."""
    if s.predicted:
        return Plan(s.source, s.predicted, found_reason(s))
    drafted, price = plan_network(s) if s.deepest else (Plan(), 1.0)
    found = cheapest(s.passes, s.lookup)
    return Plan(s.source, found.k, found_reason(s)) if found.k and found.price < price else drafted


def found_reason(s: Situation) -> str:
    return f"the last {s.match} tokens occurred before"


def plan_network(s: Situation) -> tuple[Plan, float]:
    """The network's round, or a plain one, and plain steps a token of it."""
    deepest = min(s.deepest, s.most)
    best = cheapest(s.steps, [s.rate] * deepest)
    pays = (1 - best.price) * s.coming >= ODDS * s.reading
    if best.k and s.stale:
        return Plan(reason="measuring a plain step anew"), 1.0
    if best.k and (pays or s.unread <= 1):
        return Plan(s.network, best.k, best.summary), best.price
    stake = s.credit + SHARE * min(s.left, TYPICAL_TOKENS)
    tried = cheapest(s.steps, [max(s.rate, GOOD_RATE)] * deepest, stake)
    if tried.k and (1 - tried.price) * s.coming >= TRYING_ODDS * (tried.steps - 1 + s.reading):
        return Plan(s.network, tried.k, "trying whether drafting pays"), tried.price
    if not s.judged:
        reason = UNTRIED
    elif best.k:
        reason = f"short answer: the draft would read {s.unread} tokens, in the time of {s.reading:.0f} plain ones"
    else:
        reason = f"drafting does not pay: {percent(s.rate)} of judged tokens would be accepted"
    return Plan(reason=reason, release=s.idle >= RELEASE_TOKENS), 1.0
