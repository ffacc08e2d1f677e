"""Carries out `pull` and `rm` on whole pairs. The verdict before the weights, all numbers before all bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from specdec_cli import hub
from specdec_cli.core.errors import DoesNotFit, NotAvailable
from specdec_cli.core.format import count, size
from specdec_cli.core.kinds import HEAD
from specdec_cli.core.progress import OnStep
from specdec_cli.hub import HubSnapshot, Removal
from specdec_cli.pairs import registry as models_toml
from specdec_cli.pairs.catalog import findable, is_local, registry, users_of
from specdec_cli.pairs.check import judge
from specdec_cli.pairs.files import HeadSource, find
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.names import settle
from specdec_cli.pairs.pair import DEMO, Pair, PairSpec, Registry
from specdec_cli.pairs.registry import user_file
from specdec_cli.pairs.verdict import PairVerdict
from specdec_cli.system.config import config_file
from specdec_cli.system.machine import awake

COMMIT = re.compile(r"[0-9a-f]{40}")


class PullDisplay(Protocol):
    """Where a pull is shown."""

    def line(self, text: str) -> None:
        """One line on what happens."""

    def verdict(self, found: PairVerdict) -> None:
        """The verdict on the pair, before any weight."""

    def progress(self, total_bytes: int) -> AbstractContextManager[hub.OnBytes]:
        """A report of bytes done, shown for as long as the context lasts."""

    def checking(self, name: str) -> AbstractContextManager[OnStep]:
        """The same while files of the model `name` are read again."""


Agree = Callable[[int], None]
"""Asked before so many bytes are downloaded. Raises: SpecdecError for a no."""


def pull(
    pair: Pair,
    screen: PullDisplay,
    *,
    context_tokens: int | None,
    verify: bool,
    force: bool,
    offline: bool = False,
    agree: Agree = lambda download_bytes: None,
) -> None:
    """Check `pair`, then download what is missing of it. The first pair pulled becomes the default.

    Raises: NotAvailable, Refused, DoesNotFit; with `force` memory does not stop it, disk does.
    """
    with screen.checking(pair.name) as report:
        files = find(PairSpec.of(pair), weights="headers", offline=offline, report=report)
    found = judge(Fit.of(files, remedies=frozenset({"--max-context", "--force"})), context_tokens)
    screen.verdict(found)
    for obstacle in found.obstacles:
        if not (force and isinstance(obstacle, DoesNotFit)):
            raise obstacle
        screen.line(f"continuing although {obstacle.message}")
    _download(files.snapshots, screen, agree)
    if files.source is not None:
        _keep_head(files.source, screen, agree)
    if verify:
        _verify(files.snapshots, screen)
    _remember(findable(files.pair), screen)


def _download(snapshots: list[HubSnapshot], screen: PullDisplay, agree: Agree) -> None:
    """What is missing of these commits. Raises: NotAvailable, DoesNotFit."""
    missing = sum(snapshot.download_bytes for snapshot in snapshots)
    if not missing:
        screen.line("nothing to download: all files are already here")
    else:
        screen.line(f"to download: {size(missing)}; free on disk: {size(hub.free_bytes())}")
        hub.check_space(snapshots)
        agree(missing)
        screen.line("if interrupted, completed files are kept and the file in progress restarts")
    try:
        with awake(), screen.progress(missing) if missing else nullcontext(hub.silent) as report:
            # Also where nothing is missing: another tool may have brought the bytes, and the branch moves last.
            for snapshot in snapshots:
                hub.fetch(snapshot, _name_files(report, snapshot))
    except KeyboardInterrupt:
        screen.line("interrupted: complete files are kept; run the same command again to restart the one in progress")
        raise


def _keep_head(source: HeadSource, screen: PullDisplay, agree: Agree) -> None:
    """Take the head out of its repository, unless this commit's is here. Raises: NotAvailable, DoesNotFit."""
    name = source.snapshot.name
    if source.kept:
        screen.line(f"nothing to download: the head of {name} is here")
        return
    tensors = count(len(source.head.tensors), "tensor")
    screen.line(f"to download: {size(source.size_bytes)}, {tensors} of {size(source.snapshot.weight_bytes)} of {name}")
    agree(source.size_bytes)
    with awake(), screen.progress(source.size_bytes) as report:
        source.keep(report)


def _name_files(report: hub.OnBytes, snapshot: HubSnapshot) -> hub.OnBytes:
    """Files of both models under different names; cached ones are not reported."""
    cached = {file.path for file in snapshot.files if file.cached}

    def named(path: str, done_bytes: int, total_bytes: int, /) -> None:
        if path not in cached:
            report(f"{snapshot.name.rsplit('/', 1)[-1]}/{path}", done_bytes, total_bytes)

    return named


def _verify(snapshots: list[HubSnapshot], screen: PullDisplay) -> None:
    for snapshot in snapshots:
        with screen.checking(snapshot.name) as report:
            problems = hub.verify(snapshot, report)
        if problems:
            first = problems[0]
            raise NotAvailable(
                f"{len(problems)} of {len(snapshot.files)} files of {snapshot.name} were damaged and removed, "
                f"first {first.path}: {first.found[:12]} instead of {first.expected[:12]}",
                "run the same command again to download them",
            )
        screen.line(f"{snapshot.name}: {len(snapshot.files)} files have the Hub's checksums")


def _remember(pair: Pair, screen: PullDisplay) -> None:
    """Keep a pair that was named by its ids in the user's file, unless it is known or its name means other models."""
    known = registry()
    named = known.pairs.get(pair.name)
    listed = next((one for one in (named, *known.pairs.values()) if one and _same(one, pair)), None)
    if listed is None and named is not None:
        screen.line(f"here, but {pair.name} already names another pair: {pair.run_command}")
        return
    if listed is None:
        models_toml.add_pair(user_file(), pair)
        listed = replace(pair, source="yours")
    if known.default_pair is None and listed.name != DEMO:
        models_toml.set_default(config_file(), user_file(), listed.name)
        screen.line(f"{listed.name} is here and is now the default pair: specdec run 'your prompt'")
    elif known.default_pair == listed.name:
        screen.line(f"{listed.name} is here, and is the default pair: specdec run 'your prompt'")
    else:
        screen.line(f"{listed.name} is here: {listed.run_command}")


def _same(pair: Pair, other: Pair) -> bool:
    """Whether both have the same models at the same revisions; the Hub ignores case in their names."""
    if len(pair.models) != len(other.models):
        return False
    both = zip(findable(pair).models, findable(other).models, strict=True)
    return all(hub.same_model(name, name2) and at == at2 for (name, at), (name2, at2) in both)


@dataclass(frozen=True, slots=True)
class PlannedRemoval:
    """One model or kept head to remove, and one line on what that frees."""

    removal: Removal
    summary: str


def plan_removal(name: str, known: Registry) -> list[PlannedRemoval]:
    """What removing a pair, or one model by its Hub id, would free. Raises: NotAvailable if nothing of it is here."""
    if name not in known.pairs:
        if refusal := _of_others(name):
            raise refusal
        name = settle(name)
    models = ((name, None),) if name not in known.pairs and "/" in name else known.find(name).models
    plans, missing = [], []
    for model, revision in dict(models).items():
        if is_local(model) and not (model.startswith(HEAD) and hub.head_bytes(model)):
            continue
        try:
            # A pair pinned to a commit takes that commit alone; a branch's name says nothing about the older ones.
            removal = hub.removal(model, revision if revision and COMMIT.fullmatch(revision) else None)
        except NotAvailable as error:
            missing.append(_of_others(model) or error)
            continue
        plans.append(PlannedRemoval(removal, _summary(removal, [u for u in users_of(model, known) if u != name])))
    if not plans:
        local = "its models are not the Hub's: shipped inside specdec, or folders of your own"
        first = [*missing, NotAvailable(f"nothing of {name} to remove: {local}", "specdec pairs lists all")][0]
        yours = name in known.pairs and known.pairs[name].source == "yours"
        hint = f"specdec pairs remove {name} takes it out of your models.toml" if yours else first.hint
        raise NotAvailable(first.message, hint)
    return plans


def _of_others(name: str) -> NotAvailable | None:
    """The refusal of another program's model."""
    found = hub.named(name)
    if not found or any(model.is_ours for model in found):
        return None
    text = f"{name} is not in the model cache: it belongs to {found[0].place}; specdec deletes nothing there"
    return NotAvailable(text, "specdec pairs shows where it lies")


def _summary(removal: Removal, others: Sequence[str]) -> str:
    """What goes, which commits keep what they share with it, and who else uses the model."""
    parts = [f"{removal.name}: {size(removal.freed_bytes)}"]
    if removal.kept_commits:
        commits = ", ".join(commit[:7] for commit in removal.kept_commits)
        parts.append(f"what commit {commits} shares will stay")
    if others:
        parts.append(f"also used by {', '.join(others)}")
    return "; ".join(parts)


def carry_out(plans: list[PlannedRemoval]) -> int:
    """Bytes freed."""
    return sum(hub.remove(plan.removal) for plan in plans)
