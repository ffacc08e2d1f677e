"""How many tokens drafts are scored over: by the bytes that steps read, and by the words of the texts."""

from types import SimpleNamespace

import pytest

from specdec_cli.engine.heads import shortlist_size
from specdec_cli.engine.heads.agreement import Text
from specdec_cli.engine.heads.shortlist_size import best_shortlist, coverage, gain

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
    """A head whose layer and whose output head, over all tokens, read such parts of a plain step's bytes."""

    def __init__(self, layer, scores, monkeypatch, proven=True):
        monkeypatch.setattr(shortlist_size, "LEAST", 4)
        monkeypatch.setattr(shortlist_size, "Shortlist", lambda readout, first, always: Cut(first, proven))
        self.readout, self.layer, self.scores = SimpleNamespace(vocab_size=V), layer, scores

    def bytes_over(self, shortlist):
        """As the head; a plain step reads 1 byte."""
        return self.layer + self.scores * (shortlist.first / V if shortlist else 1)

    def chosen(self, texts, acceptance=0.85):
        found = best_shortlist(self, SimpleNamespace(step_bytes=1), texts, acceptance, ())
        return found.first if found else 0


class Cut(SimpleNamespace):
    def __init__(self, first, proven):
        super().__init__(first=first, proven=proven)


FREQUENT = [text([], [1, 2, 3, 1, 2, 0] * 50)]


def test_the_smallest_part_that_has_the_words_is_taken_where_scores_are_dear(monkeypatch):
    assert World(0.02, 0.3, monkeypatch).chosen(FREQUENT) == V // 16


def test_all_tokens_are_kept_where_a_cut_gains_little_loses_words_or_is_not_proven(monkeypatch):
    assert World(0.02, 0.001, monkeypatch).chosen(FREQUENT) == 0
    rare = [text([], [word]) for word in range(V)] * 20
    assert World(0.02, 0.1, monkeypatch).chosen(rare) == 0
    assert World(0.02, 0.3, monkeypatch).chosen([]) == 0
    assert World(0.02, 0.3, monkeypatch, proven=False).chosen(FREQUENT) == 0
