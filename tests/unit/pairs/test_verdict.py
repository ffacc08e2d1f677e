"""The verdict as an exit code and as JSON."""

from dataclasses import replace

import pytest

from specdec_cli.core.errors import DoesNotFit, Refused
from specdec_cli.models.vocab import VocabVerdict
from specdec_cli.pairs.fit import Fit, Footprint
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.verdict import PairVerdict

RUNS = PairVerdict(
    pair=Pair("tiny", "org/t", "org/d", 4),
    vocab=VocabVerdict("identical", "all 5 ids agree"),
    stop_tokens=("</s>",),
    has_template=True,
    caches=(("org/t", "kv"),),
    contexts=(("org/t", 4096, "max_position_embeddings"),),
    memory=Fit(None, lambda tokens: (Footprint("org/t", 10, 5, 1),), 100, tokens=4096),
    break_even=2.0,
    warnings=(),
    advice=("short answers gain little",),
    obstacles=(),
)


@pytest.mark.parametrize(
    ("obstacles", "code"),
    [((), 0), ((Refused("a", "b"), DoesNotFit("c", "d")), 4), ((DoesNotFit("c", "d"),), 5)],
)
def test_the_first_obstacle_decides_the_exit_code(obstacles, code):
    assert replace(RUNS, obstacles=obstacles).exit_code == code


def test_json_names_obstacles_sums_and_the_break_even_acceptance():
    found = replace(RUNS, obstacles=(Refused("a", "b"),)).to_dict()
    assert found["obstacles"] == [{"message": "a", "hint": "b"}] and found["verdict"] == "refused"
    assert found["memory"]["peak_bytes"] == 16 and found["memory"]["fits"]
    a = found["break_even_acceptance"]
    assert 1 + a + a**2 + a**3 + a**4 == pytest.approx(2.0)


def test_a_pair_without_a_draft_has_neither_tokenizers_nor_break_even():
    found = replace(RUNS, vocab=None, break_even=None).to_dict()
    assert found["tokenizers"] is None and found["break_even_acceptance"] is None
