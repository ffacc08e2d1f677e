"""What a busy desk says of itself."""

from __future__ import annotations

from specdec_cli.apps.serve.job import Job, JobHandle, SchedulerStatus
from specdec_cli.core.events import Prefill, Reading, Round, RoundDone
from specdec_cli.core.request import Request
from specdec_cli.core.stats import ChatStats, Stats


def rounds(*accepted: int | None) -> tuple[RoundDone, ...]:
    """Rounds that drafted 3 tokens, of which so many were accepted; None: nothing was drafted."""
    made = []
    for index, count in enumerate(accepted):
        draft = () if count is None else (7, 8, 9)
        done = Round(index, "model", draft, count or 0, 5, (*draft[: count or 0], 5), 0.001, 0.01)
        made.append(RoundDone(done, tuple("secret" for _ in draft), "secret", "secret"))
    return tuple(made)


def asked(endpoint: str, tokens: int, came_at: float, *events) -> JobHandle:
    handle = JobHandle(Job((5,) * tokens, Request(), endpoint=endpoint), lambda event: None, came_at)
    for event in events:
        handle.notify(event, 10.0)
    return handle


def answering(came_at: float = 6.6, rounds: tuple[RoundDone, ...] = rounds(3, 2, 1, 0, None)) -> JobHandle:
    return asked("chat/completions", 1204, came_at, Prefill(1204, 1020, 0.1), *rounds)


READS = asked("messages", 12_000, 1.0, Reading("target", 4096, 12_000))
WAITS = asked("responses", 812, 6.8)
ROUNDS = Stats(1400, 3402, 3000, 1830, 500, [1000] * 3, [900, 600, 330], [100] * 10, decode_seconds=35.0)
TOTALS = ChatStats(38, 39_364, 31_244, 9.0, 3402, ROUNDS)
BUSY = SchedulerStatus(
    now=10.1,
    running=(answering(), READS),
    waiting=(WAITS,),
    conversations=2,
    most_conversations=16,
    cache_bytes=26_900_000,
    budget_bytes=12_000_000_000,
    totals=TOTALS,
    jobs=41,
    failed=1,
    cancelled=2,
)
IDLE = SchedulerStatus(most_conversations=16, budget_bytes=12_000_000_000)
