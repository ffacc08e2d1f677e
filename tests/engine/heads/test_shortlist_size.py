"""How many tokens drafts are scored over: by seconds on a clock of the test's own, and by the words of the texts."""

from types import SimpleNamespace

import mlx.core as mx
import pytest

from specdec_cli.engine.heads import shortlist_size
from specdec_cli.engine.heads.branches import Text
from specdec_cli.engine.heads.shortlist_size import coverage, gain, useful_tokens

V = 64


def text(prompt, words):
    return Text([*prompt, *words], len(prompt), {})


@pytest.mark.parametrize(
    ("words", "first", "expected"),
    [([1, 2, 3], 4, 3 / 4), ([1, 9, 9, 9], 4, 3 / 5), ([7, 8], 4, 2 / 3), ([30, 31], 4, 0.0), ([], 4, 0.0)],
)
def test_a_word_is_covered_by_its_place_or_once_the_text_has_it(words, first, expected):
    """7 and 8 are of the prompt; one word less is counted, since few words prove little."""
    assert coverage([text([7, 8], words)], first, ()) == pytest.approx(expected)
    assert coverage([text([], [40])], first, (40,)) == 0.5


def test_the_gain_is_s_at_the_best_k():
    assert gain(0.9, 0.0) == pytest.approx((1 + 0.9 + 0.81 + 0.729 + 0.6561) / 2)
    assert gain(0.0, 0.1) == pytest.approx(1 / 1.35)
    assert gain(0.8, 0.1) > gain(0.8, 0.2) > gain(0.7, 0.2)


class World:
    """Target and head whose parts take the seconds asked for: a plain step 1 s, the head's layer, a row of scores."""

    def __init__(self, layer, row, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(shortlist_size, "LEAST", 4)
        monkeypatch.setattr(shortlist_size, "Shortlist", self.shortlist)
        whole = self.shortlist(None, V, ())
        whole.vocab_size, whole.hidden_size, whole.scored_by = V, 8, lambda output: whole
        fresh = lambda: SimpleNamespace(forward=lambda tokens: SimpleNamespace(logits=self.taking(1.0)))  # noqa: E731
        network = SimpleNamespace(hidden=SimpleNamespace(readout=whole))
        self.target, self.row = SimpleNamespace(network=network, fresh=fresh), row
        self.layer, self.output = layer, None

    def __call__(self, *_):
        """As the head."""
        return SimpleNamespace(scored=self.taking(self.layer))

    def taking(self, seconds):
        self.now += seconds
        return mx.zeros((1,))

    def shortlist(self, readout, first, always):
        return SimpleNamespace(logits=lambda hidden: self.taking(self.row * first), proven=True)

    def chosen(self, texts, acceptance=0.85):
        return useful_tokens(self, self.target, texts, acceptance, (), lambda: self.now)


FREQUENT = [text([], [1, 2, 3, 1, 2, 0] * 50)]


def test_the_smallest_part_that_has_the_words_is_taken_where_scores_are_dear(monkeypatch):
    assert World(0.02, 0.3 / V, monkeypatch).chosen(FREQUENT) == V // 16


def test_words_that_a_small_part_lacks_ask_for_a_larger_one(monkeypatch):
    words = [text([], [word]) for word in range(V // 4)] * 20
    assert World(0.02, 0.3 / V, monkeypatch).chosen(words) == V // 4


def test_all_tokens_stay_where_scores_are_cheap_or_words_are_rare_or_none_were_seen(monkeypatch):
    assert World(0.3, 0.001 / V, monkeypatch).chosen(FREQUENT) == 0
    rare = [text([], [word]) for word in range(V)] * 20
    assert World(0.02, 0.1 / V, monkeypatch).chosen(rare) == 0
    assert World(0.02, 0.3 / V, monkeypatch).chosen([]) == 0
