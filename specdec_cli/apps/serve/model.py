"""What clients may know of a pair without its weights, which an idle server lets go; and of pairs to switch to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_cli.core.errors import UsageError
from specdec_cli.core.readfile import expanded, is_folder
from specdec_cli.core.request import Request
from specdec_cli.core.template import TemplateValues
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.models.tokenizer import Between, Tokenizer, unwatched
from specdec_cli.models.turns import Message
from specdec_cli.pairs.check import Side
from specdec_cli.pairs.files import PairFiles, find
from specdec_cli.pairs.names import settle
from specdec_cli.pairs.pair import PairSpec
from specdec_cli.session.text import conversation_tokens

# Stands for what another turn would say; only where it begins matters.
OTHER = "?"


@dataclass(frozen=True, slots=True)
class Model:
    """A pair's name, tokenizer and limits; `base` is the request that bodies change. `since`: seconds of the epoch.

    `pair` is what the scheduler calls it; empty for the pair that it began with. `sides` are its target and draft
    model, where files say what these are. No name is a path: where this machine's files are is nobody's business.
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
    sides: tuple[Side, ...] = ()

    @classmethod
    def of(cls, files: PairFiles, base: Request, since: int) -> Model:
        """Of a pair of which no weight was read. Raises: NotAvailable."""
        pair, (target, draft), limit = files.spec.pair, files.names, files.context.tokens(base)
        public = public_name(pair.name), public_name(target), draft and public_name(draft)
        sides = tuple(Side(one.weight_bytes, one.checkpoint.config) for one in files.models)
        return cls(*public, files.tokenizer, files.vocab_size, limit, base, since, sides=sides)

    def answers_to(self, name: str | None) -> bool:
        """Whether a request for the model `name` is for this one."""
        return name in (None, "", "default", self.name, self.target)

    def prompt(
        self,
        messages: Sequence[Message],
        values: TemplateValues,
        tools: Sequence[Mapping[str, Any]] = (),
        between: Between = unwatched,
    ) -> list[int]:
        """As `conversation_tokens`."""
        return conversation_tokens(self.tokenizer, self.target, messages, values, tools, between)

    def reusable_prefixes(
        self,
        prompt: Sequence[int],
        messages: Sequence[Message],
        values: TemplateValues,
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
                found.add(common_prefix(prompt, self.prompt(other, values, tools, between)))
            except UsageError:
                continue  # a template may refuse turns that nobody asked for
        return tuple(sorted(found - {0}))

    def text(self, tokens: Sequence[int]) -> str:
        """The text of these tokens, special ones included."""
        stream = self.tokenizer.stream()
        return "".join([*map(stream.step, tokens), stream.finish()])


def public_name(name: str) -> str:
    """`name`, or of a folder, which may be gone, only its last part."""
    folder = expanded(name)
    return folder.absolute().name if name.startswith(("/", "~", ".")) or is_folder(folder) else name


@dataclass(frozen=True, slots=True)
class Switch:
    """The other pairs that a server may load instead of its own: only what is on this machine, and one at a time.

    `here` gives them by name, as they are now, `with_draft` one of them with the draft that is found for it; `base` is
    what every request to one starts from. What is known of one is read when it is first asked for, without its weights,
    and stays so, as does what `specs` says of it; there '' is the server's own pair.
    """

    here: Callable[[], Mapping[str, PairSpec]]
    base: Callable[[PairSpec], Request]
    since: int = field(default_factory=lambda: int(time.time()))
    with_draft: Callable[[PairSpec], PairSpec] = replace
    specs: dict[str, PairSpec] = field(default_factory=dict)
    _known: dict[str, Model] = field(default_factory=dict)

    def find(self, name: str, settle: Callable[[str], str] = settle) -> Model | None:
        """The pair of that name, else one with that target; None if it is not here.

        `settle` says which target a name means that none has. Raises: NotAvailable, Refused.
        """
        if name not in self._known:
            here = self.here()
            targets = {public_name(spec.pair.target): spec for spec in reversed([*here.values()])}
            spec = here.get(name) or targets.get(name) or targets.get(settle(name))
            if spec is None:
                return None
            spec = self.with_draft(spec)
            model = Model.of(find(spec), self.base(spec), self.since)
            self.specs[spec.pair.name] = spec
            self._known[name] = replace(model, pair=spec.pair.name)
        return self._known[name]
