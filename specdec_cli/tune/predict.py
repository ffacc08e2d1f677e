"""What is to be gained on these documents: rounds of K on the target's own greedy words after a piece of each.

Useful by itself: a draft that is right nearly always, or whose guesses are far off, need not be trained. A document is
the unit of every interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import cast

from specdec_cli.bench.live import plain_tokens
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import RoundDone
from specdec_cli.core.kinds import MODEL
from specdec_cli.core.request import Request
from specdec_cli.core.stats import Stats
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.training import best_of_draft
from specdec_cli.session.session import Session
from specdec_cli.tune.documents import MORE, SAID, Document
from specdec_cli.tune.figures import Measured

# Guesses among which the target's token counts as near; documents whose plain steps are timed.
NEAR, TIMED = 4, 6
# Pieces of all documents together.
PIECES = 64


def measure(
    session: Session, documents: Sequence[Document], k: int, seed: int, report: Callable[[int, int], None]
) -> Measured:
    """Rounds of `k` after pieces of each document; every call with the same arguments reads the same pieces.

    Raises: UsageError where the target says nothing after any of them.
    """
    request = Request(max_tokens=SAID, k=k, drafter=MODEL.name, sampling={"temperature": 0.0})
    draft, found, near = cast(CachedModel, session.slot.draft), dict[str, Stats](), 0
    plain, drafted, verified = list[float](), list[float](), list[float]()
    for number, document in enumerate(documents):
        report(number, len(documents))
        stats = found.setdefault(document.name, Stats())
        for piece in document.pieces(max(PIECES // len(documents), 1), seed):
            session.slot.forget()
            said, rejected = list(piece), list[tuple[int, int]]()
            for event in session.reply(piece, request, raw=True):
                if not isinstance(event, RoundDone):
                    continue
                round = event.round
                if round.rejected is not None:
                    rejected.append((len(said) + round.accepted, round.next))
                if round.index > 0:  # the first pass is the prompt's, and drafts nothing
                    stats.fold(round)
                if len(round.draft) == k:
                    drafted.append(round.draft_seconds)
                    verified.append(round.verify_seconds)
                said += round.emitted
            best = best_of_draft(draft, said, NEAR)
            near += sum(token in best[at - 1] for at, token in rejected)
        if number < TIMED:
            session.slot.forget()
            plain += [b - a for a, b in pairwise(session.clock() for _ in plain_tokens(session, piece, request))]
    if not (plain and drafted):
        raise UsageError(f"the target ends at once after each of {len(documents)} documents", MORE)
    said_more = {name: stats for name, stats in found.items() if stats.rounds}
    return Measured(k, said_more, near, median(plain), median(drafted), median(verified))
