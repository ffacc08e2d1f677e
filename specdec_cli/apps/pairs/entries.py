"""The pairs that are known: listed, added, made the default, removed. An entry goes only after a question."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import replace

from specdec_cli.apps.pairs.download import checking
from specdec_cli.apps.pairs.screen import print_pairs
from specdec_cli.command.command import ask, say
from specdec_cli.command.options import StoredOptions
from specdec_cli.core.errors import NotAvailable, SpecdecError, UsageError
from specdec_cli.core.format import size
from specdec_cli.core.kinds import HEAD
from specdec_cli.core.readfile import expanded
from specdec_cli.core.request import parse_k
from specdec_cli.pairs import catalog, files, registry, tuned
from specdec_cli.pairs.choose import choose, drafted, fitting
from specdec_cli.pairs.pair import DEMO, NAME, Pair, Registry
from specdec_cli.session import disk_entries
from specdec_cli.system.config import config_file, model_folders
from specdec_cli.system.machine import physical_bytes
from specdec_cli.terminal.display import print_json


def show(json: bool, every: bool) -> None:
    """All of them on stdout. Raises: NotAvailable for models that are partly here, once all is told."""
    known = catalog.registry()
    rows = catalog.rows(known)
    best = [pair.name for pair in fitting(known)[:1]]
    rows = [replace(row, recommended=row.pair.name in best) for row in rows]
    with checking("what is here") as report:
        rows = drafted([*rows, *catalog.other_rows(known, rows)], known, report)
    if json:
        print_json(sys.stdout, [row.to_dict() for row in rows])
    else:
        print_pairs(sys.stdout, rows, physical_bytes(), every)
        if held := disk_entries.held_bytes():
            say(f"{size(held)} of conversations that were read: specdec rm {disk_entries.DISK_CACHE} removes them")
    unread = [folder for folder in model_folders() if not os.access(folder, os.R_OK | os.X_OK)]
    say(*(f"{folder}, one of your model folders, is not there or cannot be read" for folder in unread))
    damaged = catalog.partly_here(known.pairs.values())
    say(*(f"{problem.message}; {problem.hint}" for problem in damaged[1:]))
    if damaged:
        raise damaged[0]


def add(name: str, models: StoredOptions, k: str | None, yes: bool) -> None:
    """The entry `name`, new or in place of one. Raises: UsageError, NotAvailable."""
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
    same = all(getattr(new, field) in (None, getattr(known, field)) for field in registry.OF_THE_FILES)
    return same and (new.target, new.draft) == (known.target, known.draft)


def _named_pair(name: str, models: StoredOptions, k: str | None) -> Pair:
    """The pair that `pairs add` describes. Raises: UsageError, NotAvailable."""
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
    adapter, draft_adapter = (folder and str(expanded(folder).absolute()) for folder in given)
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


def use(name: str, yes: bool, force: bool) -> None:
    """The default pair is `name`. Raises: NotAvailable where it is not here, and is not pulled."""
    # Whatever the default pair is now: an unknown one can be replaced.
    known = registry.load_registry(registry.packaged_file(), registry.user_file())
    if name not in known.pairs and (command := _adding(name)):
        raise NotAvailable(f"{name} is a model that is here, and the default is a pair", command)
    pair = known.find(name)
    if not force:
        _bring(pair, yes)
    registry.set_default(config_file(), registry.user_file(), name)
    say(f"{name} is now the default pair")


def _adding(name: str) -> str:
    """The command that makes a pair of the model of that name, with its draft; empty where none is here."""
    with suppress(SpecdecError), checking(name) as report:
        pair = choose(name, None, None, here=True, report=report).pair
        called = pair.name if NAME.fullmatch(pair.name) else "NAME"
        return shlex.join(["specdec", "pairs", "add", called, *pair.options])
    return ""


def _bring(pair: Pair, yes: bool) -> None:
    """Pull what is missing of `pair`. Raises: NotAvailable where it may not or cannot be pulled."""
    problem = catalog.missing(pair)
    if problem is None:
        return
    if not catalog.can_be_pulled(problem):
        raise problem
    if not (yes or sys.stdin.isatty()):
        raise NotAvailable(
            f"{pair.name} is not downloaded, so it cannot be the default pair",
            f"specdec pull {shlex.quote(pair.name)}; --yes downloads it now, --force makes it the default anyway",
        )
    from specdec_cli.apps.pairs.pull import pull  # with mlx

    total = catalog.size_bytes(pair)
    ask(f"{pair.name} is not here{f' ({size(total)})' if total else ''}. Pull it now?", yes)
    pull(pair, yes=True, remedies=frozenset())


def remove(name: str, yes: bool) -> None:
    """The entry `name` goes. Raises: UsageError for a pair that is packaged."""
    known, file = catalog.registry(), registry.user_file()
    pair = known.find(name)
    if pair.source != "yours":
        shipped = all(catalog.is_local(model) for model, _ in pair.models)
        here = "its models ship inside specdec: nothing was downloaded"
        hint = here if shipped else f"specdec rm {name} removes its downloaded files"
        raise UsageError(f"{name} is packaged with specdec; it is not in {file}", hint)
    ask(f"Remove {name} ({pair.described}) from {file}?", yes)
    take_out(name, known, "; no model was deleted")
    if folder := tuned.folder_of(pair):
        say(f"{folder} is still there: specdec rm {folder.name} deletes it")


def take_out(name: str, known: Registry, also: str = "") -> None:
    """The entry out of the user's file; a packaged pair of that name comes back. `also` is said with it."""
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
