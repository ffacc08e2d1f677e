"""What is to be gained on these documents: rounds of K on the target's own greedy words after a piece of each.

Useful by itself: a draft that is right nearly always, or whose guesses are far off, need not be trained. A document is
the unit of every interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from math import inf
from statistics import fmean, median

from specdec_cli.apps.tune.documents import MORE, SAID, Document, in_turns
from specdec_cli.apps.tune.figures import DocumentRounds, Measured
from specdec_cli.core.errors import UsageError
from specdec_cli.core.events import RoundDone
from specdec_cli.core.kinds import MODEL, DrafterKind
from specdec_cli.core.request import Request
from specdec_cli.core.stats import Stats
from specdec_cli.engine.training import best_guesses
from specdec_cli.measure import prompts as prompts_of
from specdec_cli.measure.plain import plain_tokens
from specdec_cli.session.session import LoadedPair, Session

# Guesses among which the target's token counts as near.
NEAR = 4
# Of each kind of bench's prompts.
GENERAL = 2


def pieces_of(documents: Sequence[Document], many: int, seed: int) -> dict[str, list[list[int]]]:
    """So `many` pieces of each of `documents` by its name; the same ones for the same seed."""
    return {one.name: one.pieces(many, seed) for one in documents}


def general_prompts(pair: LoadedPair) -> dict[str, list[list[int]]]:
    """Bench's prompts that the models can read: what a drafter that was tuned on other text may have forgotten.

    The kinds take turns.
    """
    prompts = in_turns(prompts_of.load([kind])[:GENERAL] for kind in prompts_of.KINDS)
    found = {str(one.id): pair.message_tokens([{"role": "user", "content": one.text}]) for one in prompts}
    longest = pair.context.tokens(Request()) or inf
    return {name: [ids] for name, ids in found.items() if len(ids) + SAID < longest}


def measure(
    session: Session,
    pieces: Sequence[list[int]],
    words: int,
    k: int,
    drafter: DrafterKind = MODEL,
    timed: bool = True,
) -> DocumentRounds:
    """Rounds of `k` for so many `words` after the `pieces` of a document; if `timed`, and plain ones after the last."""
    request = Request(max_tokens=words, k=k, drafter=drafter.name, sampling={"temperature": 0.0})
    network, slot = None if drafter.looks_up else session.slot.draft, session.slot
    stats, near, plain, drafted, verified = Stats(), 0, list[float](), list[float](), list[float]()
    for piece in pieces:
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
            if timed and (len(round.draft) == k if network else round.index > 0):
                drafted.append(round.draft_seconds)
                verified.append(round.verify_seconds)
            said += round.emitted
        best = best_guesses(slot.target, network, said, NEAR) if network else []
        near += sum(token in best[at - 1] for at, token in rejected if best)
    if timed:
        slot.forget()
        plain += [b - a for a, b in pairwise(session.clock() for _ in plain_tokens(session, piece, request))]
    return DocumentRounds(stats, near, plain, drafted, verified)


def measured(found: Mapping[str, DocumentRounds], k: int, drafter: DrafterKind = MODEL) -> Measured:
    """What was `found` by document, together. Seconds are medians; of lookups, which draft up to `k`, means.

    Raises: UsageError where the target says nothing after any of them.
    """
    every, middle = found.values(), fmean if drafter.looks_up else median
    plain, drafted = [*chain(*(one.plain for one in every))], [*chain(*(one.drafted for one in every))]
    if not (plain and drafted):
        raise UsageError(f"the target ends at once after each of {len(found)} documents", MORE)
    said_more = {name: one.stats for name, one in found.items() if one.stats.rounds}
    near, verify_seconds = sum(one.near for one in every), middle(chain(*(one.verified for one in every)))
    return Measured(k, said_more, near, median(plain), middle(drafted), verify_seconds)
