"""Texts -> the ids that a model reads, and rounds -> text. No weight is needed, so any thread may do it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdec_cli.core.errors import DoesNotFit, UsageError
from specdec_cli.core.events import Finish, FinishReason, Round, RoundDone
from specdec_cli.core.stats import Stats
from specdec_cli.core.template import NO_VALUES, TemplateValues
from specdec_cli.models.text import Repetition, StopStrings
from specdec_cli.models.tokenizer import Between, TextStream, Tokenizer, unwatched
from specdec_cli.models.turns import Message

# A prediction may be so many contexts long: an answer resembles a part of it. A context without end counts as this.
MOST_PREDICTED, ENDLESS_TOKENS = 4, 1 << 18


def conversation_tokens(
    tokenizer: Tokenizer,
    name: str,
    messages: Sequence[Message],
    values: TemplateValues = NO_VALUES,
    tools: Sequence[Mapping[str, Any]] = (),
    between: Between = unwatched,
) -> list[int]:
    """As `LoadedPair.message_tokens`, of the target `name`; `between` is that of `Tokenizer.encode`."""
    if tokenizer.has_template:
        return tokenizer.render(messages, values, tools, between)
    if tools:
        raise UsageError(f"{name} has no chat template, and {len(tools)} tools need one", "use an instruct model")
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


class Writer:
    """Turns rounds into text, token by token; cuts at stop tokens, stop strings and loops.

    `stopped` says which of them ended the answer, None while it goes on.
    """

    def __init__(
        self,
        stream: TextStream,
        stops: StopStrings,
        tokenizer: Tokenizer,
        stop_repetition: int = 0,
        ends: Collection[int] = (),
        least: int = 0,
    ) -> None:
        """`ends` are the tokens that end the answer; among its first `least` tokens no stop string is looked for."""
        self._stream, self._stops, self._tokenizer = stream, stops, tokenizer
        self._ends, self._least = ends, least
        self._repetition = Repetition(stop_repetition)
        self._tokens: list[int] = []
        self._texts: list[str] = []
        self.stopped: FinishReason | None = None
        self._silent = False

    def write(self, round: Round) -> RoundDone:
        """The round with its text; cut after the token that completed a stop string or a loop."""
        text, texts = "", list[str]()
        for token in round.emitted:
            texts.append("")
            if token in self._ends:
                self.stopped = "stop"
                break
            self._tokens.append(token)
            texts[-1] = shown = self._stream.step(token)
            if len(self._tokens) > self._least:
                shown, self._silent = self._stops.feed(shown)
            text += shown
            if self._silent:
                self.stopped = "stop"
                break
            if self._repetition.feed(token):
                self.stopped = "repetition"
                break
        self._texts.append(text)
        pieces, next_piece = tuple(map(self._tokenizer.piece, round.draft)), self._tokenizer.piece(round.next)
        cut = replace(round, emitted=round.emitted[: len(texts)], logprobs=round.logprobs[: len(texts)])
        return RoundDone(round=cut, pieces=pieces, next_piece=next_piece, text=text, texts=tuple(texts))

    def finish(self, reason: FinishReason, stats: Stats, complete: bool | None = None) -> Finish:
        """The end of the reply; what was held back for a stop string or a character comes as `text_tail`."""
        tail = ""
        if not self._silent:
            shown, hit = self._stops.feed(self._stream.finish())
            tail = shown if hit else shown + self._stops.finish()
        text = "".join(self._texts) + tail
        tokens, values = tuple(self._tokens), stats.to_dict()
        return Finish(reason=reason, text=text, tokens=tokens, text_tail=tail, stats=values, complete=complete)
