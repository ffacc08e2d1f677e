"""The stream every display, file and benchmark consumes. Law: frozen values; nothing flows back.

Contract version SCHEMA: one JSON object a line, ids as ints, seconds as floats; fields may be added, never renamed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal, get_args

from specdec_cli.core.gain import Gain

SCHEMA = 1

FinishReason = Literal["stop", "length", "interrupted", "repetition"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """An emitted token's log-probability (natural, the target's own), and the best (id, log-probability) pairs."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One target pass: K drafted tokens judged, `accepted` of them kept, one token of the target's added.

    `draft[:accepted]` were accepted, `draft[accepted]` (if any) was rejected, the rest were discarded
    unjudged. `next` is the correction after a rejection, the bonus after full acceptance, and the plain
    token when nothing was drafted. `emitted` = accepted + next, cut after the first stop token.
    `draft_prefill_seconds` is spent once, in the round before which the draft read the prompt. `why` is the reason of
    this round's K where it is chosen each round, empty where it is fixed. `logprobs` are of the emitted tokens, where
    the request asked for them. Where draft and verification were not timed apart, as on devices that run ahead of the
    host, `draft_seconds` is the draft's share of the last round that was. `draft_read_tokens` of the context were
    read by the draft before it drafted, some hundreds at a time; what a round or two left unread is not counted.
    `batch_size` replies had a token each of this pass, whose seconds count for each of them.
    """

    index: int
    drafter: str
    draft: tuple[int, ...]
    accepted: int
    next: int
    emitted: tuple[int, ...]
    draft_seconds: float
    verify_seconds: float
    draft_prefill_seconds: float = 0.0
    why: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    draft_read_tokens: int = 0
    batch_size: int = 1

    @property
    def rejected(self) -> int | None:
        """The one draft token that was judged and rejected, None after full acceptance."""
        return self.draft[self.accepted] if self.accepted < len(self.draft) else None

    @property
    def discarded(self) -> tuple[int, ...]:
        """Draft tokens after the rejected one: never judged."""
        return self.draft[self.accepted + 1 :]


@dataclass(frozen=True, slots=True)
class Start:
    """What was requested and the values in effect, before any model work.

    `seed` is the requested one, None if the reply drew its own; `sampling` holds every other value in effect.
    `attempt` counts further answers to one prompt; under a seed each has its own noise.
    Of a context the draft reads the last `draft_context` tokens and holds about twice as many; None: all of it.
    `constraint` is the kind of shape that the answer must have; `unenforced` are words of a schema that hold nothing.
    `machine_bytes` are the weights on each of the machines that share the target; one alone is not listed.
    """

    event: ClassVar[str] = "start"
    target: str
    draft: str | None
    drafter: str
    rule: str
    k: int | str
    temperature: float
    seed: int | None
    prompt_tokens: int
    max_tokens: int
    dtype: str
    device: str
    caches: Mapping[str, tuple[str, ...]]
    context_limit: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 0
    constraint: str | None = None
    unenforced: tuple[str, ...] = ()
    draft_context: int | None = None
    machine_bytes: tuple[int, ...] = ()
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Reading:
    """A chunk of a long text was read and another one follows; a text of one chunk has none.

    `reader` is `target` or `draft`. Between two of them nothing is in flight, and a caller may turn to other work.
    """

    event: ClassVar[str] = "reading"
    reader: str
    read_tokens: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """The target has read the prompt; `cached_tokens` of it were in its cache, `disk_tokens` of these from disk."""

    event: ClassVar[str] = "prefill"
    prompt_tokens: int
    cached_tokens: int
    seconds: float
    disk_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RoundDone:
    """A Round with text: `pieces` one per draft token, `next_piece`, and the `text` it made printable.

    `texts` are of the emitted tokens, before stop strings are looked for: what each completed, empty for a stop token.
    `gain` is what drafting gained in this reply so far, None where too little was measured to say.
    """

    event: ClassVar[str] = "round"
    round: Round
    pieces: tuple[str, ...]
    next_piece: str
    text: str
    texts: tuple[str, ...] = ()
    gain: Gain | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The end: texts of all rounds + `text_tail` == `text`; `tokens` and `text` exclude the stop token.

    `complete`: whether the answer has the shape it must have, None where it may have any.
    """

    event: ClassVar[str] = "finish"
    reason: FinishReason
    text: str
    tokens: tuple[int, ...]
    text_tail: str
    stats: Mapping[str, Any] = field(default_factory=dict)
    complete: bool | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure after the start: message and hint as a person reads them."""

    event: ClassVar[str] = "error"
    message: str
    hint: str
    exit_code: int


Event = Start | Reading | Prefill | RoundDone | Finish | Failure
_KINDS: dict[Any, type[Event]] = {kind.event: kind for kind in get_args(Event)}


def to_dict(event: Event) -> dict[str, Any]:
    """The JSON object of one event; a round's fields and its texts are on one level."""
    values = asdict(event)
    if isinstance(event, RoundDone):
        values = {**values.pop("round"), **values}
    usual = {"logprobs": (), "texts": (), "gain": None, "batch_size": 1, "machine_bytes": ()}
    values = {name: value for name, value in values.items() if name not in usual or value != usual[name]}
    return {"event": event.event, **values}


def from_dict(values: Mapping[str, Any]) -> Event:
    """The event that `to_dict` wrote, also after a trip through JSON. Unknown fields are ignored.

    Raises: ValueError for an unknown event, a missing field and one of another type.
    """
    from pydantic import ValidationError

    name = values.get("event")
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"not a specdec event: {repr(name) if 'event' in values else 'the line names none'}")
    if name == RoundDone.event:
        values = {**values, "round": dict(values)}
    try:
        event: Event = _adapter(name).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "round")
        raise ValueError(f"{name} event, {where}: {first['msg']}") from error
    return event


@cache
def _adapter(name: str) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(_KINDS[name])
