"""How many kernels a round gives the device beside the models' own, and that no round compiles one anew.

Each costs a GPU some microseconds whatever its size, so their number is what sampling costs there.
"""

import mlx.core as mx
import pytest

from fakes.device import says
from fakes.dispatches import CAN_FUSE, count_sorts, logit_rows, queued_by_rounds, sort_dispatches
from specdec_cli.core.kinds import RULES
from specdec_cli.engine.sampling import cuts
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling

V = 8_000
ROWS = logit_rows(24, V)
GREEDY = {"greedy": Sampling(), "repetition 1.1": Sampling(repetition_penalty=1.1)}
SAMPLED = {
    "temperature": Sampling(0.7),
    "top-k 20, top-p 0.95": Sampling(0.6, 20, 0.95),
    "top-k 20, top-p 0.8": Sampling(0.7, 20, 0.8),
    "top-p 0.95": Sampling(0.8, 0, 0.95),
    "min-p 0.05": Sampling(0.8, min_p=0.05),
    "top-k, top-p, three penalties": Sampling(0.7, 20, 0.8, 0.0, 1.05, 0.2, 0.1),
}
CASES = [("greedy", name) for name in GREEDY] + [(rule, name) for name in SAMPLED for rule in RULES]
# Of a whole round of K = 4, as agreed.
BUDGETS = {"greedy": 30, "top-k 20, top-p 0.95": 140, "top-k 20, top-p 0.8": 140}
needs_fusing = pytest.mark.skipif(not CAN_FUSE, reason="mlx cannot fuse here: a CPU without a C++ compiler")


def rule_of(rule, name, vocab_size=V):
    sampling = (GREEDY | SAMPLED)[name]
    return make_rule("token" if rule == "greedy" else rule, Sampler(sampling, 1, [1, 2, 3], vocab_size))


def counted(monkeypatch, folder, k, rows=ROWS):
    """(rule, setting) -> dispatches of the first round (plain) and of the second (K = `k`)."""
    says(monkeypatch, fuses=True)
    return {case: queued_by_rounds(monkeypatch, folder, rule_of(*case), k, 2, rows) for case in CASES}


def test_the_groups_of_a_wide_vocabulary_are_two_blocks_and_are_counted_so(monkeypatch):
    merges = count_sorts(monkeypatch)
    cuts.top_values(mx.zeros((2, 151_936)), 20)
    assert merges["merges"] == sort_dispatches(151_936 // cuts.GROUP) - 1 == 3


@needs_fusing
def test_a_round_of_four_guesses_stays_within_its_budget(monkeypatch, tmp_path):
    counts = counted(monkeypatch, tmp_path, 4)
    totals = {case: (found[1].total(), found[0].total()) for case, found in counts.items()}
    table = "\n".join(
        f"{name:32} {rule:8} K=4 {drafted:4} K=0 {plain:4} budget {BUDGETS.get(name, 'none')}"
        for (rule, name), (drafted, plain) in totals.items()
    )
    over = [case for case, (drafted, _) in totals.items() if drafted > BUDGETS.get(case[1], drafted)]
    assert not over, f"{over}\n{table}"
    assert min(drafted for drafted, _ in totals.values()) > 10, table  # something was counted
