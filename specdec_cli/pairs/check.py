"""Builds the verdict on a pair from a few hundred kB: no weight is read, so none need be downloaded.

Of a repository that only lends its head nothing comes but headers, its config.json and the head's own tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_cli import hub, jsonfile
from specdec_cli.errors import NotAvailable, Refused, SpecdecError
from specdec_cli.jsonfile import NotJson
from specdec_cli.kinds import HEAD
from specdec_cli.models.checkpoint import (
    Checkpoint,
    Header,
    Stored,
    checkpoint_of,
    read_checkpoint,
    read_json,
    stop_ids,
)
from specdec_cli.models.heads import (
    HeadFiles,
    announces_head_only,
    find_head,
    head_in,
    is_for_a_head,
    is_head_only,
    read_head,
)
from specdec_cli.models.packing import parameter_count
from specdec_cli.models.vocab import VocabVerdict, compare
from specdec_cli.pairs.advice import Side, advise, break_even
from specdec_cli.pairs.catalog import is_local, network_forbidden
from specdec_cli.pairs.local import explain_offline
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.verdict import Verdict

if TYPE_CHECKING:
    from specdec_cli.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class HeadSource:
    """The head `files` in `snapshot`, whose configuration is the bytes `config`; `tensors` are the head's."""

    snapshot: hub.Snapshot
    checkpoint: Checkpoint
    config: bytes
    files: HeadFiles
    tensors: tuple[hub.RemoteTensor, ...]

    @property
    def size_bytes(self) -> int:
        return sum(tensor.size_bytes for tensor in self.tensors)

    @property
    def kept(self) -> bool:
        """Whether this very commit's head is here."""
        return hub.kept_commit(self.snapshot.name) == self.snapshot.commit

    def keep(self, progress: hub.Progress) -> None:
        """Fetch the tensors and keep them. Raises: NotAvailable, DoesNotFit."""
        layout = "pt" if self.files.zero_centred else "mlx"
        hub.keep_head(self.snapshot, self.config, self.tensors, layout, progress)


def find_source(name: str, revision: str | None) -> HeadSource:
    """The head in the repository `name`, from the Hub. Raises: NotAvailable, Refused."""
    snapshot = hub.resolve(name, revision)
    config = hub.read_config(snapshot)
    try:
        values = jsonfile.parse_object(config)
    except NotJson as error:
        raise NotAvailable(f"config.json of {snapshot.name} is not valid JSON: {error}", "name another") from error
    checkpoint = checkpoint_of(values, Path(snapshot.name), snapshot.name)
    tensors = hub.remote_tensors(snapshot, lambda tensor: True)
    files = head_in(checkpoint, remote_headers(tensors))
    if files is None:
        raise NotAvailable(
            f"{snapshot.name} ({checkpoint.model_type}) holds no MTP head among {len(tensors)} tensors",
            "name the original repository of the target, or a head alone: --draft ID",
        )
    places = {(str(stored.file), stored.name) for stored in files.tensors.values()}
    chosen = tuple(tensor for tensor in tensors if (tensor.file.path, tensor.name) in places)
    return HeadSource(snapshot, checkpoint, config, files, chosen)


def remote_headers(tensors: list[hub.RemoteTensor]) -> Mapping[Path, Header]:
    """The headers of the files that hold `tensors`, as if they were here."""
    found: dict[Path, dict[str, Stored]] = {}
    for tensor in tensors:
        file = Path(tensor.file.path)
        stored = Stored(file, tensor.name, tensor.dtype, tensor.shape, tensor.size_bytes)
        found.setdefault(file, {})[tensor.name] = stored
    return {file: Header(stored, {}) for file, stored in found.items()}


DEFAULT_CONTEXT = 4096


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


def locate_model(name: str, revision: str | None, offline: bool) -> ModelFiles:
    """Configuration and tokenizer, downloaded if necessary (a few hundred kB); never the weights.

    Raises: NotAvailable, Refused.
    """
    if is_local(name):
        checkpoint = read_checkpoint(hub.locate(name), name)
        return ModelFiles(checkpoint, checkpoint.loaded_bytes)
    snapshot = hub.resolve(name, revision, offline=offline)
    return _files_of_snapshot(snapshot, hub.fetch_small(snapshot))


def _files_of_snapshot(snapshot: hub.Snapshot, folder: Path) -> ModelFiles:
    return ModelFiles(read_checkpoint(folder, snapshot.name, weights=False), snapshot.weight_bytes, snapshot)


def locate_draft(name: str, revision: str | None, offline: bool) -> ModelFiles:
    """As `locate_model`, for a model or a head; of a head that is not here, the headers of its files are read.

    Raises: NotAvailable, Refused.
    """
    if name.startswith(HEAD) and not (offline or network_forbidden()):
        source = find_source(name.removeprefix(HEAD), revision)
        return ModelFiles(source.checkpoint, source.files.loaded_bytes, None, source.files, source)
    if is_local(name):
        folder = hub.locate(name)
        return _head_of(folder, name) if is_for_a_head(folder, name) else locate_model(name, revision, offline)
    snapshot = hub.resolve(name, revision, offline=offline)
    folder = hub.fetch_small(snapshot)
    if is_head_only(folder):
        return replace(_head_of(folder, snapshot.name), snapshot=snapshot)
    config = read_json(folder / "config.json", snapshot.name)
    if snapshot.from_cache or not announces_head_only(config):
        return _files_of_snapshot(snapshot, folder)
    checkpoint = read_checkpoint(folder, snapshot.name, weights=False, heads=True)
    head = head_in(checkpoint, remote_headers(hub.remote_tensors(snapshot, lambda tensor: True)))
    if head is None:
        raise NotAvailable(f"{snapshot.name} ({checkpoint.model_type}) holds no MTP head", "name another draft")
    return ModelFiles(checkpoint, head.loaded_bytes, snapshot, head)


def _head_of(folder: Path, name: str) -> ModelFiles:
    """The head in `folder`. Raises: NotAvailable, Refused for one that is not there or cannot be read."""
    head = read_head(folder, name)
    return ModelFiles(read_checkpoint(folder, name, weights=False, heads=True), head.loaded_bytes, None, head)


def locate_pair(pair: Pair, offline: bool) -> list[ModelFiles]:
    """Target and draft, each resolved to one commit, so that the commit checked is the commit downloaded.

    Raises: NotAvailable, Refused.
    """
    with explain_offline(offline):
        target = locate_model(pair.target, pair.target_revision, offline)
        if pair.draft is None:
            return [target]
        draft = locate_draft(pair.draft, pair.draft_revision, offline)
    if draft.head is not None and pair.draft.startswith(HEAD):
        draft = replace(draft, head=draft.head.packed_like(target.checkpoint))
    return [target, draft]


def check_pair(
    pair: Pair, located: list[ModelFiles], context_tokens: int | None, kv_bits: int | None = None
) -> Verdict:
    """Answers the five questions about `pair`: tokenizers, template and stops, caches, memory, expected gain.

    Raises: NotAvailable where a tokenizer cannot be read or an architecture is unknown, Refused where caches cannot be
    quantized to `kv_bits`.
    """
    from specdec_cli.engine import device
    from specdec_cli.engine.footprint import estimate

    head, located = head_of(located), [model for model in located if model.head is None]
    tokenizers = _tokenizers([model.checkpoint for model in located])
    kinds, obstacles, rows = _networks(located, kv_bits)
    if head is not None:
        obstacles += _of_another_size(head, located[0].checkpoint)
    vocab, warnings = None, [*_encoding_differences(tokenizers), *_padding(located), *_stops(tokenizers)]
    if len(tokenizers) == 2:
        vocab = compare(tokenizers[0].table(), tokenizers[1].table())
        if vocab.status == "incompatible":
            obstacles.insert(0, _incompatible(pair, vocab))
            warnings = []  # they call differences harmless, and between two families nothing is
    checkpoints, weights = [m.checkpoint for m in located], [m.weight_bytes for m in located]
    memory = estimate(checkpoints, weights, context_tokens or DEFAULT_CONTEXT, kv_bits, head)
    if not memory.fits:
        obstacles.append(memory.obstacle())
    sides = [Side(m.weight_bytes, m.checkpoint.config, parameter_count(m.checkpoint)) for m in located]
    draft = sides[1] if len(sides) == 2 else None
    shipped = pair.target.startswith(hub.SHIPPED)  # a demo has the size that a package has
    step_bytes = draft.weight_bytes if draft else head and _step_bytes(head, sides[0])
    return Verdict(
        pair=pair,
        vocab=vocab,
        stop_tokens=tuple(tokenizers[0].piece(token) for token in sorted(tokenizers[0].stop_tokens)),
        has_template=tokenizers[0].has_template,
        caches=tuple(kinds),
        memory=memory,
        break_even=break_even(sides[0], step_bytes, pair.expected_k) if step_bytes else None,
        warnings=(*warnings, *_rowless(tokenizers[0], rows)),
        advice=() if shipped else tuple(advise(sides[0], draft, device.device_name(), head is not None)),
        obstacles=tuple(obstacles),
        head=head,
    )


def _tokenizers(checkpoints: Sequence[Checkpoint]) -> list[Tokenizer]:
    """The target's and, if there is one, the draft's: read once where files, types and ends are the same."""
    from specdec_cli.models.tokenizer import Tokenizer, read_alike

    target, *drafts = checkpoints
    tokenizers = [Tokenizer.load(target.folder, target.name, target.config)]
    for draft in drafts:
        kinds = [(one.model_type, stop_ids(one.folder, one.name, one.config)) for one in (target, draft)]
        alike = kinds[0] == kinds[1] and read_alike(target.folder, draft.folder)
        tokenizers.append(tokenizers[0] if alike else Tokenizer.load(draft.folder, draft.name, draft.config))
    return tokenizers


def head_of(located: Sequence[ModelFiles]) -> HeadFiles | None:
    """The head that drafts: the pair's draft, else one among the files of a target without a draft.

    Of files for a head alone that are not here yet, the headers are read.
    """
    if len(located) > 1:
        return located[1].head
    target, snapshot = located[0].checkpoint, located[0].snapshot
    with suppress(NotAvailable, Refused):
        if snapshot is None or all(file.cached for file in snapshot.head_files):
            return find_head(target)
        heads = replace(snapshot, files=snapshot.head_files)
        return head_in(target, remote_headers(hub.remote_tensors(heads, lambda tensor: True)))
    return None


def _of_another_size(head: HeadFiles, target: Checkpoint) -> list[SpecdecError]:
    try:
        head.require_size(target.whole("hidden_size", 0))
    except Refused as refusal:
        return [refusal]
    return []


def _step_bytes(head: HeadFiles, target: Side) -> int:
    """Bytes that a drafted token reads: the head, and the target's output head at the target's bits."""
    sizes = target.text_config
    rows = 0 if head.scores else int(sizes.get("vocab_size", 0)) * int(sizes.get("hidden_size", 0))
    return head.loaded_bytes + rows * target.bits // 8


def _networks(located: list[ModelFiles], kv_bits: int | None) -> tuple[list[tuple[str, str]], list[SpecdecError], int]:
    """(model, cache kinds), a refusal for each model whose drafts cannot be checked in one pass, the target's rows."""
    from specdec_cli.engine.load import empty_model, require_verifiable

    kinds: list[tuple[str, str]] = []
    refusals: list[SpecdecError] = []
    rows = []
    for model in located:
        network = empty_model(model.checkpoint, kv_bits)
        rows.append(network.vocab_size)
        kinds.append((model.checkpoint.name, ", ".join(network.cache_kinds)))
        try:
            require_verifiable(model.checkpoint)
        except Refused as refusal:
            refusals.append(refusal)
    return kinds, refusals, rows[0]


def _rowless(tokenizer: Tokenizer, rows: int) -> list[str]:
    """Tokens that the target's embedding has no row for: a prompt may not hold them, and no answer will."""
    ids = [token for token in tokenizer.table().tokens if token >= rows]
    if not ids:
        return []
    more = f", and {len(ids) - 1} more have none either" if len(ids) > 1 else ""
    first = f"token {tokenizer.piece(min(ids))} has the id {min(ids)}, and the target has {rows} rows{more}"
    return [f"{first}; harmless unless a prompt holds it, which is refused"]


def _encoding_differences(tokenizers: list[Tokenizer]) -> list[str]:
    """Harmless differences: only the target's tokenizer encodes."""
    if len(tokenizers) < 2:
        return []
    ours, theirs = (tokenizer.encoding_rules() for tokenizer in tokenizers)
    return [f"{part} differ; harmless: only the target's are used" for part in ours if ours[part] != theirs.get(part)]


def _padding(located: list[ModelFiles]) -> list[str]:
    """Logits are padded to round widths, so widths may differ although the tokenizers agree."""
    widths = [m.checkpoint.text_config.get("vocab_size") for m in located]
    if len(widths) < 2 or None in widths or widths[0] == widths[1]:
        return []
    return [f"logits are {widths[0]} wide in the target and {widths[1]} in the draft; harmless: padding without tokens"]


def _stops(tokenizers: list[Tokenizer]) -> list[str]:
    """Different stop tokens: harmless, since only the target ends an answer, but the draft knows another format."""
    if len(tokenizers) < 2 or tokenizers[0].stop_tokens == tokenizers[1].stop_tokens:
        return []
    ours, theirs = (" ".join(map(t.piece, sorted(t.stop_tokens))) or "nothing" for t in tokenizers)
    return [f"the target stops at {ours}, the draft at {theirs}; harmless: only the target's are used"]


def _incompatible(pair: Pair, vocab: VocabVerdict) -> Refused:
    return Refused(
        f"tokenizers of {pair.target} and {pair.draft} differ: {vocab.reason}",
        "take a draft of the target's own family, or decode without one: --drafter none",
    )
