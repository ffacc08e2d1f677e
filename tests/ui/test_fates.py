"""The fate of each token of a round."""

from dataclasses import replace

import pytest

from fakes.ui_script import drafted
from specdec_cli.ui.fates import fates


@pytest.mark.parametrize(
    ("pieces", "accepted", "expected"),
    [
        ([], 0, ["plain"]),
        (["a", "b"], 2, ["accepted", "accepted", "bonus"]),
        (["a", "b", "c"], 1, ["accepted", "rejected", "discarded", "correction"]),
        (["a"], 0, ["rejected", "correction"]),
    ],
)
def test_every_token_has_one_fate_in_the_order_of_its_position(pieces, accepted, expected):
    found = list(fates(drafted(1, pieces, accepted, "z")))
    assert [fate.value for fate, _ in found] == expected
    assert [text for _, text in found] == [*pieces, "z"]


def test_an_accepted_stop_token_leaves_no_token_of_the_targets_own():
    done = drafted(1, ["a", "b", "c"], 2, "z")
    stopped = replace(done, round=replace(done.round, emitted=done.round.draft[:2]))
    assert [fate.value for fate, _ in fates(stopped)] == ["accepted", "accepted", "rejected"]
