"""The pairs: `pairs`, `check`, `pull`, `rm`. Verdicts come before gigabytes.

An entry is replaced, and a file deleted, only after a question; the default pair is one that can answer.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import typer

from specdec_cli.command.command import ask, grouped, require_answer, say
from specdec_cli.command.machines import machine_bytes
from specdec_cli.command.options import HostOptions, NameOptions, PairOptions, StoredOptions
from specdec_cli.core.errors import NotAvailable, SpecdecError, UsageError
from specdec_cli.core.format import size
from specdec_cli.core.kinds import HEAD
from specdec_cli.core.request import parse_k
from specdec_cli.pairs.pair import DEMO, NAME, Pair, PairSpec, Registry
from specdec_cli.system.config import config_file, model_folders
from specdec_cli.system.machine import physical_bytes

app = typer.Typer()
pairs_app = typer.Typer(invoke_without_command=True)
app.add_typer(pairs_app, name="pairs")


@pairs_app.callback()
@grouped
def pairs(
    *,
    context: typer.Context,
    json: bool = False,
    online: bool = False,
    every: bool = False,
) -> None:
    """The pairs specdec knows: sizes, here or not, fits or not."""
    if context.invoked_subcommand is not None:
        return
    from specdec_cli.apps.pairs.screen import print_pairs
    from specdec_cli.pairs import catalog, choose
    from specdec_cli.session import disk_entries
    from specdec_cli.terminal.display import print_json

    known = catalog.registry()
    if online:
        say(*(f"{name}: {problem}" for name, problem in catalog.confirm(catalog.hub_ids(known)).items()))
    rows = catalog.rows(known)
    best = [pair.name for pair in choose.fitting(known)[:1]]
    rows = [replace(row, recommended=row.pair.name in best) for row in rows]
    rows = choose.drafted([*rows, *catalog.other_rows(known, rows)], known)
    if json:
        print_json(sys.stdout, [row.to_dict() for row in rows])
    else:
        print_pairs(sys.stdout, rows, physical_bytes(), every)
        if held := disk_entries.held_bytes():
            say(f"{size(held)} of conversations that were read: specdec rm {disk_entries.DISK_CACHE} removes them")
    unread = [folder for folder in model_folders() if not os.access(folder, os.R_OK | os.X_OK)]
    say(*(f"{folder}, one of your model folders, is not there or cannot be read" for folder in unread))
    damaged = catalog.partly_here(model for pair in known.pairs.values() for model in pair.models)
    say(*(f"{problem.message}; {problem.hint}" for problem in damaged[1:]))
    if damaged:
        raise damaged[0]


@pairs_app.command("add")
@grouped
def add(
    *,
    name: str,
    models: StoredOptions,
    k: str | None = None,
    yes: bool = False,
) -> None:
    """Add a pair of your own to your models.toml.

    An entry of that name is replaced only after a question.
    """
    from specdec_cli.pairs import catalog, registry

    new = _named_pair(name, models, k)
    known = catalog.registry().pairs.get(name)  # a file that cannot be read is not added to
    if known is not None and not _same_models(known, new):
        ask(f"{name} is {known.described}. Replace it by {new.described}?", yes)
    elif known is not None:
        new = replace(known, k=new.k if k is not None else known.k)
    registry.add_pair(registry.user_file(), new)
    say(f"saved pair {name} ({registry.user_file()})")
    problem = catalog.missing(new)
    if problem is not None and catalog.can_be_pulled(problem):
        say(f"it is not here yet: specdec pull {name}")


def _same_models(known: Pair, new: Pair) -> bool:
    """Whether `new` names the models of `known`; a revision or adapter that it leaves open is the known one's."""
    from specdec_cli.pairs.registry import OF_THE_FILES

    same = all(getattr(new, field) in (None, getattr(known, field)) for field in OF_THE_FILES)
    return same and (new.target, new.draft) == (known.target, known.draft)


def _named_pair(name: str, models: StoredOptions, k: str | None) -> Pair:
    """The pair that `pairs add` describes. Raises: UsageError, NotAvailable."""
    from specdec_cli.pairs import files, registry

    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid name for a pair", "use letters, digits, dots, - and _ only")
    if name == DEMO:
        hint = "use another name: specdec pairs add mine --target ID --draft ID"
        raise UsageError(f"{name} names the pair that ships inside specdec", hint)
    if models.target is None:
        raise UsageError(f"pair {name} has no target", f"specdec pairs add {name} --target ID --draft ID")
    for option, revision in (("target", models.target_revision), ("draft", models.draft_revision)):
        if revision is not None and not registry.DIGEST.fullmatch(revision):
            hint = "give the commit's 40 hex digits: a branch or tag may name other files tomorrow"
            raise UsageError(f"--{option}-revision {revision} is not a commit, so a pair cannot store it", hint)
    if models.draft is not None and models.head_from is not None:
        problem = f"--draft {models.draft} and --head-from {models.head_from} both name a draft"
        raise UsageError(problem, "give one of the two")
    length, draft = parse_k(k), models.draft if models.head_from is None else HEAD + models.head_from
    if models.draft_adapter is not None and draft is None:
        raise UsageError(f"--draft-adapter {models.draft_adapter} has no draft", "name one: --draft ID")
    given = models.adapter, models.draft_adapter
    adapter, draft_adapter = (folder and str(Path(folder).expanduser().absolute()) for folder in given)
    return Pair(
        name,
        files.name_to_keep(models.target),
        None if draft is None else files.name_to_keep(draft),
        "auto" if length is None else length,
        target_revision=models.target_revision,
        draft_revision=models.draft_revision,
        target_adapter=adapter,
        draft_adapter=draft_adapter,
    )


@pairs_app.command("use")
@grouped
def use(*, named: NameOptions, yes: bool = False, force: bool = False) -> None:
    """Make a pair the default, used when you give no --pair.

    One that is not here is pulled first, if you agree.
    """
    from specdec_cli.pairs import registry

    name = named.required
    # Whatever the default pair is now: an unknown one can be replaced.
    known = registry.load_registry(registry.packaged_file(), registry.user_file())
    if name not in known.pairs and (add := _adding(name)):
        raise NotAvailable(f"{name} is a model that is here, and the default is a pair", add)
    pair = known.find(name)
    if not force:
        _bring(pair, yes)
    registry.set_default(config_file(), registry.user_file(), name)
    say(f"{name} is now the default pair")


def _adding(name: str) -> str:
    """The command that makes a pair of the model of that name, with its draft; empty where none is here."""
    from specdec_cli.pairs.choose import choose

    with suppress(SpecdecError):
        pair = choose(name, None, None, here=True).pair
        called = pair.name if NAME.fullmatch(pair.name) else "NAME"
        return shlex.join(["specdec", "pairs", "add", called, *pair.options])
    return ""


def _bring(pair: Pair, yes: bool) -> None:
    """Pull what is missing of `pair`. Raises: NotAvailable where it may not or cannot be pulled."""
    from specdec_cli.pairs import catalog

    problem = catalog.missing(pair)
    if problem is None:
        return
    if not catalog.can_be_pulled(problem):
        raise problem
    if not (yes or sys.stdin.isatty()):
        raise NotAvailable(
            f"{pair.name} is not downloaded, so it cannot be the default pair",
            f"specdec pull {pair.name}; --yes downloads it now, --force makes it the default anyway",
        )
    from specdec_cli.apps.pairs.download import PullScreen
    from specdec_cli.pairs.pull import pull

    total = catalog.size_bytes(pair, catalog.confirmed())
    ask(f"{pair.name} is not here{f' ({size(total)})' if total else ''}. Pull it now?", yes)
    pull(pair, PullScreen(sys.stderr), context_tokens=None, verify=False, force=False)


@pairs_app.command("remove")
@grouped
def remove(*, named: NameOptions, yes: bool = False) -> None:
    """Take a pair out of your models.toml; no model is deleted.

    A packaged pair of that name comes back.
    """
    from specdec_cli.pairs import catalog, registry, tuned

    name, known, file = named.required, catalog.registry(), registry.user_file()
    pair = known.find(name)
    if pair.source != "yours":
        shipped = all(catalog.is_local(model) for model, _ in pair.models)
        here = "its models ship inside specdec: nothing was downloaded"
        hint = here if shipped else f"specdec rm {name} removes its downloaded files"
        raise UsageError(f"{name} is packaged with specdec; it is not in {file}", hint)
    ask(f"Remove {name} ({pair.described}) from {file}?", yes)
    _take_out(name, known, "; no model was deleted")
    if folder := tuned.folder_of(pair):
        say(f"{folder} is still there: specdec rm {folder.name} deletes it")


def _take_out(name: str, known: Registry, also: str = "") -> None:
    """The entry out of the user's file; a packaged pair of that name comes back. `also` is said with it."""
    from specdec_cli.pairs import registry

    file = registry.user_file()
    packaged = registry.read_registry(registry.packaged_file(), "packaged").pairs.get(name)
    was_default = known.default_pair == name and packaged is None
    if was_default:
        registry.set_default(config_file(), file, None)  # first: a default pair without an entry would be an error
    registry.remove_pair(file, name)
    say(f"{name} was removed from {file}{also}")
    if packaged is not None:
        say(f"the packaged {name} is back: {packaged.described}")
    if was_default:
        say(f"{name} was the default pair; choose another: specdec pairs use NAME")


@app.command()
@grouped
def check(
    *,
    named: NameOptions,
    models: PairOptions,
    max_context: int | None = None,
    kv_bits: int | None = None,
    machines: HostOptions,
    json: bool = False,
    offline: bool = False,
) -> None:
    """Verdict on a pair from a few hundred kB, before any weight.

    Tokenizers, caches, memory, expected gain.
    """
    from specdec_cli.apps.pairs.screen import print_checks, print_verdict
    from specdec_cli.pairs import catalog, files
    from specdec_cli.pairs.check import judge
    from specdec_cli.pairs.choose import choose
    from specdec_cli.pairs.fit import Fit
    from specdec_cli.terminal.display import print_json

    with files.explain_offline(offline):
        spec = choose(named.given, models.target, models.draft, here=offline)
    # A verdict on fetched files would hide that the files here cannot answer.
    for problem in catalog.partly_here(spec.pair.models):
        raise problem
    others = machine_bytes(machines, kv_bits)
    found = files.find(PairSpec.of(spec.pair), weights="headers", offline=offline)
    verdict = judge(Fit.of(found, kv_bits, 1 + len(others)), max_context, others)
    if spec.reason:
        say(spec.reason)
    if json:
        print_json(sys.stdout, verdict.to_dict())
    else:
        first, last = (print_verdict, print_checks) if verdict.obstacles else (print_checks, print_verdict)
        first(sys.stdout, verdict)
        last(sys.stdout, verdict)
    if verdict.exit_code:
        raise typer.Exit(verdict.exit_code)


@app.command()
@grouped
def pull(
    *,
    named: NameOptions,
    models: PairOptions,
    max_context: int | None = None,
    verify: bool = False,
    yes: bool = False,
    force: bool = False,
    offline: bool = False,
) -> None:
    """Download a pair, checking it first.

    Without a name specdec recommends one for this machine, and asks.
    """
    from specdec_cli.apps.pairs.download import PullScreen
    from specdec_cli.pairs import catalog, choose, files
    from specdec_cli.pairs.pull import pull

    if (name := named.given) is None and models == PairOptions():
        pair = choose.recommended(catalog.registry())
        reason = f"{pair.name} is recommended for this machine: {pair.described}"
        require_answer(f"{reason}. Pull it?", yes)
    else:
        yes = True
        with files.explain_offline(offline):
            spec = choose.choose(name, models.target, models.draft, here=offline)
        pair, reason = spec.pair, spec.reason
    if reason:
        say(reason)

    def agree(download_bytes: int) -> None:
        ask(f"download {size(download_bytes)}?", yes, usual=True)

    screen = PullScreen(sys.stderr)
    pull(pair, screen, context_tokens=max_context, verify=verify, force=force, offline=offline, agree=agree)


@app.command()
@grouped
def rm(*, named: NameOptions, yes: bool = False) -> None:
    """Remove a downloaded or tuned pair.

    It says what is shared and what was freed.
    """
    from specdec_cli.pairs import catalog, tuned
    from specdec_cli.pairs.pull import carry_out, plan_removal
    from specdec_cli.session import disk_entries

    name, known = named.required, catalog.registry()
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
            _take_out(name, known)
        return
    plans = plan_removal(name, known)
    say(*(plan.summary for plan in plans))
    ask(f"Free {size(sum(plan.removal.freed_bytes for plan in plans))}?", yes)
    say(f"freed {size(carry_out(plans))}")
    if name == known.default_pair:
        say(f"{name} is still the default pair, and cannot answer: specdec pairs use NAME")
