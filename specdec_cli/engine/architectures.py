"""The list of architectures: every text decoder of the installed mlx-lm, as tested or with the reason why not."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import mlx_lm.models
from mlx_lm.utils import MODEL_REMAPPING

MODEL = re.compile(r"^(class|from .* import) .*\bModel\b", re.M)
LISTS = ("a_g.toml", "h_m.toml", "n_z.toml")


@dataclass(frozen=True, slots=True)
class Architecture:
    """One module of `mlx_lm.models` and a tiny `config` for it.

    `window` is how many positions its shortest window or chunk holds (None without one), `gain` scales the random
    weights, `noise` moves a draft made of it away, `metal_only`: mlx-lm has no other code for it, `refused`: the reason
    that specdec does not speculate with it.
    """

    name: str
    config: Mapping[str, Any]
    window: int | None = None
    gain: float = 1.0
    noise: float = 0.1
    metal_only: bool = False
    refused: str | None = None


@cache
def architectures() -> dict[str, Architecture]:
    """All listed architectures by module name."""
    found: dict[str, Architecture] = {}
    for name in LISTS:
        entries = tomllib.loads(files(__package__).joinpath("architectures_data", name).read_text("utf-8"))
        found |= {module: Architecture(module, **{"config": {}, **entry}) for module, entry in entries.items()}
    return found


def refusal(model_type: str) -> str | None:
    """The reason that specdec does not speculate with models of `model_type`; None if it does."""
    found = architectures().get(MODEL_REMAPPING.get(model_type, model_type))
    return found.refused if found else None


def installed() -> list[str]:
    """Modules of the installed mlx-lm that define a model class. Read, not imported: one of them exits on import."""
    root = files(mlx_lm.models)
    sources = {file.name.removesuffix(".py"): file for file in root.iterdir() if file.name.endswith(".py")}
    return sorted(name for name, file in sources.items() if MODEL.search(file.read_text("utf-8")))
