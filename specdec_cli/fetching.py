"""Carries out `pull` and `rm` on whole pairs. Law: the verdict before the weights, all numbers before all bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from specdec_cli import hub, userfile
from specdec_cli.checkup import check_pair
from specdec_cli.errors import DoesNotFit, NotAvailable
from specdec_cli.hub import Removal, Snapshot
from specdec_cli.pairs import DEMO, Pair, Registry
from specdec_cli.registry import user_file
from specdec_cli.shelf import is_local, registry, users_of
from specdec_cli.ui.download import pull_display
from specdec_cli.ui.tables import gigabytes, print_checkup, print_line


@dataclass(frozen=True, slots=True)
class PlannedRemoval:
    """One model to remove, and what a person is told about it."""

    removal: Removal
    told: str


def pull(pair: Pair, err: TextIO, *, context_tokens: int | None, verify: bool, force: bool) -> None:
    """Check `pair`, then download what is missing of it. The first pair pulled becomes the default.

    Raises: NotAvailable, Refused, DoesNotFit; with `force` memory does not stop it, disk does.
    """
    found = check_pair(pair, context_tokens, offline=False)
    print_checkup(err, found)
    for obstacle in found.obstacles:
        if not (force and isinstance(obstacle, DoesNotFit)):
            raise obstacle
    snapshots = [hub.resolve(name, revision) for name, revision in pair.models if not is_local(name)]
    missing = sum(snapshot.download_bytes for snapshot in snapshots)
    print_line(err, f"to download: {gigabytes(missing)}; free on disk: {gigabytes(hub.free_bytes())}")
    hub.check_space(snapshots)
    if missing:
        print_line(err, "completed files are kept if this is interrupted; the file in progress restarts")
        with pull_display(err, missing) as report:
            for snapshot in snapshots:
                hub.fetch(snapshot, _named(report, snapshot))
    if verify:
        _verify(snapshots, err)
    _remember(pair, err)


def _named(report: hub.Progress, snapshot: Snapshot) -> hub.Progress:
    """Files of both models under different names; cached ones are not reported."""
    cached = {file.path for file in snapshot.files if file.cached}

    def named(path: str, done_bytes: int, total_bytes: int, /) -> None:
        if path not in cached:
            report(f"{snapshot.name.rsplit('/', 1)[-1]}/{path}", done_bytes, total_bytes)

    return named


def _verify(snapshots: list[Snapshot], err: TextIO) -> None:
    for snapshot in snapshots:
        problems = hub.verify(snapshot)
        if problems:
            hub.discard(snapshot, problems)
            first = problems[0]
            raise NotAvailable(
                f"{len(problems)} files of {snapshot.name} are damaged and were removed, first {first.path}: "
                f"{first.found} instead of {first.expected}",
                "pull again",
            )
        print_line(err, f"{snapshot.name}: {len(snapshot.files)} files have the Hub's checksums")


def _remember(pair: Pair, err: TextIO) -> None:
    known = registry()
    if pair.name not in known.pairs:
        userfile.add_pair(user_file(), pair)
    if known.default_pair is None and pair.name != DEMO:
        userfile.set_default(user_file(), pair.name)
        print_line(err, f"{pair.name} is here and now speaks when no pair is named: specdec run 'your prompt'")
    else:
        print_line(err, f"{pair.name} is here: specdec run -p {pair.name} 'your prompt'")


def plan_removal(name: str, known: Registry) -> list[PlannedRemoval]:
    """What removing a pair, or one model by its Hub id, would free.

    Raises: NotAvailable if nothing of it is here.
    """
    models = [name] if name not in known.pairs and "/" in name else [m for m, _ in known.find(name).models]
    plans, missing = [], []
    for model in models:
        if is_local(model):
            continue
        try:
            removal = hub.removal(model)
        except NotAvailable as error:
            missing.append(error)
            continue
        others = [user for user in users_of(model, known) if user != name]
        used = f"; also used by {', '.join(others)}" if others else ""
        plans.append(PlannedRemoval(removal, f"{model}: {gigabytes(removal.freed_bytes)}{used}"))
    if not plans:
        raise missing[0] if missing else NotAvailable(f"{name} ships inside specdec", "there is nothing to remove")
    return plans


def carry_out(plans: list[PlannedRemoval]) -> int:
    """Bytes freed."""
    return sum(hub.remove(plan.removal) for plan in plans)
