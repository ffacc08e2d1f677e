"""A pair whose target several ranks share. Rank 0 resolves what a person asked for; the others do the tasks it tells.

Law: what comes out is a Session's, and whatever a clock or a person decides in it is rank 0's decision on every rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from specdec_cli.core.events import Event, Start
from specdec_cli.core.request import Request
from specdec_cli.engine.baseline import PlainStep
from specdec_cli.engine.batch import Ask, Member
from specdec_cli.engine.group import Group, Ranks, joined
from specdec_cli.engine.pipeline import Clock
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fingerprint import fingerprints
from specdec_cli.pairs.pair import PairSpec
from specdec_cli.session.drafting import DraftController
from specdec_cli.session.load import Wishes, load_files, load_spec
from specdec_cli.session.session import LoadedPair, Reply, Session
from specdec_cli.session.slot import Slot

SAME_FILES = "give both the same files: copy the folder, or pull the same commit on both"


@dataclass(frozen=True, slots=True)
class Task:
    """What all ranks do next: the one message in which rank 0 tells the others.

    `open`: the pair of `spec`, with caches of `reserve_tokens`, to be asked for what `request` is. `reply` and `plain`:
    answer `prompt` by `request`. `audit`: by the fields of a `plan`. `sum`: so many `numbers`, to time it.
    """

    kind: Literal["open", "reply", "plain", "audit", "sum"]
    spec: PairSpec | None = None
    reserve_tokens: int | None = None
    prompt: tuple[int, ...] = ()
    request: Request = field(default_factory=Request)
    raw: bool = False
    plan: Mapping[str, Any] = field(default_factory=dict[str, Any])
    numbers: int = 0


def open_spec(spec: PairSpec, wishes: Wishes) -> LoadedPair:
    """As `load_spec`; where this process is a rank of several, they open the pair together. Raises: as `load_spec`."""
    group = joined()
    return load_spec(spec, wishes) if group is None else open_part(group, spec, wishes)


def open_part(group: Group, spec: PairSpec, wishes: Wishes) -> SharedPair:
    """Of the target the part of this rank, and the whole draft; the files must be the same on every rank."""
    task = Task("open", spec, wishes.reserve_tokens, request=wishes.request or Request())
    with group.doing(task):
        files = group.all(lambda: find(spec, wishes.tell)).shared_by(group)
        found = fingerprints(files)
        group.all(lambda: group.require_same(found, SAME_FILES))
        loaded = group.all(lambda: load_files(files, wishes))
        kind = {"the kind of draft": loaded.draft_kind or "none"}  # a head may have been left out on one of them
        group.all(lambda: group.require_same(kind, "decode without it: --drafter none"))
        held = group.gather(loaded.first.weight_bytes)
    own = {part.name: getattr(loaded, part.name) for part in fields(loaded)}
    own["identity"] += f", {group.size} machines"
    return SharedPair(**own, group=group, machine_bytes=held)


def auditing(session: Session, plan: Mapping[str, Any]) -> AbstractContextManager[None]:
    """In this context an audit with these fields of a plan is done, by all ranks if there are several."""
    return session.pair.group.doing(Task("audit", plan=plan)) if isinstance(session.pair, SharedPair) else nullcontext()


@dataclass(frozen=True, slots=True)
class SharedPair(LoadedPair):
    """The part of this rank; `machine_bytes` are the weights on each. What was read is in parts, and on no disk."""

    group: Group = field(kw_only=True)
    machine_bytes: tuple[int, ...] = ()

    def session(self, slot: Slot | None = None, clock: Clock = time.perf_counter) -> Session:
        return Session(replace(self, disk=None), slot or self.slot(), clock)

    def reply(self, slot: Slot, prompt: Sequence[int], request: Request, raw: bool = False) -> SharedReply:
        return SharedReply(self, slot, prompt, request, raw)


class SharedReply(Reply):
    """A reply that all ranks compute together, as rank 0 decides."""

    pair: SharedPair

    def events(
        self,
        controller: DraftController,
        clock: Clock,
        cancelled: Callable[[], bool],
        member: Member | None = None,
        measures_last: bool = False,
    ) -> Iterator[Event | Ask]:
        task = Task("reply", prompt=tuple(self.prompt), request=self.request, raw=self.raw)
        ranks = Ranks(self.pair.group, self.context, cancelled)
        self.planner, self.agrees = ranks.plan, ranks.agrees
        steps = super().events(controller, clock, ranks.cancelled, member, measures_last)
        return self.pair.group.along(task, steps, ranks.leave)

    def plain(self) -> Iterator[PlainStep]:
        task = Task("plain", prompt=tuple(self.prompt), request=self.request)
        return self.pair.group.along(task, super().plain())

    def _start(self, rule: str) -> Start:
        return replace(super()._start(rule), machine_bytes=self.pair.machine_bytes)

    def _new_seed(self) -> int:
        return int(self.pair.group.share(str(super()._new_seed())))
