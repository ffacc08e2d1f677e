"""What rounds cost is kept from reply to reply and from run to run, and never trusted blindly."""

import pytest

from fakes.models import TINY, tiny_network
from specdec_cli.core import kinds
from specdec_cli.core.events import Round
from specdec_cli.core.speedup import BELIEVED_SECONDS, CostMemo
from specdec_cli.engine import device
from specdec_cli.engine.draft_length.adaptive import Adaptive, Fixed
from specdec_cli.engine.draft_length.chips import LAUNCH_SHARE, chip_of
from specdec_cli.engine.drafters.auto import AutoDrafter, NgramDrafter
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy
from specdec_cli.session.cost_file import CostFile
from specdec_cli.session.drafting import DraftController

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
        length.observe(Round(index, "none", (), 0, 7, (7,), 0.0, 1.0))
    for index in range(8, 16):
        length.observe(Round(index, "model", (1, 2), 2, 7, (1, 2, 7), 0.2, 2.0))


@pytest.mark.parametrize(("name", "launches"), [("Apple M1 Pro", False), ("Apple M4 Pro", True)])
def test_unmeasured_costs_are_those_of_the_chip_and_a_draft_step_has_its_launches(monkeypatch, name, launches):
    monkeypatch.setattr(device, "device_name", lambda: name)
    monkeypatch.setattr(device, "queues_ahead", lambda: launches)
    assumed = begun(drafting())[1].costs.assumed
    share = TARGET.fresh().cache_bytes(10, 4) / TARGET.weight_bytes
    assert (
        assumed.verify == chip_of(name).rows(TARGET.network.widest, None, share, TARGET.network.queries_a_key)
        and share > 0
    )
    longer = begun(drafting(), prompt_tokens=2000)[1].costs.assumed
    assert longer.verify[2] > assumed.verify[2]
    floor = LAUNCH_SHARE * DRAFT.layers / TARGET.layers * launches
    assert assumed.draft[1] == pytest.approx(DRAFT.step_bytes / TARGET.weight_bytes + floor)


@pytest.mark.parametrize(
    ("name", "k", "drafter", "length"),
    [
        ("none", "auto", Drafter, Fixed),
        ("model", 0, Drafter, Fixed),
        ("model", 3, ModelDrafter, Fixed),
        ("model", "auto", ModelDrafter, Adaptive),
        ("ngram", 3, NgramDrafter, Fixed),
        ("ngram", "auto", AutoDrafter, AutoDrafter),
        ("auto", 3, AutoDrafter, AutoDrafter),
        ("auto", "auto", AutoDrafter, AutoDrafter),
    ],
)
def test_every_name_and_k_has_its_drafter(name, k, drafter, length):
    found = begun(drafting(), name=name, k=k)
    assert [type(part) for part in found] == [drafter, length]


def test_a_later_reply_goes_on_with_what_was_learned():
    one = drafting()
    _, first = begun(one)
    taught(first)
    assert begun(one)[1] is first


def test_another_length_of_context_starts_from_it_as_an_assumption():
    one = drafting()
    _, short = begun(one)
    taught(short)
    _, long = begun(one, prompt_tokens=5000)
    assert long is not short
    assert long.costs.assumed.verify[3] == pytest.approx(2.0, rel=0.05)
    assert not long.costs.ready  # a plain step is measured anew


def test_a_later_run_starts_from_what_was_written_down(memory):
    one = drafting(memory)
    taught(begun(one)[1])
    one.remember()
    _, length = begun(drafting(memory))
    assert length.costs.assumed.verify[3] == pytest.approx(2.0, rel=0.05)
    assert length.costs.assumed.draft[2] == pytest.approx(0.2, rel=0.05)


def first_k(drafting, tokens=40):
    """The first K over 0 of a plain reply of so many tokens to a prompt of 100; 0 if there was none."""
    _, length = begun(drafting, prompt_tokens=100, max_tokens=tokens)
    for index in range(tokens):
        if k := length.next():
            return k
        length.observe(Round(index, "none", (), 0, 7, (7,), 0.0, 1.0))
    return 0


def test_short_runs_add_up_until_one_looks(memory):
    """The draft's reading of the prompt costs more than a run of 40 tokens may lose."""
    found = []
    for _ in range(12):
        run = drafting(memory, draft=LIGHT)
        found.append(first_k(run))
        run.remember()
    assert found[0] == 0 and 1 in found
    assert first_k(drafting(draft=LIGHT)) == 0  # negative control: a run that remembers nothing


def test_another_pair_machine_or_age_does_not_believe_it(memory):
    one = drafting(memory)
    taught(begun(one)[1])
    one.remember()
    assert 3 not in begun(drafting(memory, "another pair"))[1].costs.assumed.verify
    assert 3 not in begun(drafting(memory, at=1001.0 + BELIEVED_SECONDS))[1].costs.assumed.verify
    assert 3 not in begun(drafting(memory, at=999.0))[1].costs.assumed.verify  # written in the future


def test_what_rounds_cost_in_plain_steps_is_kept_for_the_next_run_and_context(memory):
    one = drafting(memory)
    begun(one, k=4)
    one.learn_costs(CostMemo({("model", 4): (0.6,)}))
    one.remember()
    later = drafting(memory)
    begun(later, k=4)
    assert later.known_costs().costs["model", 4] == (0.6,)
    begun(later, prompt_tokens=5000, k=4)
    assert later.known_costs() == CostMemo()
