"""What clients may know of the pair, without its weights. Law: it outlives them, so an idle server can let them go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec_cli.errors import UsageError
from specdec_cli.models.fill import Fill
from specdec_cli.models.pieces import Between, unwatched
from specdec_cli.models.text import Thinking
from specdec_cli.models.tokenizer import Message, Tokenizer
from specdec_cli.models.tool_calls import ToolCall
from specdec_cli.request import Request
from specdec_cli.session.load import PairFacts
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.text import conversation_tokens

# Stands for what another turn would say; only where it begins matters.
OTHER = "?"


@dataclass(frozen=True, slots=True)
class Model:
    """A pair's name, tokenizer and limits; `base` is the request that bodies change. `since`: seconds of the epoch.

    `pair` is what a desk calls it; empty for the pair that the desk began with. No name is a path: where this machine's
    files are is nobody's business.
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
    _fill: list[Fill | None] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def of(cls, pair: LoadedPair, base: Request, since: int) -> Model:
        """The same of a pair that is loaded."""
        slot = pair.first
        limits = [slot.target.context_limit, slot.draft.context_limit if slot.draft else None, base.max_context]
        limit = min((limit for limit in limits if limit is not None), default=None)
        target, draft = pair.names
        names = shown(pair.pair.name), shown(target), draft and shown(draft)
        return cls(*names, pair.tokenizer, slot.target.vocab_size, limit, base, since)

    @classmethod
    def of_facts(cls, name: str, facts: PairFacts, base: Request, since: int) -> Model:
        """The same of another pair, of which no weight was read."""
        limits = [limit for limit in (facts.context_limit, base.max_context) if limit is not None]
        limit = min(limits, default=None)
        target, draft = facts.names
        names = shown(name), shown(target), draft and shown(draft)
        return cls(*names, facts.tokenizer, facts.vocab_size, limit, base, since, name)

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

    def ends(
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
                found.add(_shared(prompt, self.prompt(other, thinks, tools, between)))
            except UsageError:
                continue  # a template may refuse turns that nobody asked for
        return tuple(sorted(found - {0}))

    def fill(self) -> Fill | None:
        """How it fills a gap between two texts; None if it cannot."""
        if not self._fill:
            self._fill.append(Fill.of(self.tokenizer))
        return self._fill[0]

    def thinking(self, prompt: Sequence[int]) -> Thinking | None:
        """The tags around the thinking, as this prompt leaves them."""
        return self.tokenizer.thinking(prompt)

    def calls(self, text: str, tools: Sequence[Mapping[str, Any]]) -> tuple[str, list[ToolCall]]:
        """As `LoadedPair.tool_calls`."""
        return self.tokenizer.tool_calls(text, tools)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of these tokens, special ones included."""
        stream = self.tokenizer.stream()
        return "".join([*map(stream.step, tokens), stream.finish()])


def shown(name: str) -> str:
    """`name`, or of a folder, which may be gone, only its last part."""
    folder = Path(name).expanduser()
    return folder.absolute().name if name.startswith(("/", "~", ".")) or folder.is_dir() else name


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    length = min(len(one), len(other))
    return next((place for place in range(length) if one[place] != other[place]), length)
