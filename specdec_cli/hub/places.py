"""Where a model lies: in the package, a folder, the Hub's cache, or where another program keeps it.

Nothing of other programs is written, moved or deleted. Their models are known by the names of files, and by an index
and headers where one lies beside them, in three levels of folders, so that links in circles end; what cannot be read or
shown is not there. Another program is a row in PLACES.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.format import count
from specdec_cli.core.kinds import HEAD
from specdec_cli.core.readfile import expanded, is_folder, read_file
from specdec_cli.core.safetensors import INDEX, WEIGHTS, find_weights
from specdec_cli.core.textfile import decode_text
from specdec_cli.hub import cache
from specdec_cli.hub.cached import cached_folder
from specdec_cli.system import config

SHIPPED = "specdec:"
PACKAGE = Path(__file__).parents[1]
GGUF, DEEPEST = "GGUF", 2
SHARD = re.compile(r"model-\d{5}-of-(\d{5})\.safetensors")
REPOSITORY = re.compile(r"models--(.+?)--(.+)")
OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model in `place`: `name` is ORGANISATION/NAME where its folders say so. `problem`: why it cannot be loaded."""

    name: str
    folder: Path
    place: str
    size_bytes: int
    problem: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is in our cache."""
        return self.place == OURS[0]

    @property
    def short(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def target(self) -> str:
        """The name that `locate` takes."""
        return self.name if cache.HUB_ID.fullmatch(self.name) else str(self.folder)


Place = tuple[str, Callable[[], Iterable[Path]], Callable[[str, Path], Iterator[FoundModel]]]


def _models_in(place: str, root: Path, name: str = "", depth: int = 0) -> Iterator[FoundModel]:
    """Models in `root`, in its folders and in theirs; a repository of a Hub cache is the folder of its commit.

    Below weights, which may be loose files beside models, only what can be loaded is a model: the rest is a part of it.
    """
    folders, files = _list(root)
    if found := _read(name or root.name, root, place, files):
        yield found
    for inner in folders if depth < DEEPEST else ():
        cached, below = REPOSITORY.fullmatch(inner), root / inner
        if not cached:
            models = _models_in(place, below, f"{name}/{inner}".lstrip("/"), depth + 1)
            yield from (model for model in models if not (found and model.problem))
        elif snapshot := _snapshot(below):
            yield from _models_in(place, snapshot, f"{cached[1]}/{cached[2]}", DEEPEST)


def _list(folder: Path) -> tuple[list[str], dict[str, int]]:
    """The folders in a folder, and the bytes of the files that tell what it holds; nothing if it cannot be read."""
    folders, files = [], {}
    with suppress(OSError, ValueError), os.scandir(folder) as entries:
        for entry in (entry for entry in entries if entry.name.isprintable() and not entry.name.startswith(".")):
            with suppress(OSError):  # a link that leads nowhere, or in a circle
                if entry.is_dir():
                    folders.append(entry.name)
                elif entry.name in ("config.json", INDEX) or entry.name.endswith((".safetensors", ".gguf")):
                    files[entry.name] = entry.stat().st_size
    return sorted(folders), files


def _read(name: str, folder: Path, place: str = "", listed: Mapping[str, int] | None = None) -> FoundModel | None:
    """The model that `folder` holds, by its files; None where it has no weights. An index is judged as loading does."""
    files = _list(folder)[1] if listed is None else listed
    weights = [file for file in files if fnmatchcase(file, WEIGHTS)]
    problem = "" if "config.json" in files else "config.json is missing"
    if not weights:
        weights, problem = [file for file in files if file.endswith(".gguf")], GGUF
    shards = [int(shard[1]) for shard in map(SHARD.fullmatch, weights) if shard]
    index = jsonfile.read_or_empty(folder / INDEX).get("weight_map") if INDEX in files else None
    if isinstance(index, dict):
        lacks = find_weights(folder, jsonfile.read_or_empty(folder / "config.json"), index).lacks
        problem = f"{lacks} missing" if lacks else problem
    elif max(shards, default=0) > len(shards) and "model.safetensors" not in files:
        problem = f"{max(shards) - len(shards)} of {count(max(shards), 'weight file')} missing"
    return FoundModel(name, folder, place, sum(map(files.__getitem__, weights)), problem) if weights else None


def _text(path: Path) -> str:
    """The text of a small file, empty where it cannot be read."""
    with suppress(OSError, ValueError):
        return decode_text(read_file(path)).strip()
    return ""


def _snapshot(repository: Path) -> Path | None:
    """The commit of main in a repository of a Hub cache, else the only one there is."""
    commits, main = _list(repository / "snapshots")[0], _text(repository / "refs" / "main")
    named = [main] if main in commits else commits
    return repository / "snapshots" / named[0] if len(named) == 1 else None


def _ollama_models(place: str, root: Path) -> Iterator[FoundModel]:
    """Models of ollama by its manifests, HOST/SPACE/MODEL/TAG; their weights are blobs in the format GGUF."""
    for manifest in filter(Path.is_file, sorted((root / "manifests").glob("*/*/*/*"))):
        layers = jsonfile.read_or_empty(manifest).get("layers")
        described = [layer for layer in layers if isinstance(layer, dict)] if isinstance(layers, list) else []
        sizes = [layer.get("size") for layer in described if layer.get("mediaType") == OLLAMA_WEIGHTS]
        space, model, tag = manifest.parts[-3:]
        name = (model if space == "library" else f"{space}/{model}") + ("" if tag == "latest" else f":{tag}")
        if sizes and name.isprintable():
            yield FoundModel(name, root, place, sum(size for size in sizes if isinstance(size, int)), GGUF)


def _ollama_folders() -> list[Path]:
    return [expanded(os.environ.get("OLLAMA_MODELS") or "~/.ollama/models").absolute()]


def _lm_studio_folders() -> Iterator[Path]:
    """PUBLISHER/MODEL are in `downloadsFolder` of its settings, else in `models` of its home, which a file points to.

    Its own `lms` looks at one home; all that it may have had are looked at here.
    """
    pointed = Path(_text(expanded("~/.lmstudio-home-pointer").absolute()))
    usual = (expanded(path).absolute() for path in ("~/.cache/lm-studio", "~/.lmstudio"))
    for home in filter(Path.is_absolute, (pointed, *usual)):
        chosen = jsonfile.read_or_empty(home / "settings.json").get("downloadsFolder")
        yield from filter(Path.is_absolute, (Path(str(chosen)), home / "models"))


def _other_caches() -> Iterator[Path]:
    """Hub caches besides ours: where it would be without HF_HUB_CACHE, without HF_HOME, without either."""
    shared = f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    for home in filter(None, (os.environ.get("HF_HOME"), shared, "~/.cache/huggingface")):
        if (folder := expanded(home).absolute() / "hub").resolve() != cache.cache_folder().resolve():
            yield folder


# Who keeps models, the folders where that may be, and how one of them is read.
OURS: Place = ("the model cache", lambda: [cache.cache_folder()], _models_in)
PLACES: tuple[Place, ...] = (
    ("your folder", config.model_folders, _models_in),
    ("LM Studio", _lm_studio_folders, _models_in),
    ("another Hub cache", _other_caches, _models_in),
    ("ollama", _ollama_folders, _ollama_models),
)


def models_here() -> list[FoundModel]:
    """Every model here, whole ones first, the model cache's before others'; each name once."""
    models = [model for place, folders, read in (OURS, *PLACES) for root in folders() for model in read(place, root)]
    models.sort(key=lambda model: bool(model.problem))
    return [*{model.name.lower(): model for model in reversed(models)}.values()][::-1]


def named(name: str) -> list[FoundModel]:
    """The models here of this id, short name or folder, in any case."""
    called = name.lower()
    return [m for m in models_here() if called in (m.short.lower(), m.name.lower(), str(m.folder).lower())]


def elsewhere(name: str) -> Path | None:
    """Where the model of this Hub id lies whole in one of PLACES, while in our cache it does not."""
    if not cache.HUB_ID.fullmatch(name):
        return None
    roots = [root for _, folders, _ in PLACES for root in folders()]
    folders = [folder for root in roots for folder in (root / name, _snapshot(root / cache.repository(name).name))]
    whole = (folder for folder in filter(None, folders) if (model := _read(name, folder)) and not model.problem)
    if found := next(whole, None):
        with suppress(NotAvailable):
            cached_folder(cache.cached_spelling(name))
            return None
    return found


def locate(name: str, revision: str | None = None) -> Path:
    """The folder of a shipped model, a kept head, a local folder, or a Hub id: in the cache, else in PLACES.

    Raises: NotAvailable if it is not here, PartlyHere if files are missing or differ from what was pulled.
    """
    if name.startswith(SHIPPED):
        folder = PACKAGE / name.removeprefix(SHIPPED)
        if not folder.resolve().is_relative_to(PACKAGE.resolve()):
            raise NotAvailable(f"{name} is outside specdec's own folder", "give the folder itself as a path")
        return folder
    if name.startswith(HEAD):
        return cache.kept_head(name)
    folder = expanded(name)
    if is_folder(folder):
        return folder
    if os.path.lexists(folder):
        raise NotAvailable(f"{name} is a file, but a model is a folder", "give the folder that holds config.json")
    cache.require_hub_id(name)
    if revision is None and (kept := elsewhere(name)):
        return kept
    return cached_folder(cache.cached_spelling(name), revision)
