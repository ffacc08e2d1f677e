"""Drafters and conversations as the product makes them, from parts that a test holds."""

from specdec_cli.engine.draft_length.fixed import Fixed
from specdec_cli.engine.drafters.base import Parts
from specdec_cli.kinds import DRAFTERS, made
from specdec_cli.session.load import load


def drafter_of(name, target, draft, rule, k=4):
    """(drafter, length) of the kind `name` at a fixed K."""
    length = Fixed(k)
    drafter = made(DRAFTERS[name])(Parts(target, draft, rule, length))
    return drafter, drafter.length(length)


def open_session(pair, drafter=None, **more):
    """A conversation in the first slot of `pair`."""
    loaded = load(pair, drafter=drafter, **more)
    return loaded.session(loaded.first)
