"""A head inside a target's original repository. Law: of that repository nothing comes but headers, its config.json and
the head's own tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specdec_cli import hub, jsonfile
from specdec_cli.errors import NotAvailable
from specdec_cli.jsonfile import NotJson
from specdec_cli.models.checkpoint import Checkpoint, checkpoint_of
from specdec_cli.models.headers import Header, Stored
from specdec_cli.models.heads import HeadFiles, head_in


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
