"""Values that the shell completes. Law: a file that cannot be read completes nothing, silently."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specdec_cli.errors import SpecdecError

Complete = Callable[[str], list[str]]


def pair_names(incomplete: str) -> list[str]:
    """Names in both models.toml, in their order."""
    from specdec_cli.pairs.registry import load_registry, packaged_file, user_file

    try:
        known = load_registry(packaged_file(), user_file())
    except SpecdecError:
        return []
    return [name for name in known.pairs if name.startswith(incomplete)]


def one_of(names: Iterable[str]) -> Complete:
    """Any of `names`."""
    known = tuple(names)
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def bench_kinds(incomplete: str) -> list[str]:
    """Kinds of bundled prompts; of several, with commas between them, the last."""
    from specdec_cli.bench.prompts import KINDS

    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{kind}" for kind in KINDS if kind.startswith(last) and kind not in given]
