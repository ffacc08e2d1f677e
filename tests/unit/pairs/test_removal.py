"""Removing whole pairs: what goes, who else uses it, what stays."""

from __future__ import annotations

import pytest

from specdec_cli.core.errors import NotAvailable
from specdec_cli.hub import Removal
from specdec_cli.pairs import pull as pulling
from specdec_cli.pairs.pair import Pair, Registry

MB = 10**6
SHARED = Pair("one", "org/big", "org/tiny"), Pair("two", "org/other", "org/tiny", draft_revision="d" * 40)
KNOWN = Registry({pair.name: pair for pair in SHARED}, None)


@pytest.fixture
def removals(monkeypatch):
    """Plans for these models: commit asked for -> Removal; the ones carried out."""
    asked, carried_out = [], []

    def removal(name, commit):
        asked.append((name, commit))
        if name == "org/other":
            raise NotAvailable("org/other is not in the model cache", "specdec pairs")
        return Removal(name, ("c" * 40,), ("d" * 40,) if commit else (), 5 * MB)

    def remove(plan):
        carried_out.append(plan.name)
        return plan.freed_bytes

    monkeypatch.setattr(pulling.hub, "removal", removal)
    monkeypatch.setattr(pulling.hub, "remove", remove)
    return asked, carried_out


def test_a_removal_says_what_goes_and_who_else_uses_it(removals):
    plans = pulling.plan_removal("one", KNOWN)
    assert [plan.summary for plan in plans] == ["org/big: 5.0 MB", "org/tiny: 5.0 MB; also used by two"]
    assert pulling.carry_out(plans) == 10 * MB
    assert removals == ([("org/big", None), ("org/tiny", None)], ["org/big", "org/tiny"])


def test_a_pinned_model_loses_its_commit_alone_and_says_what_stays(removals):
    """Its target is not here: what is here goes."""
    (plan,) = pulling.plan_removal("two", KNOWN)
    assert plan.summary == "org/tiny: 5.0 MB; what commit ddddddd shares will stay; also used by one"
    assert removals[0] == [("org/other", None), ("org/tiny", "d" * 40)]


def test_a_persons_own_folder_is_never_removed(removals, tmp_path):
    own = Pair("own", str(tmp_path), "specdec:demo/draft")
    with pytest.raises(NotAvailable, match="nothing of own to remove"):
        pulling.plan_removal("own", Registry({"own": own}, None))
    assert removals == ([], [])
