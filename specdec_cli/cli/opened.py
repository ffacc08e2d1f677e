"""From options to a loaded pair. Law: names are resolved, and models are loaded, in this place only."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from specdec_cli.errors import UsageError
from specdec_cli.kinds import HEAD, NONE, K, drafter_at

if TYPE_CHECKING:
    from specdec_cli.cli.options import ModelOptions, PairOptions
    from specdec_cli.pairs.resolve import Resolved
    from specdec_cli.session.session import Session


def named(name: str | None, models: PairOptions | ModelOptions, *, here: bool) -> Resolved:
    """The pair `name`, or the models that are named instead; with `here` only what needs no download."""
    from specdec_cli.pairs.resolve import resolve_pair

    draft = drafts_with(models.draft, models.head_from)
    return resolve_pair(name, models.target, draft, models.target_revision, models.draft_revision, here=here)


def drafts_with(draft: str | None, head_from: str | None) -> str | None:
    """The name of the draft that `--draft` or `--head-from` asks for. Raises: UsageError for both."""
    if head_from is None:
        return draft
    if draft is not None:
        raise UsageError(f"--draft {draft} and --head-from {head_from} both name a draft", "give one of the two")
    return HEAD + head_from


def resolved(models: ModelOptions, ks: Sequence[K] = ()) -> Resolved:
    """The pair that these options name, and its drafter at every K of `ks`, where some were asked for.

    `--offline` holds from here on.
    """
    forbid_network(models.offline)
    drafter = drafter_at(models.drafter, ks)
    found = named(models.pair, models, here=drafter != NONE.name)
    return replace(found, drafter=drafter or found.drafter)


def forbid_network(offline: bool) -> None:
    """`--offline`: no library may open a connection. It has to be said before any of them is imported."""
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


@contextmanager
def loading(name: str, reason: str, *, shown: bool, plain: bool = False) -> Iterator[Callable[[str], None]]:
    """A line that says which pair is being loaded, for as long as it takes; then one that says why this pair.

    Gives what prints a line meanwhile.
    """
    from specdec_cli.ui import display

    def tell(sentence: str) -> None:
        if shown:
            display.print_above(sys.stderr, sentence, plain)

    with display.loading(sys.stderr, name, shown and not plain):
        yield tell
    if shown and reason:
        display.print_notice(sys.stderr, reason, plain)


def opened(
    found: Resolved,
    models: ModelOptions,
    *,
    reserve_tokens: int,
    shown: bool,
    plain: bool = False,
    remember_costs: bool = True,
) -> Session:
    """The loaded pair. It must fit with caches of `reserve_tokens`, unless `--force` was given.

    Raises: NotAvailable, Refused, DoesNotFit, UsageError for an unknown drafter.
    """
    with loading(found.pair.name, found.reason, shown=shown, plain=plain) as tell:
        from specdec_cli.session.cost_file import cost_file
        from specdec_cli.session.load import load

        return load(
            found.pair,
            drafter=found.drafter,
            reserve_tokens=None if models.force else reserve_tokens,
            kv_bits=models.kv_bits,
            costs=cost_file() if remember_costs else None,
            tell=tell,
        ).session()
