"""What of a pair is on this machine. Law: an error about a listed pair names the command for the whole pair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdec_cli import hub
from specdec_cli.errors import NotAvailable, PartlyHere
from specdec_cli.kinds import HEAD
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import is_head_only
from specdec_cli.pairs.catalog import is_local, network_forbidden, registry
from specdec_cli.pairs.pair import DEMO, Pair


def model_folder(pair: Pair, name: str, revision: str | None) -> Path:
    """Where `name`, a model of `pair`, is.

    Raises: NotAvailable; for a pair as models.toml lists it with the pull of the whole pair.
    """
    try:
        return hub.locate(name, revision)
    except NotAvailable as error:
        if not can_be_pulled(error) or isinstance(error, PartlyHere) or pair.source == "command line":
            raise
        known = registry()
        if known.pairs.get(pair.name, pair).models != pair.models:  # at other revisions
            raise
        default = known.default_pair == pair.name
        other = f", or another default: specdec pairs use {DEMO}" if default else ""
        which = f"the default pair {pair.name}" if default else f"pair {pair.name}"
        raise type(error)(f"{which} is not here: {error.message}", f"specdec pull {pair.name}{other}") from error


def missing(pair: Pair) -> NotAvailable | None:
    """The first thing that keeps this pair's models from being found here, if any."""
    for name, revision in pair.models:
        try:
            hub.locate(name, revision)
        except NotAvailable as error:
            return error
    return None


def can_be_pulled(error: NotAvailable) -> bool:
    """Whether a pull brings what is missing."""
    return error.hint.startswith(hub.PULL)


@contextmanager
def forbidding(offline: bool) -> Iterator[None]:
    """Where a pull would bring what is missing, and the network is forbidden, the error says that instead."""
    try:
        yield
    except NotAvailable as error:
        if not (can_be_pulled(error) and (offline or network_forbidden())):
            raise
        by, hint = (
            ("--offline", "leave out --offline, or unset SPECDEC_OFFLINE")
            if offline
            else ("HF_HUB_OFFLINE", "unset HF_HUB_OFFLINE")
        )
        raise type(error)(f"{error.message}, and {by} forbids asking the Hub", hint) from error


def as_kept(name: str) -> str:
    """A model's name as models.toml keeps it: a folder by its whole path, so that it is found from anywhere.

    Raises: NotAvailable for a folder that does not exist, or that holds no model.
    """
    if name.startswith(HEAD):
        hub.require_hub_id(name.removeprefix(HEAD))
    elif is_local(name):
        folder = hub.locate(name)
        read_checkpoint(folder, name, weights=False, heads=is_head_only(folder))
        return name if name.startswith((hub.SHIPPED, HEAD)) else str(Path(name).expanduser().absolute())
    hub.require_hub_id(name)
    return name
