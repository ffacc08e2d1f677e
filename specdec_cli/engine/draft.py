"""Guessed tokens on their way to the target. They stay on the device until the round's one read-back.

Letters: K drafted tokens, V the target's vocabulary size.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from specdec_cli.core.kinds import NONE

NO_TOKENS = mx.array([], dtype=mx.int32)


@dataclass(frozen=True, slots=True)
class Draft:
    """Guessed tokens [K] on the device, not read back; `log_q` [K, V] is what they were drawn from, None if one-hot.

    `drafter` is the name of who guessed.
    """

    tokens: mx.array
    log_q: mx.array | None = None
    drafter: str = NONE.name

    def __len__(self) -> int:
        return int(self.tokens.shape[0])


NOTHING = Draft(NO_TOKENS)
