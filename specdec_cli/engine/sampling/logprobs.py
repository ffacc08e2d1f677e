"""Log-probabilities of emitted tokens, on request. Law: they are the target's own, before any sampling setting.

Letters: K drafted tokens, N alternatives, V the target's vocabulary size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from specdec_cli.engine.sampling.acceptance import Verdict
from specdec_cli.engine.sampling.cuts import top_tokens
from specdec_cli.events import TokenLogprob


@dataclass(frozen=True, slots=True, eq=False)
class Logprobs:
    """Of the K + 1 places of a pass, on the device: the emitted token's [K + 1], and the N best ids and values."""

    chosen: mx.array
    top_ids: mx.array
    top_values: mx.array

    def read(self, emitted: tuple[int, ...]) -> tuple[TokenLogprob, ...]:
        """One for each emitted token; waits for the device."""
        # mlx types every nesting that `tolist` may give.
        chosen = cast(list[float], self.chosen.tolist())
        ids, values = cast(list[list[int]], self.top_ids.tolist()), cast(list[list[float]], self.top_values.tolist())
        return tuple(
            TokenLogprob(token, chosen[i], tuple(zip(ids[i], values[i], strict=True)))
            for i, token in enumerate(emitted)
        )


def logprobs(logits: mx.array, draft_tokens: mx.array, verdict: Verdict, top: int) -> Logprobs:
    """Of `logits` [K + 1, V]: place i holds draft token i, but `verdict.next` where the draft was not accepted."""
    logits = logits.astype(mx.float32)
    log_p = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    places = mx.arange(log_p.shape[0])
    drafted = mx.concatenate([draft_tokens.astype(mx.int32), verdict.next[None].astype(mx.int32)])
    emitted = mx.where(places == verdict.accepted, verdict.next, drafted)
    chosen = mx.take_along_axis(log_p, emitted[:, None], axis=-1)[:, 0]
    best = top_tokens(log_p, top)
    return Logprobs(chosen, best, mx.take_along_axis(log_p, best, axis=-1))
