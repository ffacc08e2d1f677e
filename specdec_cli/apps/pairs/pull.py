"""`pull` and `rm` on whole pairs. The verdict before the weights, all numbers before all bytes."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from specdec_cli import hub
from specdec_cli.apps.pairs.download import checking, downloading
from specdec_cli.apps.pairs.screen import print_checks
from specdec_cli.command.command import ask, say
from specdec_cli.core.errors import DoesNotFit, NotAvailable
from specdec_cli.core.format import count, size
from specdec_cli.core.kinds import HEAD
from specdec_cli.hub import HubSnapshot, Removal
from specdec_cli.pairs import registry as models_toml
from specdec_cli.pairs.catalog import findable, is_local, registry, users_of
from specdec_cli.pairs.check import judge
from specdec_cli.pairs.files import DraftHead, find
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.names import settle
from specdec_cli.pairs.pair import DEMO, Pair, PairSpec, Registry
from specdec_cli.pairs.registry import user_file
from specdec_cli.system.config import config_file
from specdec_cli.system.machine import awake

COMMIT = re.compile(r"[0-9a-f]{40}")


def pull(
    pair: Pair,
    *,
    yes: bool,
    context_tokens: int | None = None,
    verify: bool = False,
    force: bool = False,
    offline: bool = False,
    remedies: frozenset[str] = frozenset({"--max-context", "--force"}),
) -> None:
    """Check `pair`, then download what is missing of it, after a question. The first pair pulled becomes the default.

    A refusal names no options but `remedies`.
    Raises: NotAvailable, Refused, DoesNotFit, SpecdecError for a no; with `force` memory does not stop it, disk does.
    """
    with checking(pair.name) as report:
        files = find(PairSpec.of(pair), weights="headers", offline=offline, report=report)
    found = judge(Fit.of(files, remedies=remedies), context_tokens)
    print_checks(sys.stderr, found)
    for obstacle in found.obstacles:
        if not (force and isinstance(obstacle, DoesNotFit)):
            raise obstacle
        say(f"continuing although {obstacle.message}")
    _download(files.snapshots, yes)
    if isinstance(files.draft, DraftHead) and files.draft.origin is not None:
        _keep_head(files.draft, files.draft.origin, yes)
    if verify:
        _verify(files.snapshots)
    _remember(findable(files.pair))


def _download(snapshots: list[HubSnapshot], yes: bool) -> None:
    """What is missing of these commits. Raises: NotAvailable, DoesNotFit."""
    missing = sum(snapshot.download_bytes for snapshot in snapshots)
    if not missing:
        say("nothing to download: all files are already here")
    else:
        say(f"to download: {size(missing)}; free on disk: {size(hub.free_bytes())}")
        hub.check_space(snapshots)
        ask(f"download {size(missing)}?", yes, usual=True)
        say("if interrupted, completed files are kept and the file in progress restarts")
    try:
        with awake(), downloading(sys.stderr, missing) if missing else nullcontext(hub.silent) as report:
            # Also where nothing is missing: another tool may have brought the bytes, and the branch moves last.
            for snapshot in snapshots:
                hub.fetch(snapshot, _name_files(report, snapshot))
    except KeyboardInterrupt:
        say("interrupted: complete files are kept; run the same command again to restart the one in progress")
        raise


def _keep_head(draft: DraftHead, origin: HubSnapshot, yes: bool) -> None:
    """Take the head out of its repository, unless this commit's is here. Raises: NotAvailable, DoesNotFit."""
    name, tensors = origin.name, draft.head.tensors.values()
    if hub.kept_commit(name) == origin.commit:
        say(f"nothing to download: the head of {name} is here")
        return
    size_bytes = sum(stored.size_bytes for stored in tensors)
    of = f"{count(len(tensors), 'tensor')} of {size(origin.weight_bytes)} of {name}"
    say(f"to download: {size(size_bytes)}, {of}")
    hub.require_space([name], size_bytes, hub.heads_folder())
    ask(f"download {size(size_bytes)}?", yes, usual=True)
    with awake(), downloading(sys.stderr, size_bytes) as report:
        hub.keep_head(origin, draft.config, tensors, "pt" if draft.head.zero_centred else "mlx", report)


def _name_files(report: hub.OnBytes, snapshot: HubSnapshot) -> hub.OnBytes:
    """Files of both models under different names; cached ones are not reported."""
    cached = {file.path for file in snapshot.files if file.cached}

    def named(path: str, done_bytes: int, total_bytes: int, /) -> None:
        if path not in cached:
            report(f"{snapshot.name.rsplit('/', 1)[-1]}/{path}", done_bytes, total_bytes)

    return named


def _verify(snapshots: list[HubSnapshot]) -> None:
    for snapshot in snapshots:
        with checking(snapshot.name) as report:
            problems = hub.verify(snapshot, report)
        if problems:
            first = problems[0]
            raise NotAvailable(
                f"{len(problems)} of {len(snapshot.files)} files of {snapshot.name} were damaged and removed, "
                f"first {first.path}: {first.found[:12]} instead of {first.expected[:12]}",
                "run the same command again to download them",
            )
        say(f"{snapshot.name}: {len(snapshot.files)} files have the Hub's checksums")


def _remember(pair: Pair) -> None:
    """Keep a pair that was named by its ids in the user's file, unless it is known or its name means other models."""
    known = registry()
    named = known.pairs.get(pair.name)
    if named and pair.source == named.source:  # it was named; one with a target alone has the draft that was found
        listed: Pair | None = named
    else:
        listed = next((one for one in (named, *known.pairs.values()) if one and _same(one, pair)), None)
    if listed is None and named is not None:
        say(f"here, but {pair.name} already names another pair: {pair.run_command}")
        return
    if listed is None:
        models_toml.add_pair(user_file(), pair)
        listed = replace(pair, source="yours")
    if known.default_pair is None and listed.name != DEMO:
        models_toml.set_default(config_file(), user_file(), listed.name)
        say(f"{listed.name} is here and is now the default pair: specdec run 'your prompt'")
    elif known.default_pair == listed.name:
        say(f"{listed.name} is here, and is the default pair: specdec run 'your prompt'")
    else:
        say(f"{listed.name} is here: {listed.run_command}")


def _same(pair: Pair, other: Pair) -> bool:
    """Whether both have the same models at the same revisions; the Hub ignores case in their names."""
    if len(pair.models) != len(other.models):
        return False
    both = zip(findable(pair).models, findable(other).models, strict=True)
    return all(hub.same_model(name, name2) and at == at2 for (name, at), (name2, at2) in both)


def plan_removal(name: str, known: Registry) -> list[tuple[Removal, str]]:
    """The removals of a pair, or of one model by its Hub id, each with a line on what it frees.

    Raises: NotAvailable if nothing of it is here.
    """
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
        plans.append((removal, _summary(removal, [user for user in users_of(model, known) if user != name])))
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
