"""Makes a report. Law: the pair is in memory once: parts that run specdec itself come after it was dropped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specdec_cli import __version__
from specdec_cli.audit.report.budget import Clock, Deadline, OnPart, Task, carry_out
from specdec_cli.audit.report.children import ChildParts, Lines, specdec_lines
from specdec_cli.audit.report.environment import environment, state
from specdec_cli.audit.report.loaded import LONG_TOKENS, SHORT_TOKENS, LoadedParts, OpenSession
from specdec_cli.audit.report.privacy import of_folders, of_this_person, without_names
from specdec_cli.audit.report.result import Report
from specdec_cli.pairs.pair import Pair


def make_report(
    pair: Pair,
    open_session: OpenSession,
    budget_seconds: float,
    on_part: OnPart,
    clock: Clock = time.perf_counter,
    lines: Lines = specdec_lines,
) -> Report:
    """Everything about `pair` here within `budget_seconds`, without any name of this person or machine."""
    began = clock()
    parts = carry_out(_tasks(pair, open_session, clock, lines), budget_seconds, clock, on_part)
    names = (*of_folders([model for model, _ in pair.models]), *of_this_person())
    about = {"name": pair.name, "target": pair.target, "draft": pair.draft, "revisions": [r for _, r in pair.models]}
    return Report(
        specdec=__version__,
        date=time.strftime("%Y-%m-%d"),
        pair=without_names(about, names),
        budget_seconds=budget_seconds,
        seconds=clock() - began,
        parts=[
            replace(part, data=without_names(part.data, names), note=without_names(part.note, names)) for part in parts
        ],
    )


def _tasks(pair: Pair, open_session: OpenSession, clock: Clock, lines: Lines) -> Sequence[Task]:
    """What is most telling comes first; seconds are those of a report of five minutes."""
    loaded = LoadedParts(open_session, clock)
    children = ChildParts(pair_options(pair), pair.draft is not None, lines)
    return [
        Task("machine", 5, 0, _machine),
        Task("load", 20, 1, loaded.load),
        Task(f"rows at {SHORT_TOKENS}", 30, 5, loaded.row_costs(SHORT_TOKENS)),
        Task(f"rows at {LONG_TOKENS}", 45, 10, loaded.row_costs(LONG_TOKENS)),
        Task("memory", 30, 5, loaded.memory),
        Task("audit", 40, 5, loaded.audit),
        Task("memory given back", 1, 0, loaded.drop),
        Task("in flight", 40, 10, children.in_flight),
        Task("bench", 45, 25, children.bench),
        Task("self-test", 43, 10, children.selftest),
        Task("machine after", 1, 0, _state),
    ]


def _machine(data: dict[str, Any], deadline: Deadline) -> str:
    data |= environment() | {"state": state()}
    return ""


def _state(data: dict[str, Any], deadline: Deadline) -> str:
    data |= state()
    return ""


def pair_options(pair: Pair) -> list[str]:
    """The options that name `pair` on a command line."""
    if pair.source != "command line":
        return ["--pair", pair.name]
    pinned = {"--target-revision": pair.target_revision, "--draft-revision": pair.draft_revision}
    return [*pair.options, *(word for option, value in pinned.items() if value for word in (option, value))]
