"""A loaded pair, taken apart for the bench. Law: whatever is measured is the product's own loop or mlx-lm's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from specdec_cli.bench.sweep import Cancelled
from specdec_cli.engine import teacher_forcing as rehearsal
from specdec_cli.engine.baseline import baseline
from specdec_cli.engine.drafters.registry import DRAFTERS
from specdec_cli.engine.load import load, require_runnable, require_verifiable
from specdec_cli.hub import locate
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.vocab import require_same_ids
from specdec_cli.request import Request
from specdec_cli.session.session import Session

# Turns of cost rounds behind each prompt.
TURNS = 2


class BenchSession(Session):
    """A session that can also be taken apart."""

    @classmethod
    def of(cls, session: Session) -> BenchSession:
        """The same models."""
        models = session._target, session._draft, session._tokenizer
        return cls(session.names, *models, session._generation_config, session._clock)

    def beside(self, name: str, revision: str | None = None) -> BenchSession:
        """The same target with another draft, its weights read from `name`.

        Raises: NotAvailable, Refused.
        """
        checkpoint = read_checkpoint(locate(name, revision), name)
        require_runnable(checkpoint, None)
        require_verifiable(checkpoint)
        other = Tokenizer.load(checkpoint.folder, checkpoint.name, checkpoint.config)
        require_same_ids(self._tokenizer.table(), other.table(), self.names[0], checkpoint.name)
        names = self.names[0], checkpoint.name
        return BenchSession(
            names, self._target, load(checkpoint, None), self._tokenizer, self._generation_config, self._clock
        )

    @property
    def caches(self) -> Mapping[str, tuple[str, ...]]:
        """The kinds of caches of the target."""
        return {"target": self._target.cache_kinds}

    @property
    def stop_tokens(self) -> frozenset[int]:
        return self._tokenizer.stop_tokens

    def forget(self) -> None:
        """Both caches are empty again."""
        for model in (self._target, self._draft):
            if model is not None:
                model.commit((), 0)

    def plain_texts(self, prompt: Sequence[int], request: Request) -> Iterator[int]:
        """mlx-lm's plain decoding, token by token, each of them detokenized as an answer's are."""
        stream = self._tokenizer.stream(())
        for token in self._plain_tokens(prompt, request):
            if token not in self.stop_tokens:
                stream.step(token)
            yield token

    def _plain_tokens(self, prompt: Sequence[int], request: Request) -> Iterator[int]:
        sampling = self._sampling(request)
        if sampling.greedy and not sampling.counts_tokens and not sampling.logit_bias:
            room = self._room(prompt, request)
            rounds = baseline(self._target.network, prompt, room, self.stop_tokens, self._clock)
            return (round.next for round in rounds)
        return (step.token for step in self.plain(prompt, request))

    def rehearse(
        self, prompt: Sequence[int], answer: Sequence[int], request: Request, deepest: int
    ) -> tuple[Sequence[int], Sequence[int]]:
        """(drafted, accepted) of a round that begins at each token of `answer`."""
        rule, drafter = self._rule(prompt, request), self.drafter(request)
        if drafter == "model" and self._draft is not None:
            self._draft.reuse(prompt)
            reader = rehearsal.Reader(self._draft, self._target.width, rule)
            agreements = list(reader.agreements(prompt, answer))
            return [deepest] * len(answer), rehearsal.runs(agreements, deepest)
        return rehearsal.proposals(DRAFTERS[drafter](None, self._target.width, rule), prompt, answer, deepest)

    def round_costs(
        self, context: Sequence[int], request: Request, ks: Sequence[int], cancelled: Callable[[], bool]
    ) -> list[rehearsal.RoundCost]:
        """Rounds of every K behind `context`; fewer where they would not fit the models' context."""
        limit = self.context_limit(request)
        needed = TURNS * (sum(ks) + len(ks) + rehearsal.PLAIN_ROUNDS + 2) + 2
        if limit is not None:
            context = context[: max(limit - needed, 1)]
        rule = self._rule(context, request)
        name = self.drafter(request)
        drafter = DRAFTERS[name](self._draft, self._target.width, rule) if name == "model" else rehearsal.Parrot()
        self.forget()
        for _ in self._target.prefill(context):
            if cancelled():
                raise Cancelled
        return rehearsal.round_costs(self._target, drafter, rule, context, ks, TURNS, self._clock, cancelled)
