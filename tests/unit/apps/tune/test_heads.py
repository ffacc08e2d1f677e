"""What heads learn from is what they draft with; what they learned is what a pair drafts with afterwards."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from fakes.counting import HEAD_CONFIG, counting_folder, counting_tensors, head_or_trunk
from fakes.gemma import agreeing_assistant, agreeing_folders
from fakes.heads import agreeing_head, cached_head, random_medusa, tiny_target
from fakes.raw_families import CONFIGS, raw_family
from fakes.raw_qwen import write_checkpoint
from specdec_cli.core.errors import Refused
from specdec_cli.engine.heads.cached_head import CachedHead, Head
from specdec_cli.engine.heads.load_head import load_head
from specdec_cli.engine.load import load as load_model
from specdec_cli.engine.training import HeadStudent, best_guesses, own_words, shown_of
from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.models.heads import read_head
from specdec_cli.pairs.files import DraftHead
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.load import load
from specdec_cli.session.ready import prove

TEXT = [(7 * i) % 89 + 3 for i in range(21)]
S = 3


def states_of(target, text):
    """[1, T - 1, D]: the target's own before each next token of `text`."""
    with target.network.hidden.exposed():
        return target.fresh().forward(mx.array(text[:-1])).hidden[None]


def drafted(cached, target, text, at):
    """What is scored in S steps from the state at position `at`, when the head drafts the text's own tokens."""
    cached, states = cached.fresh(), states_of(target, text)[0]
    cached.reuse(text[: at + 2])
    cached.hand_over(text[: at + 2], states[: at + 1])
    read = target.fresh()
    read.catch_up(text[: at + 2])
    shown = read.shown(at + 1) if cached.shown else None
    steps = [cached.first(shown)]
    for s in range(1, S):
        steps.append(cached.next(mx.array([text[at + 1 + s]]), steps[-1].carried, shown))
    return [np.array(step.scored[0, 0]) for step in steps]


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS]


@pytest.fixture(scope="module", params=["qwen", "medusa", "assistant", *SLOW])
def case(request, tmp_path_factory):
    """(target, a conversation's head over it)."""
    if request.param in CONFIGS:
        (trunk, own), root = raw_family(request.param), tmp_path_factory.mktemp(request.param)
        config = CONFIGS[request.param]
        target = load_model(read_checkpoint(write_checkpoint(root / "target", trunk, config), "t"))
        module = load_head(read_head(write_checkpoint(root / "head", own, config), "m"), 64)
        return target, CachedHead(Head(module, target.network, "m"))
    if request.param == "assistant":
        target = tiny_target("gemma4")
        return target, agreeing_assistant(target, clusters=16, best=8)
    target = tiny_target()
    if request.param == "medusa":
        return target, cached_head(target, random_medusa(heads=S), recent=1)
    return target, cached_head(target, agreeing_head(target))


def test_a_head_is_trained_on_what_it_drafts_with(case):
    """Row p of step s is what the drafter's own cache gives, whatever the batch; control: another row is not."""
    target, cached = case
    head = cached.head
    texts = [TEXT, TEXT[::-1]]
    states = mx.concatenate([states_of(target, text) for text in texts])
    embedded = mx.stack([head.output_head.embed(mx.array(text[1:])) for text in texts])
    shown = shown_of(target.network, mx.array(texts)) if head.module.shown else None
    guesses = [np.array(rows) for rows in head.module.guesses(embedded, states, S, shown)]
    for row, text in enumerate(texts):
        for at in (0, 4, len(text) - 2 - S):
            expected = drafted(cached, target, text, at)
            for s in range(S):
                size = np.abs(expected[s]).max()
                assert np.abs(guesses[s][row, at] - expected[s]).max() < 1e-4 * size
                assert np.abs(guesses[s][row, at + 1] - expected[s]).max() > 1e-2 * size


def test_agreement_counts_the_guesses_before_the_first_wrong_one(case):
    """By hand, from what is scored at each position."""
    target, cached = case
    student = HeadStudent(cached.head.module, target, S, 1e-3, {})
    lesson = own_words(target, [TEXT[:9], TEXT[4:13]], 8, 0.0, 0, ())
    output, right, starts = cached.head.output_head, 0, 0
    for text in lesson.ids.tolist():
        for at in range(9 - 2, len(text) - 1 - S):  # states whose S guesses are all of words said
            starts += 1
            scored = drafted(cached, target, text, at)
            hits = [
                int(output.logits(mx.array(one[None])).argmax()) == text[at + 2 + s] for s, one in enumerate(scored)
            ]
            right += [*hits, False].index(False)
    assert student.agreement([lesson]) == pytest.approx(right / S / starts)


def test_the_likeliest_guesses_are_those_of_the_first_step(case):
    target, cached = case
    found = best_guesses(target, cached, TEXT, 2)
    for at in (0, 5, len(TEXT) - 2 - S):
        logits = np.array(cached.head.output_head.logits(mx.array(drafted(cached, target, TEXT, at)[0][None]))[0])
        assert set(found[at + 1]) == set(np.argsort(-logits)[:2].tolist())


def head_folder(root):
    tensors = head_or_trunk(counting_tensors(head_noise=1.3), head=True)
    return write_checkpoint(root / "head", tensors, HEAD_CONFIG)


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """A pair whose target says the next number, and its own head that does as well."""
    folder = counting_folder(tmp_path_factory.mktemp("counting") / "m")
    return load(Pair("counting", str(folder), None), drafter="mtp")


def learned(kind, counting, tmp_path):
    """(the pair, a student of it that has not learned yet, prompts that are taught, steps)."""
    if kind == "gemma4_assistant":
        folders = agreeing_folders(tmp_path, share=1.0)
        pair = load(Pair("gemma", *map(str, folders)))
        prompts = [[(7 * i + row) % 250 + 3 for i in range(20)] for row in range(8)]
        return pair, HeadStudent.of_files(read_head(folders[1], "m"), pair.first.target, S), prompts, 40
    target, prompts = counting.first.target, [counting.text_tokens(text) for text in ("count with me", "one two three")]
    length = min(map(len, prompts))
    own = kind == "medusa"
    student = (
        HeadStudent.medusa(target, S) if own else HeadStudent.of_files(read_head(head_folder(tmp_path), "m"), target, S)
    )
    return counting, student, [prompt[:length] for prompt in prompts] * 4, 80


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mtp", "medusa", "gemma4_assistant"])
def test_a_head_that_learned_drafts_in_a_pair_as_it_did_in_training(counting, tmp_path, kind):
    """From the folder that is kept. Control: before any step it says something else."""
    pair, student, prompts, steps = learned(kind, counting, tmp_path)
    target, kept = pair.first.target, tmp_path / "kept"
    lesson = own_words(target, prompts, 24, 0.0, 0, ())
    before, losses = student.agreement([lesson]), [student.step(lesson, step / steps) for step in range(steps)]
    assert losses[-1] < losses[0] and (student.agreement([lesson]) > before or (kind == "mtp" and before == 1.0))
    kept.mkdir()
    student.save(kept)
    assert {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o600}
    again = prove(pair, DraftHead(read_head(kept, "kept")))
    assert again.draft_kind == kind
    head, ids = again.first.draft.head, lesson.ids[:1]
    embedded, shown = (
        head.output_head.embed(ids[0, 1:])[None],
        shown_of(target.network, ids) if head.module.shown else None,
    )
    ours, theirs = (one.guesses(embedded, lesson.hidden[:1], S, shown) for one in (head.module, student.network))
    assert all(np.allclose(a, b, atol=1e-3 * float(mx.abs(b).max())) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("family", ["mimo", *(pytest.param(n, marks=pytest.mark.slow) for n in CONFIGS if n != "mimo")])
def test_a_head_of_any_family_is_loaded_as_it_was_kept(family, tmp_path):
    """Under the names of the parameters, which are not those of its own repository."""
    (trunk, own), config = raw_family(family), CONFIGS[family]
    target = load_model(read_checkpoint(write_checkpoint(tmp_path / "target", trunk, config), "t"))
    files = read_head(write_checkpoint(tmp_path / "head", own, config), "m")
    student, kept = HeadStudent.of_files(files, target, S), tmp_path / "kept"
    kept.mkdir()
    student.save(kept)
    again = read_head(kept, "kept")
    assert again.family == files.family
    found, expected = load_head(again, 64), load_head(files, 64)
    assert found.recipe == expected.recipe
    for (name, value), (_, other) in zip(*(tree_flatten(one.parameters()) for one in (found, expected)), strict=True):
        assert np.allclose(value.astype(mx.float32), other.astype(mx.float32), atol=1e-6), name


def test_a_head_in_a_few_bits_is_refused(counting, tmp_path, monkeypatch):
    files = read_head(head_folder(tmp_path), "m")
    module = load_head(files, counting.first.target.network.hidden.output_head.hidden_size)
    nn.quantize(module, 32, 4, class_predicate=lambda path, _: path == "fc")
    monkeypatch.setattr("specdec_cli.engine.training.load_head", lambda *_: module)
    with pytest.raises(Refused, match=r"the MTP head of m is packed in a few bits \(fc\), and only floats can learn"):
        HeadStudent.of_files(files, counting.first.target, S)
