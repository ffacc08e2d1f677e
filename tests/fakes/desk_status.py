"""What a busy desk says of itself."""

from __future__ import annotations

from specdec_cli.events import Reading, Round, RoundDone
from specdec_cli.serve.status import ConversationStatus, JobStatus, SchedulerStatus, Totals


def rounds(*accepted: int | None) -> tuple[RoundDone, ...]:
    """Rounds that drafted 3 tokens, of which so many were accepted; None: nothing was drafted."""
    made = []
    for index, count in enumerate(accepted):
        draft = () if count is None else (7, 8, 9)
        done = Round(index, "model", draft, count or 0, 5, (*draft[: count or 0], 5), 0.001, 0.01)
        made.append(RoundDone(done, tuple("secret" for _ in draft), "secret", "secret"))
    return tuple(made)


def answering(seconds: float = 3.4, **more) -> JobStatus:
    values = {"cached_tokens": 1020, "generated_tokens": 10, "draft_tokens": 12, "accepted_tokens": 6, "passes": 5}
    values |= {"tokens_per_second": 118.3, "rounds": rounds(3, 2, 1, 0, None)} | more
    return JobStatus("chat/completions", 0, 1204, seconds, 184, **values)


READS = JobStatus("messages", 0, 12_000, 9.0, reading=Reading("target", 4096, 12_000))
WAITS = JobStatus("responses", 0, 812, 3.2)
SLOTS = (
    ConversationStatus(1332, 24_100_000, 0.2, True),
    ConversationStatus(185, 2_100_000, 12.7, False),
    ConversationStatus(57, 700_000, 3000.0, False, prefix_only=True),
)
TOTALS = Totals(
    jobs=41,
    failed=1,
    cancelled=2,
    prompt_tokens=39_364,
    cached_tokens=31_244,
    generated_tokens=3402,
    timed_tokens=3402,
    timed_seconds=35.0,
    passes=1400,
    drafts=1000,
    draft_tokens=3000,
    accepted_tokens=1830,
    drafted_per_position=(1000, 1000, 1000),
    accepted_per_position=(900, 600, 330),
)
BUSY = SchedulerStatus(True, (answering(), READS), (WAITS,), SLOTS, 16, 26_900_000, 12_000_000_000, TOTALS)
IDLE = SchedulerStatus(True, most_conversations=16, budget_bytes=12_000_000_000)
