"""The head of a pair: found among files, loaded, and checked once. Law: nothing that guesses at random drafts.

A head that was asked for fails with its reason. One that merely lies among the target's files is used if it proves
itself, and is left alone with a line that says why if it does not.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs

from specdec_cli.engine.heads.agreement import Agreement
from specdec_cli.engine.heads.branches import Text
from specdec_cli.engine.heads.cached import CachedHead, Head, readout_for
from specdec_cli.engine.heads.check import LOOKS, check, own_texts
from specdec_cli.engine.heads.load import load_head
from specdec_cli.engine.heads.shortlist import Shortlist
from specdec_cli.engine.heads.shortlist_size import useful_tokens
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock
from specdec_cli.errors import NotAvailable, Refused
from specdec_cli.kinds import HEAD, DrafterKind
from specdec_cli.models.checkpoint import WEIGHTS, Checkpoint
from specdec_cli.models.heads import HeadFiles, find_head, is_for_a_head, read_head
from specdec_cli.pairs.here import model_folder
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.cost_file import CostFile, CostStore
from specdec_cli.session.fingerprint import identity_of

# Of the check itself, and of how heads are loaded: a result of another version is measured anew.
VERSION = 2
# Short, of several kinds, and unlike each other: the target goes on from each.
PROMPTS = (
    "Write a Python function that returns the lines of a file that hold a word.",
    "Tell a short story about a lighthouse keeper who finds a letter.",
    "Explain why the sky is blue to a child.",
    "List eight things to pack for a week in the mountains.",
    'Continue this JSON: [{"city": "Lima", "country": "Peru"}, {"city": "Oslo",',
    "What is 17 times 24? Show the steps.",
    "Translate into French: Good morning, where is the station?",
    "Write a shell command that counts the lines of all text files.",
)
Tell = Callable[[str], None]


def agreement_file() -> CostFile:
    """What the checks of heads found on this machine, beside the costs of rounds."""
    return CostFile(platformdirs.user_state_path("specdec") / "heads.json")


def named_head(pair: Pair, target: Checkpoint, kind: DrafterKind) -> HeadFiles | None:
    """The head that drafts because it was asked for: the pair's draft, or with `--drafter mtp` the target's own.

    None where the draft is a language model, or where nobody asked. Raises: NotAvailable, Refused.
    """
    if pair.draft and (kind.uses_draft or kind.reads_hidden):
        folder = model_folder(pair, pair.draft, pair.draft_revision)
        if is_for_a_head(folder, pair.draft):
            return drafting_head(folder, pair.draft, target)
    if not kind.reads_hidden:
        return None
    found = find_head(target)
    if found is None:
        raise NotAvailable(
            f"--drafter {kind.name}: {target.name} ({target.model_type}) has no MTP head among its files",
            "give one: --draft FOLDER with a head, or let the text itself draft: --drafter ngram",
        )
    return found


def drafting_head(folder: Path, name: str, target: Checkpoint) -> HeadFiles:
    """The head in `folder`, the draft `name` for `target`; one that specdec took out of a repository is packed like it.

    Raises: NotAvailable, Refused.
    """
    files = read_head(folder, name)
    return files.packed_like(target) if name.startswith(HEAD) else files


def own_head(target: Checkpoint, tell: Tell) -> HeadFiles | None:
    """The head among the files of `target`, where nobody asked for one; what is wrong with it is only told."""
    try:
        return find_head(target)
    except (NotAvailable, Refused) as error:
        tell(f"no head drafts: {error.message}")
        return None


def checked_head(
    files: HeadFiles,
    target: CachedModel,
    prompts: Sequence[Sequence[int]],
    stops: frozenset[int],
    store: CostStore,
    key: str,
    tell: Tell,
    clock: Clock = time.perf_counter,
) -> CachedHead:
    """The head in `files`, used as the check found best; it is checked unless `store` remembers it by `key`.

    Raises: NotAvailable for files that are wrong, Refused for a head that does not guess, or not for this target.
    """
    readout = readout_for(target.network, files.name)
    module = load_head(files, readout.hidden_size)
    files.require_outputs(readout.vocab_size)
    found = remembered(store, key)
    if found is None:
        tell(f"checking the head of {files.name} against {LOOKS[0]} tokens of the target's own, once")
        began = clock()
        texts: list[Text] = []
        found = check(module, target, files.zero_centred, _kept(own_texts(target, prompts, stops), texts))
        found = replace(found, shortlist=useful_tokens(module, target, texts, found.by_step[0], stops, clock))
        tell(f"the head {found.summary}; the check took {clock() - began:.0f} s")
        store.write(key, found.to_dict() | {"version": VERSION})
    found.require_guesses(files.name, target.name)
    if found.variant.zero_centred != files.zero_centred:
        module = load_head(files, readout.hidden_size, found.variant.zero_centred)
    module.recipe = found.variant.recipe
    readout = readout.scored_by(module.output)
    cut = Shortlist(readout, found.shortlist, stops) if 0 < found.shortlist < readout.vocab_size else None
    return CachedHead(Head(module, target.network, files.name, found, cut))


def _kept(texts: Iterator[Text], kept: list[Text]) -> Iterator[Text]:
    """`texts`, each of which is in `kept`, too, once it was asked for."""
    for text in texts:
        kept.append(text)
        yield text


def remembered(store: CostStore, key: str) -> Agreement | None:
    """What an earlier check found, None for nothing or nonsense."""
    values: Mapping[str, Any] = store.read(key) or {}
    if values.get("version") != VERSION:
        return None
    try:
        return Agreement.from_dict(values)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def agreement_key(files: HeadFiles, target: Checkpoint) -> str:
    """Of one head and one target: another file, size or date of either is another key."""
    digest = hashlib.sha256()
    for path in [*files.files, *sorted(target.folder.glob(WEIGHTS)), target.folder / "config.json"]:
        digest.update(identity_of(path).encode())
    return f"{files.name} for {target.name} · {digest.hexdigest()[:16]}"


def agreements() -> list[tuple[str, str]]:
    """(head and target, what was found) of every check that this machine remembers."""
    store = agreement_file()
    found = [(key.partition(" · ")[0], remembered(store, key)) for key in store.known_keys()]
    return [(name, agreement.summary) for name, agreement in found if agreement]


def agreement_here(files: HeadFiles, target: Checkpoint) -> str:
    """What a check on this machine found of this head and target, in one line; empty where there was none."""
    if not all(path.is_file() for path in files.files):
        return ""
    found = remembered(agreement_file(), agreement_key(files, target))
    return found.summary if found else ""
