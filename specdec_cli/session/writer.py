"""Rounds -> text. Law: the texts of all rounds and the tail join to the answer, however tokens and rounds split it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from specdec_cli.events import Finish, FinishReason, Round, RoundDone
from specdec_cli.models.repetition import Repetition
from specdec_cli.models.text import StopStrings
from specdec_cli.models.tokenizer import TextStream, Tokenizer
from specdec_cli.stats import Stats


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
    ) -> None:
        """`ends` are tokens that end the answer beside the tokenizer's own."""
        self._stream, self._stops, self._tokenizer = stream, stops, tokenizer
        self._ends = tokenizer.stop_tokens.union(ends)
        self._repetition = Repetition(stop_repetition)
        self._tokens: list[int] = []
        self._texts: list[str] = []
        self.stopped: FinishReason | None = None
        self._silent = False

    def write(self, round: Round) -> RoundDone:
        """The round with its text; cut after the token that completed a stop string or a loop."""
        text, kept = "", 0
        for token in round.emitted:
            kept += 1
            if token in self._ends:
                self.stopped = "stop"
                break
            self._tokens.append(token)
            shown, self._silent = self._stops.feed(self._stream.step(token))
            text += shown
            if self._silent:
                self.stopped = "stop"
                break
            if self._repetition.feed(token):
                self.stopped = "repetition"
                break
        self._texts.append(text)
        pieces = tuple(map(self._tokenizer.piece, round.draft))
        cut = replace(round, emitted=round.emitted[:kept], logprobs=round.logprobs[:kept])
        return RoundDone(round=cut, pieces=pieces, next_piece=self._tokenizer.piece(round.next), text=text)

    def finish(self, reason: FinishReason, stats: Stats, complete: bool | None = None) -> Finish:
        """The end of the reply; what was held back for a stop string or a character comes as `text_tail`."""
        tail = ""
        if not self._silent:
            shown, hit = self._stops.feed(self._stream.finish())
            tail = shown if hit else shown + self._stops.finish()
        text = "".join(self._texts) + tail
        return Finish(
            reason=reason,
            text=text,
            tokens=tuple(self._tokens),
            text_tail=tail,
            stats=stats.to_dict(),
            complete=complete,
        )
