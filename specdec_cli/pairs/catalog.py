"""The known pairs: what is downloaded, what fits. Nothing here uses the network."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from specdec_cli import hub
from specdec_cli.core.errors import NotAvailable, PartlyHere
from specdec_cli.core.kinds import HEAD
from specdec_cli.core.readfile import expanded, is_folder
from specdec_cli.pairs.limits import limit_bytes
from specdec_cli.pairs.pair import Pair, PairRow, Registry
from specdec_cli.pairs.registry import load_registry, packaged_file, user_file
from specdec_cli.system.config import config_file
from specdec_cli.system.machine import physical_bytes

# "8B", "0.6B", "135M"; the "A3B" of a mixture's active weights and the "e2b" of an effective size say something else,
# and so do the "17B" before "-16E", which are experts, and the "1B" of "1B-7B".
WEIGHTS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])(?!-\d+[eb](?![a-z0-9]))", re.I)
HEAD_ALONE = re.compile(r"-MTP-\d+-?bit$|-assistant(?:-|$)", re.I)  # its name states the target's parameters
BITS = re.compile(r"(?<![a-z0-9])(?:(\d+)-?bit|(?:mx|nv)?fp(\d+)|[bf]f?(16)|q(\d+))(?![a-z0-9])", re.I)


def named_bytes(name: str) -> int | None:
    """Bytes of the weights, by the parameters and bits that `name` states; 16 bits where it states none.

    A group of quantized weights has a scale and a bias: half a bit a weight.
    """
    short = name.rstrip("/").rsplit("/", 1)[-1]
    weights = WEIGHTS.search(short)
    if weights is None or HEAD_ALONE.search(short):
        return None
    bits = BITS.search(short)
    stated = int(next(filter(None, bits.groups()))) if bits else 16
    parameters = float(weights[1]) * (1e9 if weights[2] in "bB" else 1e6)
    return int(parameters * (stated + (0.5 if stated < 16 else 0.0)) / 8)


def registry() -> Registry:
    """All pairs known on this machine.

    A commit in the packaged file says what a pull brings: a copy that another program keeps is taken without one.
    """
    known = load_registry(packaged_file(), user_file(), config_file())
    return replace(known, pairs={name: _as_kept(pair) for name, pair in known.pairs.items()})


def _as_kept(pair: Pair) -> Pair:
    if pair.source != "packaged":
        return pair
    target = None if hub.elsewhere(pair.target) else pair.target_revision
    draft = None if pair.draft and hub.elsewhere(pair.draft) else pair.draft_revision
    return replace(pair, target_revision=target, draft_revision=draft)


def is_local(name: str) -> bool:
    """Whether the model is shipped inside the package, a kept head or a folder, so not in the Hub's cache."""
    return name.startswith((hub.SHIPPED, HEAD)) or is_folder(expanded(name))


def from_anywhere(name: str) -> str:
    """`name` as it is found from any folder: a folder of the user's by its whole path."""
    own = is_local(name) and not name.startswith((hub.SHIPPED, HEAD))
    return str(expanded(name).absolute()) if own else name


def findable(pair: Pair) -> Pair:
    """`pair` as it is found from any folder: models and adapters in folders of the user's by their whole paths."""
    draft, adapter, draft_adapter = (
        name and from_anywhere(name) for name in (pair.draft, pair.target_adapter, pair.draft_adapter)
    )
    target = from_anywhere(pair.target)
    return replace(pair, target=target, draft=draft, target_adapter=adapter, draft_adapter=draft_adapter)


def network_forbidden() -> str:
    """The variable that forbids the network, by huggingface_hub's reading; empty where none does."""
    name = next(filter(os.environ.get, ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")), "")
    return name if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") else ""


def missing(pair: Pair) -> NotAvailable | None:
    """The first thing that keeps this pair's models from being found here, if any."""
    return next(filter(None, (_problem(name, revision) for name, revision in pair.models)), None)


def _problem(name: str, revision: str | None) -> NotAvailable | None:
    try:
        hub.locate(name, revision)
    except NotAvailable as error:
        return error
    return None


def is_downloaded(name: str | None, revision: str | None) -> bool:
    """Whether this model is complete on this machine."""
    return name is not None and _problem(name, revision) is None


def downloaded(pair: Pair) -> bool:
    """Whether every model of the pair is complete on this machine."""
    return missing(pair) is None


def can_be_pulled(error: NotAvailable) -> bool:
    """Whether a pull brings what is missing."""
    return error.hint.startswith(hub.PULL)


def partly_here(pairs: Collection[Pair]) -> list[PartlyHere]:
    """One for each of their models of which files are missing or altered here, with the pull that mends it.

    Of several listed pairs that have the model the pull is that of the one that lacks the fewest.
    """
    models = dict.fromkeys(model for pair in pairs for model in pair.models)
    absent, found = {model: problem for model in models if (problem := _problem(*model))}, []
    for model, problem in absent.items():
        if isinstance(problem, PartlyHere):
            pair = min((one for one in pairs if model in one.models), key=lambda one: len(absent.keys() & one.models))
            by_name = pair.source != "command line" and can_be_pulled(problem)
            found.append(PartlyHere(problem.message, f"{hub.PULL} {shlex.quote(pair.name)}") if by_name else problem)
    return found


def size_bytes(pair: Pair, estimate: bool = False) -> int | None:
    """Bytes of both models: on disk, else stated in models.toml; None if unknown.

    With `estimate` also what a model's name states.
    """
    stated = {pair.target: pair.target_bytes, pair.draft: pair.draft_bytes}
    found = [_disk_bytes(name, revision) or stated[name] for name, revision in pair.models]
    if estimate:
        found = [size or named_bytes(name) for size, (name, _) in zip(found, pair.models, strict=True)]
    known = [size for size in found if size]
    return sum(known) if len(known) == len(found) else None


def _disk_bytes(name: str, revision: str | None) -> int | None:
    try:
        folder = hub.locate(name, revision)
    except NotAvailable:
        return None
    files = [*folder.glob("*"), *folder.glob("*/*.safetensors")]
    return sum(path.stat().st_size for path in files if path.is_file())


def fits(pair: Pair, size: int | None) -> bool | None:
    """Whether the pair fits: by its stated minimum memory and by its size, both where both are known; None: neither."""
    from specdec_cli.engine import device

    if pair.min_memory_gb is None and size is None:
        return None
    memory = physical_bytes()
    # The system reports a little less memory than the machine was sold with.
    stated = pair.min_memory_gb is None or memory >= pair.min_memory_gb * 1e9 * 0.97
    # Memory for models: the device's recommended working set, which a Mac states, else three quarters of all.
    usable = limit_bytes(device.working_set_bytes() or int(memory * 0.75))
    return stated and (size is None or size + room_bytes(pair, size) <= usable)


def room_bytes(pair: Pair, size: int) -> int:
    """What caches and a chunk of a prompt take beside weights of this size, at 4096 tokens.

    Estimated for what is not here: `Fit` says 1.2 GB of Qwen3-8B with its draft, 2.1 GB of Llama 70B, and 0.8 GB of
    Qwen3-4B alone.
    """
    return int((1e9 if pair.draft else 0.8e9) + 0.03 * size)


def rows(known: Registry) -> list[PairRow]:
    """What `specdec pairs` shows, in the order of models.toml."""
    return [_row(pair, pair.name == known.default_pair) for pair in known.pairs.values()]


def _row(pair: Pair, default: bool) -> PairRow:
    size, problem = size_bytes(pair), missing(pair)
    estimate = size_bytes(pair, estimate=True) if size is None else None
    pullable = problem is None or can_be_pulled(problem)
    known = replace(pair, verified=pair.verified or all(is_local(name) for name, _ in pair.models))
    return PairRow(known, size, problem is None, fits(pair, size or estimate), default, estimate, pullable)


def other_rows(known: Registry, listed: Sequence[PairRow]) -> list[PairRow]:
    """A row for each model that is here and that no downloaded one of the `listed` pairs has."""
    used = {name.lower() for row in listed if row.downloaded for name, _ in row.pair.models}
    models, rows = [model for model in hub.models_here() if model.name.lower() not in used], []
    shorts = Counter(model.short.lower() for model in models if not model.problem)
    for model in models:
        name = model.target if shorts[model.short.lower()] > 1 or model.short in known.pairs else model.short
        note = model.problem + (f": {known.instead_of(model.name)}" if model.problem == hub.GGUF else "")
        pair = Pair(name, model.target, None, note=note, source=model.place, verified=True)
        fit = fits(pair, model.size_bytes)
        rows.append(PairRow(pair, model.size_bytes, not note, fit, False, pullable=False, folder=str(model.folder)))
    return rows


def users_of(name: str, known: Registry) -> list[str]:
    """Names of the pairs with this model."""
    return [p.name for p in known.pairs.values() if any(hub.same_model(name, model) for model, _ in p.models)]
