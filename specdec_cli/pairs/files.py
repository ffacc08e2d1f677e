"""Which files are this pair? The one answer, for whatever loads, checks, pulls or serves it. No weight is read.

With weights `here`, all weight files must be on this machine. With `headers`, a model may be on the Hub only: the
headers of its weights are read there, and its other files fetched, of which a tokenizer is some MB. A draft that was
asked for and cannot draft is an error. A head that merely lies among the target's files is then left out, and a line
says why.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from specdec_cli import hub
from specdec_cli.core import jsonfile
from specdec_cli.core.errors import NotAvailable, PartlyHere, Refused
from specdec_cli.core.format import size
from specdec_cli.core.kinds import DRAFTERS, HEAD, MODEL, TRANSLATED, DrafterKind
from specdec_cli.core.progress import OnStep, unseen
from specdec_cli.core.safetensors import INDEX, is_beside, read_header
from specdec_cli.models.checkpoint import Checkpoint, checkpoint_of, read_checkpoint
from specdec_cli.models.heads import (
    ANNOUNCING,
    HeadFiles,
    find_head,
    head_in,
    is_for_a_head,
    is_head_only,
    read_head,
    refuse_pickle,
)
from specdec_cli.models.translation import Translation, sample_text
from specdec_cli.models.vocab import VocabVerdict, compare
from specdec_cli.pairs.catalog import (
    can_be_pulled,
    from_anywhere,
    is_downloaded,
    is_local,
    network_forbidden,
    registry,
    size_bytes,
)
from specdec_cli.pairs.limits import ContextLimit
from specdec_cli.pairs.names import settle
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.pairs.tuned import folder_of, require_bound

if TYPE_CHECKING:
    from specdec_cli.models.tokenizer import Tokenizer

Weights = Literal["here", "headers"]
Notify = Callable[[str], None]


def unheard(sentence: str) -> None:
    """A Notify that nobody reads."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's `checkpoint`; `snapshot` is its commit if it was asked for on the Hub: weights may be missing here.

    Of that commit's weights `unloaded_bytes` belong to towers of pictures and sound and to heads, which mlx-lm drops,
    less what FP8 takes more in memory, as bfloat16.
    """

    checkpoint: Checkpoint
    snapshot: hub.HubSnapshot | None = None
    unloaded_bytes: int = 0

    @property
    def weight_bytes(self) -> int:
        """Bytes in memory; of a model on the Hub, about as many as its files hold of the language model."""
        if self.snapshot is None:
            return self.checkpoint.loaded_bytes
        return self.snapshot.weight_bytes - self.unloaded_bytes


@dataclass(frozen=True, slots=True)
class DraftHead:
    """A head as draft. `asked`: somebody named it, so that it is an error if it cannot draft.

    `snapshot` is its commit where a repository holds it alone, `origin` that of the larger repository that a pull takes
    it out of: its headers, its `config`, which is config.json as bytes, and the head's tensors.
    """

    head: HeadFiles
    asked: bool = True
    snapshot: hub.HubSnapshot | None = None
    origin: hub.HubSnapshot | None = None
    config: bytes = b""


@dataclass(frozen=True)
class PairFiles:
    """The files of a pair. `draft` is None where the drafter of `spec` uses none. Tokenizers are read once."""

    spec: PairSpec
    target: ModelFiles
    draft: ModelFiles | DraftHead | None = None

    @property
    def models(self) -> list[ModelFiles]:
        """Target and draft model."""
        return [self.target, self.draft] if isinstance(self.draft, ModelFiles) else [self.target]

    @property
    def names(self) -> tuple[str, str | None]:
        """The target's and the draft's; a head among the target's files has the target's."""
        draft = self.draft.checkpoint if isinstance(self.draft, ModelFiles) else self.head
        return self.target.checkpoint.name, draft.name if draft else None

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [model.checkpoint for model in self.models]

    @property
    def head(self) -> HeadFiles | None:
        """The head that drafts."""
        return self.draft.head if isinstance(self.draft, DraftHead) else None

    @property
    def draft_kind(self) -> str | None:
        """The kind of drafter that the draft is: `model`, or a head's; None where there is none."""
        if isinstance(self.draft, DraftHead):
            return self.draft.head.family.kind
        if self.draft is None:
            return None
        return TRANSLATED.name if self.vocab and self.vocab.status == "translated" else MODEL.name

    @property
    def without_unasked_head(self) -> PairFiles | None:
        """The pair without a head that nobody asked for; None where there is no such head."""
        return replace(self, draft=None) if isinstance(self.draft, DraftHead) and not self.draft.asked else None

    def shared_by(self, group: Any) -> PairFiles:
        """The pair with a target of which each machine of `group` computes its share."""
        return replace(self, target=replace(self.target, checkpoint=replace(self.target.checkpoint, group=group)))

    @property
    def snapshots(self) -> list[hub.HubSnapshot]:
        """The commits that a pull fetches."""
        parts = [self.target, *([self.draft] if self.draft else [])]
        return [part.snapshot for part in parts if part.snapshot is not None]

    @property
    def pair(self) -> Pair:
        """The pair, with its models as the Hub spells them; folders keep their names."""
        pair = self.spec.pair
        target, draft = (part.snapshot if part else None for part in (self.target, self.draft))
        return replace(pair, target=target.name if target else pair.target, draft=draft.name if draft else pair.draft)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The target's. Raises: NotAvailable."""
        from specdec_cli.models.tokenizer import Tokenizer

        return Tokenizer.of(self.target.checkpoint)

    @property
    def vocab_size(self) -> int:
        """Tokens that the target has a score for. Raises: NotAvailable."""
        stated = self.target.checkpoint.whole("vocab_size", 0)
        return stated or max(self.tokenizer.table().tokens) + 1

    @property
    def context(self) -> ContextLimit:
        """What both models were made for."""
        limits = [checkpoint.context_limit for checkpoint in self.checkpoints]
        return ContextLimit(limits[0], limits[1] if len(limits) > 1 else None)

    @cached_property
    def vocab(self) -> VocabVerdict | None:
        """Whether target and draft model share their ids, or else words; None without a draft model.

        Raises: NotAvailable.
        """
        if len(self.models) == 1:
            return None
        own, other = self.tokenizer, self._draft_tokenizer
        if other is own:  # the same files: a table of a quarter million entries need not be made
            return VocabVerdict("identical", f"all {other.size} ids agree")
        found = compare(own.table(), other.table())
        if found.status != "incompatible":
            return found
        return found.of_share(self.translation.share(own.continuation(sample_text())))

    @cached_property
    def translation(self) -> Translation:
        """Between the ids of target and draft model. Raises: NotAvailable."""
        other = self._draft_tokenizer
        return Translation(self.tokenizer.table(), other.table(), other.encode(""))

    @cached_property
    def _draft_tokenizer(self) -> Tokenizer:
        return self.tokenizer.or_of(*self.checkpoints)


def find(
    spec: PairSpec,
    tell: Notify = unheard,
    weights: Weights = "here",
    *,
    offline: bool = False,
    report: OnStep = unseen,
) -> PairFiles:
    """The files of the pair that `spec` asks for, each model at one commit. `tell` hears of a head that cannot draft.

    `offline` asks the Hub nothing; `report` hears how much of it came. Raises: NotAvailable, Refused.
    """
    pair, kind = spec.pair, DRAFTERS[spec.drafter]
    with explain_offline(offline) if weights == "headers" else nullcontext():
        folder, name, snapshot = _locate(pair, pair.target, pair.target_revision, weights, offline, report)
        target = read_model(folder, name, snapshot)
        draft = _find_draft(pair, target, kind, weights, tell, offline, report)
    target = replace(target, checkpoint=target.checkpoint.with_adapter(pair.target_adapter))
    if weights == "here" and (tuned := folder_of(pair)) is not None:
        require_bound(tuned, target.checkpoint, draft.checkpoint if isinstance(draft, ModelFiles) else None)
    match draft:
        case ModelFiles(checkpoint=checkpoint):
            draft = replace(draft, checkpoint=checkpoint.as_draft(pair.recent).with_adapter(pair.draft_adapter))
        case DraftHead(head=head):
            draft = replace(draft, head=head.reading(pair.recent))
    return PairFiles(spec, target, draft)


def _locate(
    pair: Pair, name: str, revision: str | None, weights: Weights, offline: bool, report: OnStep
) -> tuple[Path, str, hub.HubSnapshot | None]:
    """(folder, the model's name as the Hub spells it, the commit on the Hub)."""
    if weights == "here":
        return model_folder(pair, name, revision), name, None
    if is_local(name) or (revision is None and hub.elsewhere(name)):
        return hub.locate(name), name, None
    snapshot = hub.resolve(name, revision, offline=offline)
    return hub.fetch_small(snapshot, report), snapshot.name, snapshot


def read_model(folder: Path, name: str, snapshot: hub.HubSnapshot | None = None) -> ModelFiles:
    """What `folder` holds of the model `name`, and its `snapshot` where it is on the Hub; as `read_checkpoint`."""
    checkpoint = read_checkpoint(folder, name, weights=snapshot is None)
    return ModelFiles(checkpoint, snapshot, _unloaded_bytes(checkpoint, snapshot) if snapshot else 0)


def _unloaded_bytes(checkpoint: Checkpoint, snapshot: hub.HubSnapshot) -> int:
    """As in ModelFiles, by the headers of those files that hold any of it, as far as these can be read."""
    language, shards = checkpoint.text_config, jsonfile.read_or_empty(checkpoint.folder / INDEX).get("weight_map")
    fp8 = checkpoint.unpacks_fp8
    if isinstance(shards, dict) and not fp8:
        holding = {str(file) for tensor, file in shards.items() if is_beside(tensor, checkpoint.config)}
    elif fp8 or language is not checkpoint.config or any(language.get(key) for key in ANNOUNCING):
        holding = {file.path for file in snapshot.files if file.is_weights}
    else:
        return 0
    files = {checkpoint.folder / one.path: one for one in snapshot.files if one.path in holding}
    files = {path: one for path, one in files.items() if one not in snapshot.head_files}
    away = [one for path, one in files.items() if not path.is_file()]
    with suppress(NotAvailable):
        headers = [*map(read_header, filter(Path.is_file, files)), *hub.remote_headers(snapshot, away).values()]
        tensors = [tensor for header in headers for tensor in header.tensors.values()]
        dropped = sum(tensor.size_bytes for tensor in tensors if is_beside(tensor.name, checkpoint.config))
        return sum(tensor.size_bytes for tensor in tensors) - checkpoint.bytes_of(headers) if fp8 else dropped
    return 0


def _find_draft(
    pair: Pair, target: ModelFiles, kind: DrafterKind, weights: Weights, notify: Notify, offline: bool, report: OnStep
) -> ModelFiles | DraftHead | None:
    """What drafts for `target` when `kind` does: the pair's draft, else a head among the target's own files."""
    if pair.draft and kind.by_network:
        found = _read_draft(pair, pair.draft, weights, offline, report)
        if isinstance(found, DraftHead) or kind.uses_draft:
            return found
    if kind.reads_hidden:
        if head := _own_head(target, asked=True):
            return DraftHead(head)
        checkpoint = target.checkpoint
        raise NotAvailable(
            f"--drafter {kind.name}: {checkpoint.name} ({checkpoint.model_type}) has no {kind.name} head in its files",
            "give one: --draft FOLDER with a head, or let the text itself draft: --drafter ngram",
        )
    if not kind.mixed:
        return None
    try:
        own = _own_head(target)
    except (NotAvailable, Refused) as error:
        notify(f"no head drafts: {error.message}")
        return None
    return DraftHead(own, asked=False) if own else None


def _own_head(target: ModelFiles, asked: bool = False) -> HeadFiles | None:
    """The head among the target's own files; those that are not here yet are known by their headers on the Hub.

    There, files that do not look like a head's are searched only where a head was `asked` for.
    """
    snapshot = target.snapshot
    if snapshot is None:
        return find_head(target.checkpoint)
    files = snapshot.head_files
    if asked and not files:
        files = tuple(file for file in snapshot.files if file.is_weights)
    if all(file.cached for file in files):
        return find_head(target.checkpoint)
    return head_in(target.checkpoint, hub.remote_headers(snapshot, files, target.checkpoint.folder))


def _read_draft(pair: Pair, name: str, weights: Weights, offline: bool, report: OnStep) -> ModelFiles | DraftHead:
    """The draft `name`, which may be a head."""
    if name.startswith(HEAD) and weights == "headers" and not (offline or network_forbidden()):
        return _in_origin(name.removeprefix(HEAD), pair.draft_revision)
    folder, spelled, snapshot = _locate(pair, name, pair.draft_revision, weights, offline, report)
    refuse_pickle(
        [file.path for file in snapshot.files] if snapshot else (path.name for path in folder.iterdir()), spelled
    )
    if not is_for_a_head(folder, spelled):
        return read_model(folder, spelled, snapshot)
    if snapshot and not all((folder / file.path).is_file() for file in snapshot.files if file.is_weights):
        checkpoint = read_checkpoint(folder, spelled, weights=False, heads=True)
        head = head_in(checkpoint, hub.remote_headers(snapshot))
        if head is None:
            raise NotAvailable(f"{spelled} ({checkpoint.model_type}) holds no head", "name another draft")
    else:
        head = read_head(folder, spelled)
    return DraftHead(head, snapshot=snapshot)


def model_folder(pair: Pair, name: str, revision: str | None) -> Path:
    """Where `name`, a model of `pair`, is.

    Raises: NotAvailable, with a hint that pulls the whole pair where models.toml lists it.
    """
    try:
        return hub.locate(name, revision)
    except NotAvailable as error:
        if not can_be_pulled(error) or pair.source == "command line":
            raise
        known = registry()
        if known.pairs.get(pair.name, pair).models != pair.models:  # at other revisions
            raise
        default = known.default_pair == pair.name
        other = ", or another default: specdec pairs use NAME" if default else ""
        which = f"the default pair {pair.name}" if default else pair.name
        total = size_bytes(pair, estimate=True)
        # Of a pair that is partly here only the part that is not.
        partly = isinstance(error, PartlyHere) or any(is_downloaded(*one) for one in pair.models)
        about = f": {error.message}" if partly else f" ({size(total)})" if total else ""
        pull = f"{hub.PULL} {shlex.quote(pair.name)}"
        raise type(error)(f"{which} is not downloaded{about}", f"{pull}{other}") from error


@contextmanager
def explain_offline(offline: bool) -> Iterator[None]:
    """Errors about missing files say that the network is forbidden, where it is and a pull would bring them."""
    try:
        yield
    except NotAvailable as error:
        by = network_forbidden()
        if not (can_be_pulled(error) and (offline or by)):
            raise
        hint = f"unset {by}"
        if offline:
            by, hint = "--offline", "leave out --offline, or unset SPECDEC_OFFLINE"
        raise type(error)(f"{error.message}, and {by} forbids asking the Hub", hint) from error


def name_to_keep(name: str) -> str:
    """A model's name as models.toml keeps it: a folder by its whole path, so that it is found from anywhere.

    Raises: NotAvailable for a folder that does not exist, or that holds no model.
    """
    name = settle(name)
    if not is_local(name) or name.startswith(HEAD):
        hub.require_hub_id(name.removeprefix(HEAD))
        return name
    folder = hub.locate(name)
    read_checkpoint(folder, name, weights=False, heads=is_head_only(folder))
    return from_anywhere(name)


def _in_origin(name: str, revision: str | None) -> DraftHead:
    """The head in the repository `name`, from the Hub. Raises: NotAvailable, Refused."""
    snapshot = hub.resolve(name, revision)
    config = hub.read_config(snapshot)
    try:
        values = jsonfile.parse_object(config)
    except jsonfile.NotJson as error:
        raise NotAvailable(f"config.json of {snapshot.name} is not valid JSON: {error}", "name another") from error
    checkpoint = checkpoint_of(values, Path(snapshot.name), snapshot.name)
    headers = hub.remote_headers(snapshot)
    head = head_in(checkpoint, headers)
    if head is None:
        tensors = sum(len(header.tensors) for header in headers.values())
        raise NotAvailable(
            f"{snapshot.name} ({checkpoint.model_type}) holds no MTP head among {tensors} tensors",
            "name the original repository of the target, or a head alone: --draft ID",
        )
    return DraftHead(head, origin=snapshot, config=config)
