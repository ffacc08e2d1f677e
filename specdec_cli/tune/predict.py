"""What is to be gained on these documents: rounds of K on the target's own greedy words after a piece of each.

Useful by itself: a draft that is right nearly always, or whose guesses are far off, need not be trained. A document is
the unit of every interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import inf
from statistics import fmean, median

from specdec_cli.bench import prompts as prompts_of
from specdec_cli.bench.live import plain_tokens
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import RoundDone
from specdec_cli.core.kinds import MODEL, DrafterKind
from specdec_cli.core.request import Request
from specdec_cli.core.stats import Stats
from specdec_cli.engine.training import best_guesses
from specdec_cli.session.session import LoadedPair, Session
from specdec_cli.tune.documents import MORE, SAID, Document
from specdec_cli.tune.figures import Measured

# Guesses among which the target's token counts as near; documents whose rounds and plain steps are timed, in turns.
NEAR, TIMED = 4, 6
# Of each kind of bench's prompts.
GENERAL = 2
# Pieces of all documents together.
PIECES = 64


def pieces_of(documents: Sequence[Document], seed: int) -> dict[str, list[list[int]]]:
    """Pieces of each of `documents` by its name, PIECES together; the same ones for the same seed."""
    return {one.name: one.pieces(max(PIECES // len(documents), 1), seed) for one in documents}


def general_prompts(pair: LoadedPair) -> dict[str, list[list[int]]]:
    """Bench's prompts that the models can read: what a drafter that was tuned on other text may have forgotten."""
    prompts = [prompt for kind in prompts_of.KINDS for prompt in prompts_of.load([kind])[:GENERAL]]
    found = {str(one.id): pair.message_tokens([{"role": "user", "content": one.text}]) for one in prompts}
    longest = pair.context.tokens(Request()) or inf
    return {name: [ids] for name, ids in found.items() if len(ids) + SAID < longest}


def measure(
    session: Session,
    pieces: Mapping[str, list[list[int]]],
    k: int,
    report: Callable[[int, int], None],
    drafter: DrafterKind = MODEL,
) -> Measured:
    """Rounds of `k` after the `pieces` of each document. Seconds are medians; of lookups, which draft up to `k`, means.

    Raises: UsageError where the target says nothing after any of them.
    """
    request = Request(max_tokens=SAID, k=k, drafter=drafter.name, sampling={"temperature": 0.0})
    network, middle = (None, fmean) if drafter.looks_up else (session.slot.draft, median)
    slot, found, every, near = session.slot, dict[str, Stats](), Stats(), 0
    plain, drafted, verified = list[float](), list[float](), list[float]()
    for number, (name, prompts) in enumerate(pieces.items()):
        report(number, len(pieces))
        stats = found.setdefault(name, Stats())
        for piece in prompts:
            slot.forget()
            said, rejected = list(piece), list[tuple[int, int]]()
            for event in session.reply(piece, request, raw=True):
                if not isinstance(event, RoundDone):
                    continue
                round = event.round
                if round.rejected is not None:
                    rejected.append((len(said) + round.accepted, round.next))
                if round.index > 0:  # the first pass is the prompt's, and drafts nothing
                    stats.fold(round)
                    every.fold(round)
                if number < TIMED and (len(round.draft) == k if network else round.index > 0):
                    drafted.append(round.draft_seconds)
                    verified.append(round.verify_seconds)
                said += round.emitted
            best = best_guesses(slot.target, network, said, NEAR) if network else []
            near += sum(token in best[at - 1] for at, token in rejected if best)
        if number < TIMED:
            slot.forget()
            plain += [b - a for a, b in pairwise(session.clock() for _ in plain_tokens(session, piece, request))]
    if not (plain and drafted):
        raise UsageError(f"the target ends at once after each of {len(pieces)} documents", MORE)
    said_more = {name: stats for name, stats in found.items() if stats.rounds}
    seconds = median(plain), middle(drafted), middle(verified)
    return Measured(k, said_more, near, *seconds, tuple(every.acceptance_per_position))
