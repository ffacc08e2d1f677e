"""What a bench is to measure, in which order (pure). Law: each K once, in the order typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import Protocol, TypeVar

from specdec_cli.bench.result import Length
from specdec_cli.errors import UsageError
from specdec_cli.request import MAX_K

# Default length of an answer in tokens: enough for a steady rate, fewer where the budget is small.
MAX_TOKENS, FEWEST_TOKENS = 128, 32
# Answers that a budget should cover, baselines included.
ANSWERS = 36
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class HasKind(Protocol):
    """Anything with a kind of text."""

    @property
    def kind(self) -> str: ...


T = TypeVar("T", bound=HasKind)


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """K, time and seed of a sweep. `deepest` is the largest K that is given as a number."""

    ks: tuple[Length, ...]
    budget_seconds: float
    cooldown_seconds: float = 0.0
    seed: int = 0

    @property
    def depths(self) -> tuple[int, ...]:
        """The drafting K given as numbers, ascending."""
        return tuple(sorted(k for k in self.ks if isinstance(k, int) and k))

    @property
    def deepest(self) -> int:
        return max(self.depths, default=0)


def parse_lengths(text: str) -> tuple[Length, ...]:
    """`0-4,8,auto` -> (0, 1, 2, 3, 4, 8, auto), each once. 0, the baseline, is always measured.

    Raises: UsageError for anything else, or out of bounds.
    """
    found: list[Length] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if part.strip() == "auto":
            found.append("auto")
        elif bounds is None:
            raise UsageError(
                f"-k {text}: {part.strip() or 'nothing'} is neither a number, a range nor auto", "such as: -k 0-8,auto"
            )
        else:
            first, last = int(bounds[1]), int(bounds[2] or bounds[1])
            if last > MAX_K or first > last:
                problem = f"is outside 0 to {MAX_K}" if last > MAX_K else "runs backwards"
                raise UsageError(f"-k {text}: {part.strip()} {problem}", f"the widest range: -k 0-{MAX_K}")
            found += range(first, last + 1)
    if not any(found):
        raise UsageError(f"-k {text} drafts nothing, and K 0 is the baseline already", "such as: -k 0-8,auto")
    return tuple(dict.fromkeys(found))


def parse_seconds(option: str, text: str) -> float:
    """`90`, `90s`, `2m`, `1.5m` or `1h` in seconds.

    Raises: UsageError for anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|)", text.strip())
    if found is None:
        raise UsageError(f"{option} {text} is not a time", f"seconds, minutes or hours: {option} 90s, {option} 2m")
    return float(found[1]) * UNITS[found[2]]


def in_turns(prompts: Iterable[T], order: Random) -> list[T]:
    """The first prompt of each kind, then the second of each, …; kinds in the given order, prompts in a random one."""
    kinds: dict[str, list[T]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    shuffled = [order.sample(group, len(group)) for group in kinds.values()]
    return [prompt for turn in zip_longest(*shuffled) for prompt in turn if prompt is not None]


def tokens_within(budget_seconds: float, prefill_seconds: float, step_seconds: float, conditions: int) -> int:
    """Tokens an answer may have so that ANSWERS answers for each condition fit the budget."""
    fitting = (budget_seconds / (ANSWERS * max(conditions, 1)) - prefill_seconds) / step_seconds
    return min(MAX_TOKENS, max(FEWEST_TOKENS, int(fitting)))


def kinds_of(prompts: Sequence[HasKind]) -> tuple[str, ...]:
    """Each kind once."""
    return tuple(dict.fromkeys(prompt.kind for prompt in prompts))
