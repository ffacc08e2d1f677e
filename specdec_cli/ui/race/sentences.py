"""What a race found, in words. Law: a ratio comes with its interval; a loss is said like a win."""

from __future__ import annotations

import math

from specdec_cli import gain
from specdec_cli.audit.divergence import Divergence, Token
from specdec_cli.format import count
from specdec_cli.race.events import DRAFTED, PLAIN, Measured, RaceFinish
from specdec_cli.race.state import LaneState, RaceState
from specdec_cli.ui.summary import verdict_style
from specdec_cli.ui.terminal import safe, visible

NAMES = {PLAIN: "plain", DRAFTED: "drafted"}
TITLES = {PLAIN: "plain decoding", DRAFTED: "drafted"}
# Nearer than this to 1, nobody is ahead.
NECK = 0.02


def ratio(found: Measured) -> str:
    """ "1.62× faster (1.55–1.70)" and its kin; without an interval nothing is called faster."""
    if found.low is None or found.high is None:
        return gain.TOO_FEW
    return gain.ratio_words(found.speedup, found.low, found.high)


def ratio_style(finish: RaceFinish | None) -> str:
    """The colour of the ratio; bold while there is none."""
    found = finish.measured if finish else None
    if found is None or found.low is None or found.high is None:
        return "bold"
    return verdict_style(gain.verdict(found.low, found.high))


def headline(state: RaceState) -> str:
    """Who is ahead, and by how much; at the end the ratio."""
    finish = state.finish
    if finish is not None:
        if finish.reason == "interrupted":
            return "interrupted"
        return ratio(finish.measured) if finish.measured else "nothing was written"
    if state.drafted.prefill_seconds is None:
        return "reading the prompt"
    return lead(state.lead)


def lead(found: float | None) -> str:
    """ "drafted 1.62× ahead"."""
    if found is None:
        return "off they go"
    if abs(found - 1) < NECK:
        return "neck and neck"
    return f"drafted {found:.2f}× ahead" if found > 1 else f"plain {1 / found:.2f}× ahead"


def same_text(finish: RaceFinish) -> str:
    """ "same text ✓", or where the texts part."""
    if finish.divergence is not None:
        return parting(finish.divergence)
    if finish.reason == "interrupted":
        return "same text as far as both went ✓"
    return "same text ✓"


def parting(found: Divergence) -> str:
    """The first difference with its gap, and whether rounding explains it."""
    plain, drafted = _named(found.plain), _named(found.specdec)
    where = f"token {found.position + 1} is {drafted}, in plain decoding {plain}"
    if not math.isfinite(found.gap):
        return f"the texts differ: {where}, and no rounding does that"
    sign = "≤" if found.near_tie else ">"
    judged = "a near-tie" if found.near_tie else "more than a near-tie"
    return f"{judged}: {where}, gap {found.gap:.2g} {sign} {found.limit:.2g}"


def passes(finish: RaceFinish) -> str:
    """ "41 target passes for 100 tokens, against 100"."""
    (plain, drafted), (_, tokens) = finish.passes, finish.tokens
    return f"{count(drafted, 'target pass')} for {count(tokens, 'token')}, against {plain}"


def verdict(finish: RaceFinish) -> list[str]:
    """The last words: same text, the ratio with both times, passes."""
    found = finish.measured
    if found is None:
        return ["nothing was written"]
    times = f"{found.drafted_seconds:.2f} s instead of {found.plain_seconds:.2f} s"
    some = "" if found.tokens == max(finish.tokens) else f" for the first {count(found.tokens, 'token')}"
    return [same_text(finish), f"{ratio(found)}: {times}{some}", passes(finish)]


def settings(state: RaceState) -> list[str]:
    """The pair, who drafts, K and rule."""
    start = state.drafted.start
    name = safe(state.start.pair if state.start else "").replace("\n", " ")
    if start is None:
        return [name]
    sampled = [start.rule, f"temperature {start.temperature:g}", f"seed {start.seed}"] if start.temperature else []
    drafter = [] if start.drafter == "model" else [start.drafter]
    return [name, *drafter, f"K {start.k}", *sampled]


def figures(lane: LaneState, seconds: float) -> tuple[int, int, float]:
    """(tokens, passes, the lane's seconds) at that compute time."""
    done = lane.rounds_by(seconds)
    ended = lane.done and done == len(lane.rounds)
    return lane.tokens_by(seconds), done, lane.last_seconds if ended else seconds


def _named(token: Token | None) -> str:
    return "nothing" if token is None else f"{visible(token.text)} ({token.id})"
