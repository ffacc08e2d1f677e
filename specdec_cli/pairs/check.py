"""Builds the verdict on a pair from a few hundred kB: no weight is read, so none need be downloaded.

Of a repository that only lends its head nothing comes but headers, its config.json and the head's own tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_cli import hub, jsonfile
from specdec_cli.errors import NotAvailable, Refused, SpecdecError
from specdec_cli.kinds import HEAD
from specdec_cli.models.checkpoint import Checkpoint, checkpoint_of, parse_header, read_checkpoint
from specdec_cli.models.heads import HeadFiles, find_head, head_in, is_for_a_head, read_head
from specdec_cli.models.vocab import compare
from specdec_cli.pairs.advice import Side, advise, break_even
from specdec_cli.pairs.catalog import is_local, network_forbidden
from specdec_cli.pairs.local import explain_offline
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.verdict import Verdict

if TYPE_CHECKING:
    from specdec_cli.models.tokenizer import Tokenizer

DEFAULT_CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class HeadSource:
    """The `head` in `snapshot`, whose configuration is the bytes `config`; `chosen` are its tensors by their file."""

    snapshot: hub.Snapshot
    checkpoint: Checkpoint
    config: bytes
    head: HeadFiles
    chosen: Mapping[hub.RemoteHeader, Collection[str]]

    @property
    def size_bytes(self) -> int:
        return sum(stored.size_bytes for stored in self.head.tensors.values())

    @property
    def kept(self) -> bool:
        """Whether this very commit's head is here."""
        return hub.kept_commit(self.snapshot.name) == self.snapshot.commit

    def keep(self, progress: hub.Progress) -> None:
        """Fetch the tensors and keep them. Raises: NotAvailable, DoesNotFit."""
        layout = "pt" if self.head.zero_centred else "mlx"
        hub.keep_head(self.snapshot, self.config, self.chosen, layout, progress)


def find_source(name: str, revision: str | None) -> HeadSource:
    """The head in the repository `name`, from the Hub. Raises: NotAvailable, Refused."""
    snapshot = hub.resolve(name, revision)
    config = hub.read_config(snapshot)
    try:
        values = jsonfile.parse_object(config)
    except jsonfile.NotJson as error:
        raise NotAvailable(f"config.json of {snapshot.name} is not valid JSON: {error}", "name another") from error
    checkpoint = checkpoint_of(values, Path(snapshot.name), snapshot.name)
    headers = hub.remote_headers(snapshot)
    head = _head_in(checkpoint, headers)
    if head is None:
        tensors = sum(len(parse_header(Path(one.file.path), one.text).tensors) for one in headers)
        raise NotAvailable(
            f"{snapshot.name} ({checkpoint.model_type}) holds no MTP head among {tensors} tensors",
            "name the original repository of the target, or a head alone: --draft ID",
        )
    chosen = {one: {s.name for s in head.tensors.values() if str(s.file) == one.file.path} for one in headers}
    return HeadSource(snapshot, checkpoint, config, head, chosen)


def _head_in(checkpoint: Checkpoint, headers: Sequence[hub.RemoteHeader]) -> HeadFiles | None:
    """The head in files that are not here, by their headers."""
    paths = [Path(header.file.path) for header in headers]
    return head_in(checkpoint, {p: parse_header(p, one.text) for p, one in zip(paths, headers, strict=True)})


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's configuration and tokenizer on this machine; its weights may be elsewhere.

    `snapshot` is the resolved commit, None for a folder. `head`: it is no model but this head, which lies in
    `source` where that is not None.
    """

    checkpoint: Checkpoint
    weight_bytes: int
    snapshot: hub.Snapshot | None = None
    head: HeadFiles | None = None
    source: HeadSource | None = None


def locate_model(name: str, revision: str | None, offline: bool, as_draft: bool = False) -> ModelFiles:
    """Configuration and tokenizer, downloaded if necessary (a few hundred kB); never the weights.

    `as_draft`: it may be a head; of one that is not here, the headers of its files are read.
    Raises: NotAvailable, Refused.
    """
    if name.startswith(HEAD) and not (offline or network_forbidden()):
        source = find_source(name.removeprefix(HEAD), revision)
        return ModelFiles(source.checkpoint, source.head.loaded_bytes, None, source.head, source)
    snapshot = None
    if is_local(name):
        folder = hub.locate(name)
    else:
        snapshot = hub.resolve(name, revision, offline=offline)
        folder, name = hub.fetch_small(snapshot), snapshot.name
    if as_draft and is_for_a_head(folder, name):
        here = snapshot is None or all((folder / f.path).is_file() for f in snapshot.files if f.is_weights)
        checkpoint = read_checkpoint(folder, name, weights=False, heads=True)
        head = _head_in(checkpoint, hub.remote_headers(snapshot)) if snapshot and not here else read_head(folder, name)
        if head is None:
            raise NotAvailable(f"{name} ({checkpoint.model_type}) holds no MTP head", "name another draft")
        return ModelFiles(checkpoint, head.loaded_bytes, snapshot, head)
    checkpoint = read_checkpoint(folder, name, weights=snapshot is None)
    return ModelFiles(checkpoint, snapshot.weight_bytes if snapshot else checkpoint.loaded_bytes, snapshot)


def locate_pair(pair: Pair, offline: bool) -> list[ModelFiles]:
    """Target and draft, each resolved to one commit, so that the commit checked is the commit downloaded.

    Raises: NotAvailable, Refused.
    """
    with explain_offline(offline):
        target = locate_model(pair.target, pair.target_revision, offline)
        if pair.draft is None:
            return [target]
        draft = locate_model(pair.draft, pair.draft_revision, offline, as_draft=True)
    if draft.head is not None and pair.draft.startswith(HEAD):
        draft = replace(draft, head=draft.head.packed_like(target.checkpoint))
    return [target, replace(draft, checkpoint=draft.checkpoint.as_draft(pair.recent))]


def check_pair(
    pair: Pair, located: list[ModelFiles], context_tokens: int | None, kv_bits: int | None = None
) -> Verdict:
    """Answers the five questions about `pair`: tokenizers, template and stops, caches, memory, expected gain.

    Raises: NotAvailable where a tokenizer cannot be read or an architecture is unknown, Refused where caches cannot be
    quantized to `kv_bits`.
    """
    from specdec_cli.engine import device
    from specdec_cli.engine.footprint import estimate
    from specdec_cli.engine.load import empty_model, require_verifiable
    from specdec_cli.models.tokenizer import Tokenizer

    head, located = head_of(located, pair.recent), [model for model in located if model.head is None]
    checkpoints, weights = [m.checkpoint for m in located], [m.weight_bytes for m in located]
    tokenizers = [Tokenizer.of(checkpoints[0])]
    tokenizers += [tokenizers[0].or_of(checkpoints[0], draft) for draft in checkpoints[1:]]
    networks = [empty_model(checkpoint, kv_bits) for checkpoint in checkpoints]
    obstacles = [refusal for checkpoint in checkpoints for refusal in _refusal(partial(require_verifiable, checkpoint))]
    if head is not None:
        obstacles += _refusal(partial(head.require_size, checkpoints[0].whole("hidden_size", 0)))
    vocab = None
    if len(tokenizers) == 2:
        vocab = compare(tokenizers[0].table(), tokenizers[1].table())
        if vocab.status == "incompatible":
            obstacles.insert(0, vocab.refusal(pair.target, str(pair.draft)))
    memory = estimate(checkpoints, weights, context_tokens or DEFAULT_CONTEXT, kv_bits, head)
    if not memory.fits:
        obstacles.append(memory.obstacle())
    sides = [Side(m.weight_bytes, m.checkpoint.config) for m in located]
    draft = sides[1] if len(sides) == 2 else None
    shipped = pair.target.startswith(hub.SHIPPED)  # a demo has the size that a package has
    step_bytes = draft.weight_bytes if draft else head and _step_bytes(head, sides[0])
    return Verdict(
        pair=pair,
        vocab=vocab,
        stop_tokens=tuple(tokenizers[0].piece(token) for token in sorted(tokenizers[0].stop_tokens)),
        has_template=tokenizers[0].has_template,
        caches=tuple((c.name, ", ".join(n.cache_kinds)) for c, n in zip(checkpoints, networks, strict=True)),
        memory=memory,
        break_even=break_even(sides[0], step_bytes, pair.expected_k) if step_bytes else None,
        warnings=_rowless(tokenizers[0], networks[0].vocab_size),
        advice=() if shipped else tuple(advise(sides[0], draft, device.device_name(), head is not None)),
        obstacles=tuple(obstacles),
        head=head,
    )


def head_of(located: Sequence[ModelFiles], recent: int | None = None) -> HeadFiles | None:
    """The head that drafts: the pair's draft, else one among the files of a target without a draft.

    Of files for a head alone that are not here yet, the headers are read. It reads the last `recent` tokens.
    """
    found = _head_of(located)
    return found and replace(found, recent=recent)


def _head_of(located: Sequence[ModelFiles]) -> HeadFiles | None:
    if len(located) > 1:
        return located[1].head
    target, snapshot = located[0].checkpoint, located[0].snapshot
    with suppress(NotAvailable, Refused):
        if snapshot is None or all(file.cached for file in snapshot.head_files):
            return find_head(target)
        return _head_in(target, hub.remote_headers(snapshot, snapshot.head_files))
    return None


def _step_bytes(head: HeadFiles, target: Side) -> int:
    """Bytes that a drafted token reads: the head, and the target's output head at the target's bits."""
    sizes = target.text_config
    rows = 0 if head.scores else int(sizes.get("vocab_size", 0)) * int(sizes.get("hidden_size", 0))
    return head.loaded_bytes + rows * target.bits // 8


def _refusal(require: Callable[[], None]) -> list[SpecdecError]:
    try:
        require()
    except Refused as refusal:
        return [refusal]
    return []


def _rowless(tokenizer: Tokenizer, rows: int) -> tuple[str, ...]:
    """Tokens that the target's embedding has no row for: a prompt may not hold them, and no answer will."""
    ids = [token for token in tokenizer.table().tokens if token >= rows]
    if not ids:
        return ()
    more = f", and {len(ids) - 1} more have none either" if len(ids) > 1 else ""
    first = f"token {tokenizer.piece(min(ids))} has the id {min(ids)}, and the target has {rows} rows{more}"
    return (f"{first}; harmless unless a prompt holds it, which is refused",)
