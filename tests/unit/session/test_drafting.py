"""What rounds cost: assumed by the chip, kept from reply to reply and run to run, never trusted blindly; and plans."""

from functools import cache
from statistics import fmean

import pytest

from fakes.machine import CURVES, Machine, Text, play
from fakes.models import TINY, tiny_network
from fakes.packed import gpt_oss, model_as
from specdec_cli.core import kinds
from specdec_cli.core.events import Round
from specdec_cli.core.gain import TYPICAL_ROW_COST
from specdec_cli.core.speedup import BELIEVED_SECONDS, CostMemo
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.planning.chips import EXPERT_ROW_COST, LAUNCH_SHARE, chip_of
from specdec_cli.engine.planning.history import History
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.session.cost_file import CostFile
from specdec_cli.session.drafting import DraftController

TARGET, DRAFT = CachedModel(tiny_network(seed=1), "target"), CachedModel(tiny_network(seed=2), "draft")
NARROW = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8}
LIGHT = CachedModel(tiny_network(TINY | NARROW, seed=3), "draft")


@pytest.fixture
def memory(tmp_path):
    return CostFile(tmp_path / "state" / "costs.json")


def drafting(memory=None, identity="a pair", at=1000.0, draft=DRAFT):
    return DraftController(TARGET, draft, memory or {}, identity, now=lambda: at)


def begun(drafting, prompt_tokens=10, name="model", k="auto", max_tokens=500):
    meant = kinds.drafting(name, k)
    rule = greedy(drafting.target.vocab_size)
    return drafting.begin(meant.kind, meant.k, rule, [1] * prompt_tokens, max_tokens)


def taught(length):
    """Eight plain rounds of a second, and drafted ones in which a row costs half a step."""
    for index in range(8):
        length.observe(Round(index, "none", (), 0, 7, (7,), 0.0, 1.0), queued=index > 0, followed=index < 7)
    for index in range(8, 16):
        length.observe(Round(index, "model", (1, 2), 2, 7, (1, 2, 7), 0.2, 2.0))


@pytest.mark.parametrize(("name", "launches"), [("Apple M1 Pro", False), ("Apple M4 Pro", True)])
def test_unmeasured_costs_are_those_of_the_chip_and_a_draft_step_has_its_launches(device_says, name, launches):
    device_says(device_name=name, queues_ahead=launches)
    assumed = begun(drafting()).history.costs.assumed
    share = TARGET.cache_bytes(10, 4) / TARGET.weight_bytes
    assert (
        assumed.verify == chip_of(name).rows(TARGET.network.widest, None, share, TARGET.network.queries_a_key)
        and share > 0
    )
    longer = begun(drafting(), prompt_tokens=2000).history.costs.assumed
    assert longer.verify[2] > assumed.verify[2]
    floor = LAUNCH_SHARE * DRAFT.layers / TARGET.layers * launches
    assert assumed.draft[1] == pytest.approx(DRAFT.step_bytes / TARGET.weight_bytes + floor)


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


# A mixture of experts on a Mac, played on machines as their kernels suggest. (Simulated.)

# The curve that stands for a chip.
CHIPS = {"Apple M2 Max": "Apple M2 Pro", "Apple M3 Pro": "Apple M3 Max", "Apple M5": "Apple M5 Max"}
TEXT, SEEDS = Text("seven in ten", ((1, 0.7, 1.0),)), {40: 20, 512: 3}


@cache
def models():
    """gpt-oss-120b and its draft, gpt-oss-20b."""
    return model_as(gpt_oss(36, 128)), model_as(gpt_oss(24, 32))


def assumed(device_says, chip):
    device_says(device_name=chip, queues_ahead=True)
    return begun(DraftController(*models()), prompt_tokens=64).history.costs.assumed


def test_a_mixture_of_experts_costs_what_it_reads(device_says):
    """The bug: a draft step of 0.24 plain steps, and 0.05 for a second row."""
    experts = 1.90 / 4.17
    for chip, row in (("Apple M3 Pro", 0.1), ("x86_64", TYPICAL_ROW_COST)):
        costs = assumed(device_says, chip)
        assert costs.draft[1] == pytest.approx(3.18 / 4.17 + LAUNCH_SHARE * 24 / 36, rel=0.01)
        assert costs.passes()[2] == pytest.approx(1 + EXPERT_ROW_COST * experts + row * (1 - experts), abs=0.02)


@pytest.mark.parametrize("tokens", SEEDS)
@pytest.mark.parametrize("chip", CHIPS)
def test_gpt_oss_120b_does_not_draft_with_20b_where_it_loses(device_says, chip, tokens):
    """The bug: it drafted at once on an M3 Pro and an M5, and took a reply of 40 tokens to 0.83 of plain decoding."""
    costs, curve = assumed(device_says, chip), {name: rows for name, rows, _ in CURVES}[CHIPS[chip]]
    experts = 1.90 / 4.17
    rows = {n: cost * (1 - experts) + (1 + 0.9 * (n - 1)) * experts for n, cost in curve.items()}
    machine = Machine(chip, 0.77, rows, spikes=0.0)
    found = []
    for seed in range(SEEDS[tokens]):
        history = History(costs, 8, 0.0)
        history.begin(tokens, 64)
        found.append(play(machine, TEXT, 0, tokens, seed).seconds / play(machine, TEXT, history, tokens, seed).seconds)
    assert fmean(found) == pytest.approx(1, abs=0.01)
