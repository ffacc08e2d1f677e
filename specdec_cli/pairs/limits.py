"""The longest context, and the share of the memory that models may take (pure). Sizes in bytes, lengths in tokens."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_cli.core.kinds import drafting
from specdec_cli.core.request import Request

# Share of memory for models; the rest is for the graph, the tokenizer and the operating system.
HEADROOM = 0.92


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """The longest contexts, in tokens, that target and draft model were made for; None: no limit.

    `positions`: the target has learned so many positions, and none beyond them.
    """

    target: int | None = None
    draft: int | None = None
    positions: int | None = None

    def tokens(self, request: Request) -> int | None:
        """Tokens that prompt and answer may have together: --max-context, else the tightest of both models."""
        limits = (request.max_context or self._made_for(request), self.positions)
        return min((limit for limit in limits if limit is not None), default=None)

    def most(self, prompt_tokens: int, request: Request) -> int:
        """Tokens that prompt and answer may have together at most, with what is asked for."""
        limit, asked = self.tokens(request), prompt_tokens + request.max_tokens
        return asked if limit is None else min(asked, limit)

    def _made_for(self, request: Request) -> int | None:
        draft = self.draft if drafting(request.drafter, request.k).kind.uses_draft else None
        return min((limit for limit in (self.target, draft) if limit is not None), default=None)

    def warning(self, request: Request) -> str:
        """What to say of a --max-context beyond what the models were made for; empty where it is not."""
        made, asked = self._made_for(request), request.max_context
        if made is None or asked is None or asked <= made:
            return ""
        if self.positions is not None and asked > self.positions:
            return f"--max-context {asked} is cut to {self.positions}: the model has learned only that many positions"
        return f"--max-context {asked} exceeds the {made} tokens that the pair was made for; beyond them it may err"


def too_long(tokens: int | str, limit: int) -> str:
    """The message for a prompt that leaves no room for an answer; coding agents look for these words."""
    return f"prompt is too long: {tokens} tokens > {limit - 1} maximum"


def limit_bytes(available_bytes: int) -> int:
    """The share of the available memory that models may use."""
    return int(available_bytes * HEADROOM)
