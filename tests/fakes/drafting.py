"""Drafters and conversations as the product makes them, from parts that a test holds."""

from fakes.heads import cached_head
from specdec_cli.core.kinds import DRAFTERS, import_named
from specdec_cli.engine.draft_length.adaptive import Fixed
from specdec_cli.engine.drafters.base import Parts
from specdec_cli.session.load import load


def drafter_of(name, target, draft, rule, k=4):
    """(drafter, length) of the kind `name` at a fixed K; a head gets random weights."""
    kind, length = DRAFTERS[name], Fixed(k)
    drafter = import_named(kind.make)(Parts(target, cached_head(target) if kind.reads_hidden else draft, rule, length))
    return drafter, drafter.length(length)


def open_session(pair, drafter=None, **more):
    """A conversation in the first slot of `pair`."""
    loaded = load(pair, drafter=drafter, **more)
    return loaded.session(loaded.first)
