"""How many tokens drafts are scored over. Law: by the bytes that a step reads and the target's own words, else all.

A smaller output head makes a drafted token cheaper, and never guesses the tokens that it lacks. What that gains is S(K)
at the best K, at typical costs of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specdec_cli import gain as speedup
from specdec_cli.engine.heads.agreement import Text
from specdec_cli.engine.heads.cached import Head
from specdec_cli.engine.heads.shortlist import Shortlist
from specdec_cli.engine.model import CachedModel

# Parts of the vocabulary that are tried; one with fewer tokens than LEAST costs next to nothing anyway.
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
LEAST = 8192
# A gain that small is not worth a draft's rarer words.
WORTH = 1.02
KS = range(1, 5)


def best_shortlist(
    head: Head, target: CachedModel, texts: Sequence[Text], acceptance: float, always: Iterable[int]
) -> Shortlist | None:
    """What `head`, whose guesses are right that often, should draft from; None for the whole vocabulary.

    `texts` are the target's own; tokens of `always` are in every list.
    """
    readout, always = head.readout, tuple(always)
    sizes = [round(share * readout.vocab_size) for share in SHARES if share * readout.vocab_size >= LEAST]
    best, most = None, WORTH * gain(acceptance, head.bytes_over(None) / target.step_bytes)
    for shortlist in [Shortlist(readout, size, always) for size in sizes]:
        right = acceptance * coverage(texts, shortlist.first, always)
        found = gain(right, head.bytes_over(shortlist) / target.step_bytes)
        if found > most:
            best, most = shortlist, found
    return best if best and best.proven else None


def gain(acceptance: float, draft_step: float) -> float:
    """S at the best K, for a draft step of so many plain steps; rows cost what they usually do."""
    rates = ((speedup.tokens_per_round(acceptance, k), 1 + k * speedup.TYPICAL_ROW_COST, k) for k in KS)
    return max(speedup.speedup(tokens, speedup.round_steps(k, draft_step, rows)) for tokens, rows, k in rates)


def coverage(texts: Sequence[Text], first: int, always: Iterable[int]) -> float:
    """The share of the target's own words that a draft over the `first` tokens can have, less one for small numbers."""
    covered, words = 0, 1
    for text in texts:
        seen = {*always, *text.context[: text.begin]}
        for token in text.context[text.begin :]:
            covered += token < first or token in seen
            seen.add(token)
        words += len(text.context) - text.begin
    return covered / words
