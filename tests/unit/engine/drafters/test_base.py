"""What every drafter may rely on: kinds that are made of the same parts, and one that drafts nothing without them."""

import pytest

from fakes.models import tiny_network
from specdec_cli.core.kinds import DRAFTERS, MODEL, drafting, import_named
from specdec_cli.engine.drafters.base import Drafter, Parts
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy

TARGET = CachedModel(tiny_network(seed=1), "target")


def parts(draft=None):
    return Parts(TARGET, draft, greedy(TARGET.vocab_size))


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_kind_makes_a_drafter_of_the_same_parts_or_looks_up_or_drafts_nothing(name):
    draft = CachedModel(tiny_network(seed=2), "draft")
    kind = drafting(name, 3, draft.kind).kind
    if kind.make:
        assert isinstance(import_named(kind.make)(parts(draft)), Drafter)
    assert bool(kind.make) or kind.looks_up or not kind.drafts


def test_without_a_draft_model_its_kind_makes_no_drafter():
    assert import_named(MODEL.make)(parts()) is None
