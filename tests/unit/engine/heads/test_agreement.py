"""How well a head agrees with its target's own words, and which head not at all. Everything is deterministic.

Target and head are those of `fakes.counting`.
"""

from itertools import islice

import pytest

from fakes.counting import counting_folder, counting_tensors, random_head
from specdec_cli.core.errors import Refused
from specdec_cli.engine.heads.load_head import FLOOR, WORDS, HeadAgreement, load_agreeing, own_texts
from specdec_cli.engine.heads.mtp import QWEN
from specdec_cli.engine.load import load
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import find_head

PROMPTS = [[(31 * i + 17 * j) % 250 + 3 for i in range(6)] for j in range(4)]


def files_in(folder, tensors=None):
    return find_head(read_checkpoint(counting_folder(folder, tensors), "counting"))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = counting_folder(tmp_path_factory.mktemp("counting") / "model")
    return load(read_checkpoint(folder, "counting")), find_head(read_checkpoint(folder, "counting"))


def texts_of(model, stops=frozenset()):
    return own_texts(model, PROMPTS, stops)


def test_a_head_that_agrees_as_its_family_is_read_is_asked_for_one_text_only(target):
    model, files = target
    texts = texts_of(model)
    head, found = load_agreeing(files, model, texts)
    assert (found.words, head.recipe) == (WORDS, QWEN)
    assert found.share > 0.9 and found.chance < 0.1
    assert len(list(texts)) == len(PROMPTS) - 1


def test_a_head_that_was_never_learned_is_refused_with_the_numbers(target, tmp_path):
    files = files_in(tmp_path / "m", random_head(counting_tensors()))
    _, found = load_agreeing(files, target[0], texts_of(target[0]))
    assert found.words == len(PROMPTS) * WORDS
    with pytest.raises(
        Refused, match=r"the MTP head of counting guesses \d+ % of 128 tokens of t, where chance guesses \d+ %"
    ) as caught:
        found.require(files, "t")
    assert caught.value.exit_code == 4 and "\n" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("share", "chance", "refused"), [(0.14, 0.05, True), (0.15, 0.05, False), (0.9, 0.9, True), (1.0, 1.0, False)]
)
def test_the_floor_is_agreement_beyond_chance(share, chance, refused):
    """Where luck guesses every word there is no telling, and nobody is refused."""
    found = HeadAgreement(128, share, chance)
    assert (found.kappa < FLOOR) == refused


def test_texts_are_the_targets_own_greedy_words_and_nothing_of_it_changes(target):
    model, context = target[0], list(PROMPTS[0])
    texts = list(islice(texts_of(model), 2))
    for _ in range(12):
        context.append(int(model.fresh().logits(context, model.ids([]))[-1].argmax()))
    assert texts[0].context[: len(context)] == context and list(texts[0].words) == texts[0].context[6:]
    assert len(texts[0].hidden) == len(texts[0].context) - 1
    assert not model.length and model.outputs([5, 6, 7]).hidden is None
