"""Texts -> the ids that a model reads. Law: no weight is needed, so that a server's other threads may do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdec_cli.errors import DoesNotFit, UsageError
from specdec_cli.models.pieces import Between, unwatched
from specdec_cli.models.tokenizer import Message, Tokenizer

# A prediction may be so many contexts long: an answer resembles a part of it. A context without end counts as this.
MOST_PREDICTED, ENDLESS_TOKENS = 4, 1 << 18


def conversation_tokens(
    tokenizer: Tokenizer,
    name: str,
    messages: Sequence[Message],
    thinks: bool = True,
    tools: Sequence[Mapping[str, Any]] = (),
    between: Between = unwatched,
) -> list[int]:
    """As `LoadedPair.message_tokens`, of the target `name`; `between` is that of `Tokenizer.encode`."""
    if tokenizer.has_template:
        return tokenizer.render(messages, thinks, tools, between)
    if tools:
        raise UsageError(f"{name} has no chat template, and {len(tools)} tools need one", "take an instruct model")
    return tokenizer.join(messages, between)


def predicted_tokens(
    tokenizer: Tokenizer, text: str, context_limit: int | None, between: Between = unwatched
) -> tuple[int, ...]:
    """Ids of a text that an answer may resemble; `between` is that of `Tokenizer.encode`.

    Raises: DoesNotFit for a text of which no answer could use the most part.
    """
    most = MOST_PREDICTED * (context_limit or ENDLESS_TOKENS)

    def look(tokens: int) -> None:
        between(tokens)
        if tokens > most:
            raise DoesNotFit(
                f"the prediction is too long: at least {tokens} tokens > {most} maximum",
                "predict the part that the answer will resemble",
            )

    ids = tokenizer.continuation(text, look)
    look(len(ids))
    return tuple(ids)
