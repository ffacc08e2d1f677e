"""Drafters and conversations as the product makes them, from parts that a test holds."""

from fakes.heads import cached_head
from fakes.translated import translated
from specdec_cli.core.kinds import DRAFTERS, TRANSLATED, import_named
from specdec_cli.engine.drafters.base import Parts
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.lookup import LookupDrafter
from specdec_cli.session.load import load


def draft_for(name, target, draft):
    """What drafts for `target` under this name: `draft`, the same with another tokenizer, or a head."""
    if DRAFTERS[name].reads_hidden:
        return cached_head(target)
    if name == TRANSLATED.name and draft.kind != name:
        return translated(draft.network.module, mute=range(5, target.vocab_size, 9))
    return draft


def drafters_of(name, target, draft, rule, k=4, constraint=None):
    """Those of the kind `name` at a fixed K; a head gets random weights."""
    kind = DRAFTERS[name]
    parts = Parts(target, draft_for(name, target, draft), rule)
    drafter = import_named(kind.make)(parts) if kind.make else None
    return Drafters(drafter, k, LookupDrafter() if kind.looks_up else None, constraint)


def open_session(pair, drafter=None, **more):
    """A conversation in the first slot of `pair`."""
    loaded = load(pair, drafter=drafter, **more)
    return loaded.session(loaded.first)
