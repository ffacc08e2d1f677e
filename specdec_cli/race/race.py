"""A race from its plan to its verdict. Law: yields events, prints nothing; both lanes share the weights alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from specdec_cli.engine import device
from specdec_cli.race.events import DRAFTED, PLAIN, LaneName, RaceEvent, RaceFinish, RaceStart
from specdec_cli.race.lanes import Clock, Lane, turns
from specdec_cli.race.measured import measured
from specdec_cli.race.plan import RacePlan
from specdec_cli.race.state import RaceState
from specdec_cli.race.texts import common_tokens, divergence
from specdec_cli.request import Request
from specdec_cli.session.meter import Stopwatch
from specdec_cli.session.session import LoadedPair

Cancelled = Callable[[], bool]
# Tokens of a reply to the prompt's last tokens that is thrown away: kernels are compiled and pages read in it.
WARM_PROMPT, WARM_TOKENS = 64, 16


def race(
    pair: LoadedPair, plan: RacePlan, cancelled: Cancelled = lambda: False, clock: Clock = time.perf_counter
) -> Iterator[RaceEvent]:
    """RaceStart, each lane's own events as it computes them, RaceFinish.

    Raises: as `Session.reply`.
    """
    yield RaceStart(pair.pair.name, plan.prompt, plan.raw, device.device_name(), plan.turn_seconds)
    _warm_up(pair, plan, cancelled)
    state = RaceState()
    lanes = [_lane(pair, plan, PLAIN, plan.plain, cancelled, clock)]
    lanes.append(_lane(pair, plan, DRAFTED, plan.request, cancelled, clock))
    for steps in turns(lanes, plan.turn_seconds):
        for step in steps:
            state = state.apply(step)
            yield step
    yield _finish(pair, plan, state)


def _lane(
    pair: LoadedPair, plan: RacePlan, name: LaneName, request: Request, cancelled: Cancelled, clock: Clock
) -> Lane:
    watch = Stopwatch(clock)
    events = pair.session(clock=watch).reply(plan.ids, request, cancelled, plan.raw)
    return Lane(name, events, watch, device.settle, pair.tokenizer.stop_tokens)


def _warm_up(pair: LoadedPair, plan: RacePlan, cancelled: Cancelled) -> None:
    """Both kinds of decoding once: the first reply of a process is slower than any other."""
    for request in (plan.plain, plan.request):
        short = replace(request, max_tokens=min(WARM_TOKENS, request.max_tokens))
        for _ in pair.session().reply(plan.ids[-WARM_PROMPT:], short, cancelled, plan.raw):
            pass


def _finish(pair: LoadedPair, plan: RacePlan, state: RaceState) -> RaceFinish:
    """The verdict. Texts that were broken off are compared as far as both go."""
    plain, drafted = state.plain, state.drafted
    interrupted = any(lane.finish is None or lane.finish.reason == "interrupted" for lane in (plain, drafted))
    shorter = min(len(plain.ids), len(drafted.ids))
    common = common_tokens(plain.ids[:shorter], drafted.ids[:shorter]) if interrupted else None
    different = None
    if common is None:
        common = common_tokens(plain.ids, drafted.ids)
        different = divergence(pair.session(), plan, plain.ids, drafted.ids)
    ks = [len(done.round.draft) for done in drafted.rounds]
    once = [done.round.draft_prefill_seconds for done in drafted.rounds]
    return RaceFinish(
        reason="interrupted" if interrupted else "done",
        tokens=(len(plain.ids), len(drafted.ids)),
        passes=(len(plain.rounds), len(drafted.rounds)),
        measured=measured(plain.marks, drafted.marks, common, ks, once),
        divergence=different,
    )
