"""What every drafter may rely on: defaults that do nothing, and kinds that are made of the same parts."""

import pytest

from fakes.models import tiny_network
from specdec_cli.core.kinds import DRAFTERS, LOOKUP, MODEL, NONE, drafting, import_named
from specdec_cli.engine.draft_length.adaptive import Fixed
from specdec_cli.engine.drafters.base import Drafter, Parts, no_drafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy

TARGET = CachedModel(tiny_network(seed=1), "target")
LENGTH = Fixed(3)


def parts(draft=None):
    return Parts(TARGET, draft, greedy(TARGET.vocab_size), LENGTH)


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("has_draft", [True, False])
def test_every_kind_makes_a_drafter_of_the_same_parts(name, has_draft):
    draft = CachedModel(tiny_network(seed=2), "draft") if has_draft else None
    meant = drafting(name, 3, draft.kind if draft else None).kind
    drafter = import_named(meant.make)(parts(draft))
    assert isinstance(drafter, Drafter)
    assert drafter.name in (name, meant.name)


def test_without_a_draft_model_its_kind_drafts_nothing_and_the_mixed_one_looks_up():
    assert import_named(MODEL.make)(parts()).name == NONE.name
    assert import_named(DRAFTERS["auto"].make)(parts()).name == LOOKUP.name
    assert type(no_drafter(parts())) is Drafter
