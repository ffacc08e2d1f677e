"""What a bench loads: one target, every draft beside it, and the machine it ran on."""

from dataclasses import replace

import pytest

from specdec_cli.bench.live import load_machine
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.sweep import BenchRequest
from specdec_cli.pairs.pair import Pair

REQUEST = BenchRequest(
    pair=Pair("tiny", "t", "d"),
    named=True,
    drafts=(),
    drafters=("model", "ngram"),
    ks=(1, 2),
    temperatures=(0.0,),
    rule="auto",
    seed=0,
    prompts=(BenchPrompt("code", "one", "def f("),),
    source="",
    max_tokens=8,
    raw=True,
    fixed_length=False,
    budget_seconds=1.0,
    cooldown_seconds=0.0,
    force=False,
)


@pytest.fixture
def request_of_tiny(tiny_pair):
    return replace(REQUEST, pair=Pair("tiny", *map(str, tiny_pair)))


def test_who_drafts_is_paired_with_what_it_needs(request_of_tiny, tiny_pair):
    machine, subjects = load_machine(request_of_tiny, lambda: False)
    assert [(one.drafter, one.draft) for one in subjects.contenders] == [("model", str(tiny_pair[1])), ("ngram", None)]
    assert subjects.environment.caches == {"target": ("KVCache",)} and subjects.environment.dtype == "float32"
    assert {"specdec", "python", "mlx", "mlx-lm"} <= set(subjects.environment.versions)
    assert machine.fitting(request_of_tiny.prompts, 8) == list(request_of_tiny.prompts)


def test_a_second_draft_shares_the_targets_weights(request_of_tiny, tiny_pair, tmp_path):
    other = tmp_path / "other"
    other.symlink_to(tiny_pair[1])
    machine, subjects = load_machine(replace(request_of_tiny, drafts=(str(other),), drafters=("model",)), lambda: False)
    assert len(subjects.contenders) == 2
    first, second = machine._sessions.values()
    assert first.slot.target is second.slot.target and first.slot.draft is not second.slot.draft


def test_without_a_drafting_model_no_draft_is_loaded(request_of_tiny):
    machine, subjects = load_machine(replace(request_of_tiny, drafters=("ngram",)), lambda: False)
    assert [(one.drafter, one.draft) for one in subjects.contenders] == [("ngram", None)]
    assert next(iter(machine._sessions.values())).slot.draft is None
