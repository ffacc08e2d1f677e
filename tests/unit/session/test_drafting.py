"""What rounds cost is kept from reply to reply and from run to run, and never trusted blindly."""

import pytest

from fakes.models import TINY, tiny_network
from specdec_cli.core import kinds
from specdec_cli.core.events import Round
from specdec_cli.core.speedup import BELIEVED_SECONDS, CostMemo
from specdec_cli.engine import device
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.planning.chips import LAUNCH_SHARE, chip_of
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.session.cost_file import CostFile
from specdec_cli.session.meter import DraftController

TARGET, DRAFT = CachedModel(tiny_network(seed=1), "target"), CachedModel(tiny_network(seed=2), "draft")
NARROW = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8}
LIGHT = CachedModel(tiny_network(TINY | NARROW, seed=3), "draft")
RULE = greedy(TARGET.vocab_size)


@pytest.fixture
def memory(tmp_path):
    return CostFile(tmp_path / "state" / "costs.json")


def drafting(memory=None, identity="a pair", at=1000.0, draft=DRAFT):
    return DraftController(TARGET, draft, memory or {}, identity, now=lambda: at)


def begun(drafting, prompt_tokens=10, name="model", k="auto", max_tokens=500):
    meant = kinds.drafting(name, k)
    return drafting.begin(meant.kind, meant.k, RULE, [1] * prompt_tokens, max_tokens)


def taught(length):
    """Eight plain rounds of a second, and drafted ones in which a row costs half a step."""
    for index in range(8):
        length.observe(Round(index, "none", (), 0, 7, (7,), 0.0, 1.0), queued=index > 0, followed=index < 7)
    for index in range(8, 16):
        length.observe(Round(index, "model", (1, 2), 2, 7, (1, 2, 7), 0.2, 2.0))


@pytest.mark.parametrize(("name", "launches"), [("Apple M1 Pro", False), ("Apple M4 Pro", True)])
def test_unmeasured_costs_are_those_of_the_chip_and_a_draft_step_has_its_launches(monkeypatch, name, launches):
    monkeypatch.setattr(device, "device_name", lambda: name)
    monkeypatch.setattr(device, "queues_ahead", lambda: launches)
    assumed = begun(drafting()).history.costs.assumed
    share = TARGET.fresh().cache_bytes(10, 4) / TARGET.weight_bytes
    assert (
        assumed.verify == chip_of(name).rows(TARGET.network.widest, None, share, TARGET.network.queries_a_key)
        and share > 0
    )
    longer = begun(drafting(), prompt_tokens=2000).history.costs.assumed
    assert longer.verify[2] > assumed.verify[2]
    floor = LAUNCH_SHARE * DRAFT.layers / TARGET.layers * launches
    assert assumed.draft[1] == pytest.approx(DRAFT.step_bytes / TARGET.weight_bytes + floor)


@pytest.mark.parametrize(
    ("name", "k", "drafter", "planned"),
    [
        ("none", "auto", None, 0),
        ("model", 0, None, 0),
        ("model", 3, "model", 3),
        ("ngram", 3, None, 0),
        ("auto", 3, "model", 3),
    ],
)
def test_every_name_and_k_has_its_drafter(name, k, drafter, planned):
    found = begun(drafting(), name=name, k=k)
    assert (found.drafter.name if found.drafter else None) == drafter
    assert found.decide(40, first=True).k == 0
    assert found.decide(40).k == planned


def test_a_later_reply_goes_on_with_what_was_learned():
    one = drafting()
    first = begun(one).history
    taught(first)
    assert begun(one).history is first


def test_another_length_of_context_starts_from_it_as_an_assumption():
    one = drafting()
    short = begun(one).history
    taught(short)
    long = begun(one, prompt_tokens=5000).history
    assert long is not short
    assert long.costs.pass_steps()[2] == pytest.approx(2.0, rel=0.05)
    assert not long.costs.plain_measured  # a plain step is measured anew


def test_a_later_run_starts_from_what_was_written_down(memory):
    one = drafting(memory)
    taught(begun(one).history)
    one.remember(CostMemo())
    length = begun(drafting(memory)).history
    assert length.costs.kept.verify[3] == pytest.approx(2.0, rel=0.05)
    assert length.costs.kept.draft[2] == pytest.approx(0.2, rel=0.05)


def first_k(drafting, tokens=40):
    """The first K over 0 of a plain reply of so many tokens to a prompt of 100; 0 if there was none."""
    drafters = begun(drafting, prompt_tokens=100, max_tokens=tokens)
    for index in range(tokens):
        if k := drafters.follow(drafters.decide(tokens - index, first=index == 0)).k:
            return k
        drafters.observe(Round(index, "none", (), 0, 7, (7,), 0.0, 1.0), index > 0, True)
    return 0


def test_a_first_run_drafts_where_a_light_draft_should_pay_and_not_where_none_does():
    assert first_k(drafting(draft=LIGHT))
    assert first_k(drafting(draft=DRAFT)) == 0  # as heavy as its target


def test_another_pair_machine_or_age_does_not_believe_it(memory):
    one = drafting(memory)
    taught(begun(one).history)
    one.remember(CostMemo())
    assert begun(drafting(memory)).history.costs.kept
    assert not begun(drafting(memory, "another pair")).history.costs.kept
    assert not begun(drafting(memory, at=1001.0 + BELIEVED_SECONDS)).history.costs.kept
    assert not begun(drafting(memory, at=999.0)).history.costs.kept  # written in the future


def test_a_reply_of_a_fixed_k_teaches_what_drafting_costs_and_holds_nothing_against_it():
    """So that the first reply after a `bench` begins warm."""
    one = drafting()
    taught(begun(one, k=3).history)
    for _ in range(40):
        begun(one, k=3).history.observe(Round(0, "model", (1, 2), 0, 7, (7,), 9.0, 9.0))
    history = begun(one).history
    assert history.costs.rows_measured and history.to_dict(0.0)["credit"] == 0


def test_what_rounds_cost_in_plain_steps_is_kept_for_the_next_run_and_context(memory):
    one = drafting(memory)
    begun(one, k=4)
    one.remember(CostMemo({("model", 4): (0.6,)}))
    later = drafting(memory)
    begun(later, k=4)
    assert later.known_costs().costs["model", 4] == (0.6,)
    begun(later, prompt_tokens=5000, k=4)
    assert later.known_costs() == CostMemo()
