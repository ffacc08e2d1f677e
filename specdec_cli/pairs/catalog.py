"""The known pairs: what is downloaded, what fits. Only `confirm` uses the network."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from specdec_cli import hub, jsonfile
from specdec_cli.errors import NotAvailable, PartlyHere, SpecdecError, Unanswered
from specdec_cli.kinds import HEAD
from specdec_cli.machine import physical_bytes
from specdec_cli.models.memory import limit_bytes
from specdec_cli.pairs.pair import DEMO, Pair, Registry
from specdec_cli.pairs.registry import load_registry, packaged_file, user_file

# "8B", "0.6B", "135M"; the "A3B" of a mixture's active weights and the "e2b" of an effective size say something else.
WEIGHTS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.I)
HEAD_ALONE = re.compile(r"-MTP-\d+-?bit$", re.I)  # its name states the target's parameters
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


# More than any model has: a number in a file of answers that a crash or a person has damaged.
MOST_BYTES = 1 << 50


def registry() -> Registry:
    """All pairs known on this machine."""
    return load_registry(packaged_file(), user_file())


def is_local(name: str) -> bool:
    """Whether the model is shipped inside the package, a kept head or a folder, so not in the Hub's cache."""
    return name.startswith((hub.SHIPPED, HEAD)) or Path(name).expanduser().is_dir()


def hub_ids(known: Registry) -> list[str]:
    """Every Hub id in the registry, each once, in its order."""
    return list({name: None for pair in known.pairs.values() for name, _ in pair.models if not is_local(name)})


def confirmed_file() -> Path:
    """The file of the Hub's answers: model id -> bytes of its files."""
    return platformdirs.user_cache_path("specdec") / "confirmed.json"


def confirmed() -> dict[str, int]:
    """Model id -> bytes, as confirmed by the Hub before; empty for a damaged file."""
    sizes = jsonfile.read_or_empty(confirmed_file())
    return {name: size for name, size in sizes.items() if isinstance(size, int) and 0 <= size <= MOST_BYTES}


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The Hub's answer on one model: its size in bytes, or why there is none."""

    name: str
    size_bytes: int | None
    problem: str | None


def network_forbidden() -> bool:
    """Whether HF_HUB_OFFLINE is set."""
    return os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE")


def confirm(names: list[str]) -> list[Confirmation]:
    """Asks the Hub about each model and keeps the answers, also those before a failure.

    Raises: NotAvailable when the Hub cannot be asked: unreachable, rate-limited, in trouble.
    """
    if network_forbidden():
        raise NotAvailable("--online asks the Hub, and HF_HUB_OFFLINE forbids it", "unset HF_HUB_OFFLINE")
    sizes, answers = confirmed(), []
    try:
        for name in names:
            answers.append(_confirm(name))
    finally:
        for answer in answers:
            if answer.size_bytes is None:
                sizes.pop(answer.name, None)
            else:
                sizes[answer.name] = answer.size_bytes
        _keep(sizes)
    return answers


def _confirm(name: str) -> Confirmation:
    try:
        return Confirmation(name, hub.resolve(name).total_bytes, None)
    except Unanswered:
        raise
    except NotAvailable as error:
        return Confirmation(name, None, error.message)


def _keep(sizes: dict[str, int]) -> None:
    """Raises: SpecdecError where the cache cannot be written."""
    path = confirmed_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        jsonfile.replace_text(path, json.dumps(sizes, indent=1))
    except OSError as error:
        raise SpecdecError(f"{path} cannot be written: {error.strerror}", "check the folder's permissions") from error


def size_bytes(pair: Pair, sizes: dict[str, int]) -> int | None:
    """Bytes of both models: on disk, else confirmed by the Hub, else stated in models.toml; None if unknown."""
    return _sum(_known_bytes(pair, sizes))


def estimated_bytes(pair: Pair, sizes: dict[str, int]) -> int | None:
    """As `size_bytes`, and where a model's size is unknown what its name states; None if that is nothing."""
    both = zip(pair.models, _known_bytes(pair, sizes), strict=True)
    return _sum([size or named_bytes(name) for (name, _), size in both])


def _known_bytes(pair: Pair, sizes: dict[str, int]) -> list[int | None]:
    stated = {pair.target: pair.target_bytes, pair.draft: pair.draft_bytes}
    return [_model_bytes(name, revision) or sizes.get(name) or stated[name] for name, revision in pair.models]


def _sum(found: list[int | None]) -> int | None:
    known = [size for size in found if size]
    return sum(known) if len(known) == len(found) else None


def _model_bytes(name: str, revision: str | None) -> int | None:
    try:
        folder = hub.locate(name, revision)
    except NotAvailable:
        return None
    files = [*folder.glob("*"), *folder.glob("*/*.safetensors")]
    return sum(path.stat().st_size for path in files if path.is_file())


def downloaded(pair: Pair) -> bool:
    """Whether every model of the pair is complete on this machine."""
    return all(is_downloaded(name, revision) for name, revision in pair.models)


def is_downloaded(name: str | None, revision: str | None) -> bool:
    """Whether this model is complete on this machine."""
    return name is not None and _model_bytes(name, revision) is not None


def partly_here(models: Iterable[tuple[str, str | None]]) -> list[PartlyHere]:
    """Those of `models` of which files are missing or altered on this machine, with the pull that mends each."""
    found = []
    for name, revision in dict.fromkeys(models):
        try:
            hub.locate(name, revision)
        except PartlyHere as problem:
            found.append(problem)
        except NotAvailable:
            continue  # not here at all
    return found


def usable_bytes() -> int:
    """Memory for models: the device's recommended working set, which a Mac states, else three quarters of all."""
    from specdec_cli.engine import device

    return device.working_set_bytes() or int(physical_bytes() * 0.75)


def fits(pair: Pair, size: int | None) -> bool | None:
    """Whether the pair fits: by stated minimum memory, else by size; None if neither is known."""
    memory = physical_bytes()
    if pair.min_memory_gb is not None:
        # The system reports a little less memory than the machine was sold with.
        return memory >= pair.min_memory_gb * 1e9 * 0.97
    return None if size is None else size <= limit_bytes(usable_bytes())


def verified(pair: Pair, sizes: dict[str, int]) -> Pair:
    """The pair, marked verified if the Hub confirmed both models on this machine."""
    known = pair.verified or all(is_local(name) or name in sizes for name, _ in pair.models)
    return replace(pair, verified=known)


def recommended(known: Registry) -> Pair:
    """The pair with the largest minimum memory that this machine has; of equals the first.

    Raises: NotAvailable if even the smallest needs more.
    """
    fitting = [p for p in known.pairs.values() if p.name != DEMO and p.min_memory_gb and fits(p, None)]
    if not fitting:
        raise NotAvailable(
            f"no listed pair is known to fit {physical_bytes() / 1e9:.1f} GB", "name one: specdec pull --target ID"
        )
    return max(fitting, key=lambda pair: pair.min_memory_gb or 0)


def users_of(name: str, known: Registry) -> list[str]:
    """Names of the pairs with this model."""
    return [p.name for p in known.pairs.values() if any(hub.same_model(name, model) for model, _ in p.models)]
