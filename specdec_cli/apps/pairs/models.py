"""Models before and after gigabytes: what a pair is worth is known first, then it is fetched."""

from __future__ import annotations

import sys

from specdec_cli import hub
from specdec_cli.apps.pairs.download import checking
from specdec_cli.apps.pairs.entries import take_out
from specdec_cli.apps.pairs.pull import plan_removal
from specdec_cli.apps.pairs.pull import pull as fetch
from specdec_cli.apps.pairs.screen import print_checks, print_verdict
from specdec_cli.command.command import ask, require_answer, say
from specdec_cli.command.machines import machine_bytes
from specdec_cli.command.options import NameOptions, PairOptions
from specdec_cli.core.format import size
from specdec_cli.engine.group import Share
from specdec_cli.pairs import catalog, choose, files, tuned
from specdec_cli.pairs.check import judge
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.pair import PairSpec
from specdec_cli.session import disk_entries
from specdec_cli.terminal.display import print_json


def check(
    name: str | None,
    models: PairOptions,
    max_context: int | None,
    kv_bits: int | None,
    hosts: str | None,
    json: bool,
    offline: bool,
) -> int:
    """The verdict on a pair, printed; returns the exit code. Raises: NotAvailable, Refused."""
    with checking(name or models.target or "a pair") as report:
        with files.explain_offline(offline):
            spec = choose.choose(name, models.target, models.draft, here=offline, report=report)
        # A verdict on fetched files would hide that the files here cannot answer.
        for problem in catalog.partly_here([spec.pair]):
            raise problem
        others = machine_bytes(hosts, kv_bits)
        found = files.find(PairSpec.of(spec.pair), weights="headers", offline=offline, report=report)
        if others:
            found = found.shared_by(Share(1 + len(others)))
        verdict = judge(Fit.of(found, kv_bits, frozenset({"--kv-bits", "--max-context"})), max_context, others)
    # Its own head is known once its files are found.
    if spec.reason and (found.draft is None or not spec.reason.startswith(choose.NO_DRAFT)):
        say(spec.reason)
    if json:
        print_json(sys.stdout, verdict.to_dict())
    else:
        first, last = (print_verdict, print_checks) if verdict.obstacles else (print_checks, print_verdict)
        first(sys.stdout, verdict)
        last(sys.stdout, verdict)
    return verdict.exit_code


def pull(
    named: NameOptions,
    models: PairOptions,
    max_context: int | None,
    verify: bool,
    yes: bool,
    force: bool,
    offline: bool,
) -> None:
    """The pair that was named, or the recommended one if a person agrees. Raises: as `pull.pull`."""
    if (name := named.given) is None and models == PairOptions():
        pair = choose.recommended(catalog.registry())
        reason = f"{pair.name} is recommended for this machine: {pair.described}"
        require_answer(f"{reason}. Pull it?", yes)
    else:
        yes = True
        asked = name or models.target or "a pair"
        with checking(asked) as report, files.explain_offline(offline):
            spec = choose.choose(name, models.target, models.draft, here=offline, report=report)
        pair, reason = spec.pair, spec.reason
    if reason and not reason.startswith(choose.NO_DRAFT):  # its files may hold a head, as the verdict says
        say(reason)
    fetch(pair, yes=yes, context_tokens=max_context, verify=verify, force=force, offline=offline)


def rm(name: str, yes: bool) -> None:
    """What was downloaded, tuned or read of `name` is deleted, after a question. Raises: NotAvailable, UsageError."""
    known = catalog.registry()
    if name == disk_entries.DISK_CACHE:
        held = disk_entries.held_bytes()
        ask(f"Remove {size(held)} of conversations that were read?", yes)
        disk_entries.remove_all()
        say(f"freed {size(held)}; the chats themselves stay")
        return
    if folder := tuned.folder_named(name, known.pairs.get(name)):
        say(f"{folder}: {size(tuned.size_bytes(folder))}; the models that it was tuned on stay")
        ask(f"Delete {folder.name}?", yes)
        say(f"freed {size(tuned.remove(folder))}")
        if name in known.pairs:
            take_out(name, known)
        return
    plans = plan_removal(name, known)
    say(*(summary for _, summary in plans))
    ask(f"Free {size(sum(plan.freed_bytes for plan, _ in plans))}?", yes)
    say(f"freed {size(sum(hub.remove(plan) for plan, _ in plans))}")
    if name == known.default_pair:
        say(f"{name} is still the default pair, and cannot answer: specdec pairs use NAME")
