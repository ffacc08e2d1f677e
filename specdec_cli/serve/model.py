"""What clients may know of a pair without its weights, which an idle server lets go; and of pairs to switch to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.errors import UsageError
from specdec_cli.kinds import DRAFTERS
from specdec_cli.models.tokenizer import Between, Message, Tokenizer, unwatched
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request
from specdec_cli.session.load import PairFacts, pair_facts
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.text import conversation_tokens

# Stands for what another turn would say; only where it begins matters.
OTHER = "?"


@dataclass(frozen=True, slots=True)
class Model:
    """A pair's name, tokenizer and limits; `base` is the request that bodies change. `since`: seconds of the epoch.

    `pair` is what the scheduler calls it; empty for the pair that it began with. No name is a path: where this
    machine's files are is nobody's business.
    """

    name: str
    target: str
    draft: str | None
    tokenizer: Tokenizer
    vocab_size: int
    context_limit: int | None
    base: Request = field(default_factory=Request)
    since: int = 0
    pair: str = ""

    @classmethod
    def of(cls, pair: LoadedPair, base: Request, since: int) -> Model:
        """The same of a pair that is loaded."""
        target, draft = pair.first.target, pair.first.draft
        limits = [model.context_limit for model in (target, draft) if model and model.context_limit]
        facts = PairFacts(pair.names, pair.tokenizer, target.vocab_size, min(limits, default=None))
        return cls.of_facts(pair.pair.name, facts, base, since)

    @classmethod
    def of_facts(cls, name: str, facts: PairFacts, base: Request, since: int) -> Model:
        """The same of a pair of which no weight was read."""
        target, draft = facts.names
        limit = min((limit for limit in (facts.context_limit, base.max_context) if limit is not None), default=None)
        names = public_name(name), public_name(target), draft and public_name(draft)
        return cls(*names, facts.tokenizer, facts.vocab_size, limit, base, since)

    def answers_to(self, name: str | None) -> bool:
        """Whether a request for the model `name` is for this one."""
        return name in (None, "", "default", self.name, self.target)

    def prompt(
        self,
        messages: Sequence[Message],
        thinks: bool,
        tools: Sequence[Mapping[str, Any]] = (),
        between: Between = unwatched,
    ) -> list[int]:
        """As `conversation_tokens`."""
        return conversation_tokens(self.tokenizer, self.target, messages, thinks, tools, between)

    def reusable_prefixes(
        self,
        prompt: Sequence[int],
        messages: Sequence[Message],
        thinks: bool,
        tools: Sequence[Mapping[str, Any]] = (),
        between: Between = unwatched,
    ) -> tuple[int, ...]:
        """Lengths of the prefixes of `prompt` that other prompts will probably share.

        One is up to what another first message would change, one up to what the next turn will.
        """
        instructions = [message for message in messages[:1] if message["role"] == "system"]
        user = {"role": "user", "content": OTHER}
        answer = [] if messages[-1]["role"] == "assistant" else [{"role": "assistant", "content": OTHER}]
        others = [[*messages, *answer, user]]
        if instructions or tools:
            others.append([*instructions, user])
        found: set[int] = set()
        for other in others if self.tokenizer.has_template else ():
            try:
                found.add(common_prefix(prompt, self.prompt(other, thinks, tools, between)))
            except UsageError:
                continue  # a template may refuse turns that nobody asked for
        return tuple(sorted(found - {0}))

    def text(self, tokens: Sequence[int]) -> str:
        """The text of these tokens, special ones included."""
        stream = self.tokenizer.stream()
        return "".join([*map(stream.step, tokens), stream.finish()])


def public_name(name: str) -> str:
    """`name`, or of a folder, which may be gone, only its last part."""
    folder = Path(name).expanduser()
    return folder.absolute().name if name.startswith(("/", "~", ".")) or folder.is_dir() else name


@dataclass(frozen=True, slots=True)
class Switch:
    """The other pairs that a server may load instead of its own: only what is on this machine, and one at a time.

    `here` gives them by name, as they are now; `base` is what every request to one of them starts from. What is known
    of one is read when it is first asked for, without its weights, and stays so.
    """

    here: Callable[[], Mapping[str, Pair]]
    base: Callable[[Pair], Request]
    since: int = field(default_factory=lambda: int(time.time()))
    _known: dict[str, Model] = field(default_factory=dict)

    def find(self, name: str) -> Model | None:
        """The pair of that name, else one with that target; None if it is not here. Raises: NotAvailable, Refused."""
        if name not in self._known:
            pairs = self.here()
            pair = pairs.get(name) or next((pair for pair in pairs.values() if public_name(pair.target) == name), None)
            if pair is None:
                return None
            base = self.base(pair)
            facts = pair_facts(pair, DRAFTERS[base.drafter])
            self._known[name] = replace(Model.of_facts(pair.name, facts, base, self.since), pair=pair.name)
        return self._known[name]
