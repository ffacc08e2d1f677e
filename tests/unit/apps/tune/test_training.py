"""What a draft learns from, how its training ends, and that only what it should have learned is kept."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import _get_classes, load_model

from conformance.architectures import architectures
from fakes.chat import fit_of, networks, tokenizer_in
from fakes.dispatches import dispatches
from fakes.packed import packed_folder
from specdec_cli.apps.tune import kept, training
from specdec_cli.apps.tune.documents import PIECE, SAID
from specdec_cli.apps.tune.figures import judge
from specdec_cli.apps.tune.kept import Kept
from specdec_cli.apps.tune.trainee import trainee
from specdec_cli.apps.tune.training import Training, fitting_pieces
from specdec_cli.apps.tune.tuning import measure, measured
from specdec_cli.core.errors import Refused
from specdec_cli.engine import training as engine
from specdec_cli.engine.load import _fused, load_network
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.training import Lesson, own_words
from specdec_cli.pairs.files import find
from specdec_cli.pairs.limits import HEADROOM
from specdec_cli.pairs.pair import Pair, PairSpec
from specdec_cli.session.load import Wishes, beside, load_spec
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot


def greedy(network, piece, tokens):
    """By whole passes, without a cache."""
    ids = list(piece)
    for _ in range(tokens):
        ids.append(int(network(mx.array([ids]))[0, -1].argmax().item()))
    return ids


def test_the_figures_of_a_prediction_are_those_of_a_direct_computation(pair, parts):
    """Rounds of 3 by hand, from what both networks say after every prefix of the target's own text."""
    target, draft = (part.network.module for part in (pair.first.target, pair.first.draft))
    found = measured({one.name: measure(pair.session(), one.pieces(2, 0), 16, 3) for one in parts.judged[:2]}, 3)
    near = rejected = 0
    for document in parts.judged[:2]:
        accepted = document_rejected = passes = 0
        for piece in document.pieces(2, 0):
            ids = greedy(target, piece, 16)
            if stop := next((at for at in range(PIECE, len(ids)) if ids[at] in pair.tokenizer.stop_tokens), 0):
                del ids[stop + 1 :]
            scores = np.array(draft(mx.array([ids]))[0])
            at = PIECE + 1  # the first pass says one token, and does not count
            while at < len(ids):
                k, n = min(3, len(ids) - at - 1 if len(ids) == PIECE + 16 else 3), 0
                while n < k and at + n < len(ids) and scores[at + n - 1].argmax() == ids[at + n]:
                    n += 1
                if n < k and at + n < len(ids):
                    document_rejected += 1
                    near += ids[at + n] in np.argsort(-scores[at + n - 1])[:4]
                accepted, passes, at = accepted + n, passes + 1, at + n + 1
        stats = found.stats[document.name]
        assert (stats.draft_n_accepted, stats.rejected_n, stats.rounds) == (accepted, document_rejected, passes)
        rejected += document_rejected
    assert found.near == near and rejected > 0


def test_a_lesson_holds_the_targets_greedy_words_and_its_best_logits(pair, parts, tmp_path):
    pieces, network = [one.pieces(1, 0)[0] for one in parts.judged[:2]], pair.first.target.network.module
    lesson = own_words(pair.first.target, pieces, 8, 0.0, 0, ())
    assert lesson.ids.tolist() == [greedy(network, piece, 8) for piece in pieces]
    logits = network(lesson.ids)[:, PIECE - 1 : -1]
    assert np.allclose(np.sort(lesson.logits), np.sort(logits)[..., -64:], atol=1e-4)
    lesson.save(tmp_path / "lesson.safetensors")
    assert Lesson.read(tmp_path / "lesson.safetensors").best.tolist() == lesson.best.tolist()
    assert (tmp_path / "lesson.safetensors").stat().st_mode & 0o777 == 0o600
    third = lesson.ids[0, PIECE + 2].item()
    said = own_words(pair.first.target, pieces[:1], 8, 0.0, 0, (third,)).said.tolist()[0]
    last = lesson.ids[0, PIECE:].tolist().index(third)
    assert said == [at <= last for at in range(8)]
    drawn = [own_words(pair.first.target, pieces, 8, 1.0, seed, ()).ids.tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def run(pair, student, folder, parts, seconds=1e9, clock=time.monotonic, **more):
    return Training(pair, student, Kept(folder, clock=clock), seconds, 0, **more).run(parts)


class Scripted:
    """A student whose losses and agreements are given; a save is counted."""

    def __init__(self, losses, agreements):
        self._losses, self._agreements, self.saves = iter(losses), iter(agreements), 0

    def warm_up(self, lesson):
        pass

    def step(self, lesson, share):
        return next(self._losses)

    def agreement(self, lessons):
        return next(self._agreements)

    def save(self, folder):
        self.saves += 1

    def state(self):
        return {"weights.a": mx.zeros(1)}

    def restore(self, state, steps):
        pass


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(training, "SAID", 2)
    monkeypatch.setattr(training, "LOOK_STEPS", 2)
    monkeypatch.setattr(training, "MOST_PIECES", 4)


@pytest.mark.parametrize("loss", [pytest.param(math.nan, marks=pytest.mark.slow), math.inf])
def test_a_loss_that_is_no_number_ends_it_with_what_it_knows(pair, parts, tmp_path, short, loss):
    student = Scripted([1.0, 1.0, 1.0, loss], [0.5, 0.6, 0.55])
    done = run(pair, student, tmp_path, parts)
    assert (done.looks[-1].step, done.best, student.saves) == (3, 2, 1)
    assert done.ended == f"its loss was {loss} at step 4"


@pytest.mark.slow
def test_it_ends_where_nothing_better_comes_and_where_it_is_interrupted(pair, parts, tmp_path, short):
    student = Scripted([1.0] * 99, [0.5, 0.6, *[0.6] * 99])
    done = run(pair, student, tmp_path, parts)
    assert (done.looks[-1].step, done.best, student.saves) == (26, 2, 1)
    presses = iter([""] * 20 + ["it was interrupted"] * 9)
    other = tmp_path / "other"
    other.mkdir()
    done = run(pair, Scripted([1.0] * 99, [0.5] * 99), other, parts, stop=lambda: next(presses))
    assert done.ended == "it was interrupted" and done.best == 0


def test_the_minutes_hold_whatever_is_left(pair, parts, tmp_path, short):
    """A lesson, a step and a look take a second each: of 20 seconds 8 are for lessons, one of which is watched."""
    now, seen = iter(range(1000)), []
    student = Scripted([1.0] * 99, [0.5 + at for at in range(99)])
    done = run(pair, student, tmp_path, parts, seconds=20, report=seen.append, clock=lambda: float(next(now)))
    assert done.ended == "the time was up" and (done.looks[-1].step, done.best) == (8, 8)
    heard = [one for one in seen if one.doing == "listening"]
    assert [(one.number, one.of, one.seconds) for one in heard] == [(at, 8, 12 + 9.0 - at) for at in range(2, 9)]
    assert {one.of for one in seen[7:]} == {8} and len(list(tmp_path.glob("lesson-*"))) == 7


def test_a_lesson_has_half_the_pieces_where_memory_is_tight_or_is_refused(spec, pair, device_says):
    """What the layers keep was not counted: 3.5 GB for Qwen3-0.6B, on a Mac of 16 GB."""
    weights = pair.first.weight_bytes
    for usable, pieces in ((8, 8), (7.9, 4), (4, 4), (3, 2), (1, 1)):
        device_says(usable_bytes=int((weights + 1000 + usable * 1_000_000) / HEADROOM) + 2)
        assert fitting_pieces(spec, pair, 1000, 1_000_000) == pieces
    device_says(usable_bytes=int((weights + 920_000) / HEADROOM))
    with pytest.raises(training.DoesNotFit, match=r"training .* needs 1\.8 MB; 1\.7 MB are usable"):
        fitting_pieces(spec, pair, 1000, 1_000_000)


def test_a_killed_training_goes_on_with_the_pieces_that_it_began_with(pair, student, parts, tmp_path):
    now = iter(range(1000))
    seen = []
    student.warm_up = lambda lesson: seen.append(lesson.ids.shape[0])
    for pieces in (2, 8):
        run(pair, student, tmp_path, parts, 8, lambda: float(next(now)), pieces=pieces)
    assert set(seen) == {2}
    assert {mx.load(str(path))["ids"].shape[0] for path in tmp_path.glob("lesson-*")} == {2}


@pytest.mark.slow
@pytest.mark.parametrize(("width", "layers", "rows"), [(128, 8, 8), (256, 4, 8), (512, 4, 2)])
def test_the_peak_of_a_step_is_what_was_counted(width, layers, rows):
    """0.75 to 1 of it. Control: without the layers' values it is more than counted."""
    config = {"model_type": "qwen3", "hidden_size": width, "num_hidden_layers": layers, "intermediate_size": 3 * width}
    config |= {"num_attention_heads": width // 64, "num_key_value_heads": width // 128, "head_dim": 64}
    config |= {"rms_norm_eps": 1e-6, "vocab_size": 4096, "max_position_embeddings": 512, "rope_theta": 1e4}
    model_class, args_class = _get_classes(config | {"tie_word_embeddings": True})
    network = model_class(args_class.from_dict(config | {"tie_word_embeddings": True}))
    counted = rows * engine.value_bytes(network.layers, PIECE + SAID)
    logits = rows * 4 * engine.KEPT_LOGIT_ARRAYS * 4096 * (PIECE + SAID)
    network.freeze()
    linear_to_lora_layers(network, layers, dict(engine.LORA))

    class Learner(engine.Student):
        def loss(self, lesson):
            return engine.divergence(self.network(lesson.ids[:, :-1])[:, -SAID:], lesson)

    learner = Learner(network, 1e-3)
    shape = rows, SAID, engine.KEPT_LOGITS
    lesson = Lesson(
        mx.random.randint(0, 4096, (rows, PIECE + SAID)),
        mx.random.randint(0, 4096, shape),
        mx.random.normal(shape),
        mx.ones(shape[:2], dtype=mx.bool_),
    )
    learner.warm_up(lesson)
    mx.eval(lesson.ids, lesson.best, lesson.logits, network.parameters())
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    learner.step(lesson, 0.0)
    peak = mx.get_peak_memory() - before
    assert 0.75 * (counted + logits) < peak < counted + logits and peak > logits


def test_on_metal_freed_buffers_are_kept_while_a_training_runs_and_no_longer(monkeypatch, device_says):
    """A gigabyte was kept, and each step gave the rest of its pages back and faulted them in again."""
    limits, held = [1 << 30], []
    monkeypatch.setattr(mx, "set_cache_limit", lambda limit: (limits.append(limit), limits[-2])[1])
    for name, expected in (("metal", [6 << 30, 1 << 30]), ("cpu", [])):
        device_says(backend=name)
        del limits[1:]
        with training.device.keeping_freed(6 << 30):
            held = limits[1:]
        assert limits[1:] == expected and held == expected[:1]
    device_says(backend="metal")
    with training.device.keeping_freed(1 << 20):
        assert limits[-1] == 1 << 30  # never less than before


@pytest.mark.parametrize("kind", ["qwen3_5", "lfm2", "mamba2", "falcon_h1", "qwen3", "gemma3_text"])
def test_a_draft_with_recurrent_layers_is_refused_before_anything_is_heard(kind, tmp_path):
    """Its Metal kernel has no gradient: the first step failed, after 40 % of the minutes, at every retry."""
    target, draft = (CachedModel(network, kind) for network in networks(kind))
    slot = Slot(target, draft)
    loaded = LoadedPair(Pair("tiny", "t", "d"), ("t", "small"), tokenizer_in(tmp_path), slot, fit_of(slot))
    if kind in ("qwen3", "gemma3_text"):
        assert trainee("draft", PairSpec(loaded.pair), loaded, 3, 0).what == "draft"
        return
    with pytest.raises(Refused, match=r"small has recurrent layers \(ArraysCache\), which cannot be trained"):
        trainee(None, PairSpec(loaded.pair), loaded, 3, 0)


@pytest.mark.parametrize("bits", [4, 16])
def test_an_adapter_beside_a_matrix_costs_two_kernels_and_says_what_mlx_lms_does(bits, tiny_pair, tmp_path):
    """mlx-lm's layer takes six: two conversions, two products, the scale, the sum; 1,176 a step of Qwen3-0.6B."""
    source = packed_folder(tmp_path / "packed", tiny_pair[1], dtype="float16") if bits == 4 else tiny_pair[1]
    plain, theirs = (load_model(source)[0] for _ in range(2))
    theirs.freeze()
    mx.random.seed(1)
    linear_to_lora_layers(theirs, len(theirs.layers), dict(engine.LORA))
    if bits == 16:
        plain.set_dtype(mx.float16)
        theirs.apply(lambda value: value.astype(mx.float16) if value.dtype == mx.float32 else value)
    found = [layer for _, layer in theirs.named_modules() if isinstance(layer, LoRALinear)]
    for layer in found:
        layer.lora_a = layer.lora_a.astype(mx.float32)
        layer.lora_b = mx.random.normal(layer.lora_b.shape) * 0.01
    ids = mx.array([[5, 6, 7]])

    def kernels(network):
        mx.eval(network.parameters())
        return sum(dispatches(tmp_path, network(ids)).values())

    expected, before, without = theirs(ids), kernels(theirs), kernels(plain)
    mx.eval(expected)
    ours = _fused(theirs)
    after = kernels(ours)
    assert after - without == 2 * len(found) and before - without == 6 * len(found)
    assert ours(ids).dtype == expected.dtype
    assert mx.allclose(ours(ids), expected, atol=0.03 * mx.abs(expected).max().item())
    assert not mx.allclose(plain(ids), expected, atol=0.03 * mx.abs(expected).max().item())


ENDS = {
    "patience": (1e9, [1.0] * 99, [0.5, 0.6, *[0.55] * 12, *[0.9] * 99]),
    "time": (20, [1.0] * 99, [0.5 + at / 99 for at in range(99)]),
    "no better ever": (1e9, [1.0] * 99, [0.5, *[0.4] * 12, *[0.9] * 99]),
    "no number": (1e9, [1.0, 1.0, math.nan, *[math.nan, 1.0, 1.0] * 9], [0.5, 0.6, *[0.9] * 99]),
    "no number after a look between": (1e9, [1.0, math.nan, *[math.nan, 1.0] * 9], [0.5, 0.6, *[0.9] * 99]),
}


@pytest.mark.parametrize("why", [pytest.param(why, marks=[pytest.mark.slow] * (why != "patience")) for why in ENDS])
def test_a_training_that_was_killed_at_its_end_ends_as_the_undisturbed_one(pair, parts, tmp_path, short, why):
    """After an end without progress the same command trained on, and a later look counted: best 28 instead of 2."""
    seconds, losses, agreements = ENDS[why]
    student, now = Scripted(losses, agreements), iter(range(10000))
    student.save = lambda folder: (folder / "a").touch()

    def ended():
        return run(pair, student, tmp_path, parts, seconds, clock=lambda: float(next(now)))

    assert ended() == ended()


def test_a_training_whose_best_was_moved_begins_anew_and_one_without_a_better_look_goes_on(
    pair, parts, tmp_path, short
):
    """Killed between keeping and clearing, the same command failed for a week: "best has no adapter_config.json"."""
    student, begun = Scripted([1.0] * 99, [0.5, 0.6, *[0.6] * 12, 0.5, 0.6, *[0.6] * 12]), []
    student.save = lambda folder: (folder / "a").touch()
    student.restore = lambda state, steps: begun.append(steps)
    first = run(pair, student, tmp_path, parts)
    (tmp_path / training.BEST).rename(tmp_path / "kept")
    assert run(pair, student, tmp_path, parts) == first
    assert (tmp_path / training.BEST / "a").exists() and begun == []
    worse = tmp_path / "worse"
    worse.mkdir()
    student = Scripted([1.0] * 99, [0.5, *[0.4] * 99])
    student.restore = lambda state, steps: begun.append(steps)
    assert run(pair, student, worse, parts) == run(pair, student, worse, parts) and begun == [24]


def test_a_training_is_cleared_state_first(tmp_path, monkeypatch):
    """A kill amid clearing left a state without all of its best, which was gone on with."""
    for name in (kept.STATE, f"{kept.TRAINED}.json"):
        (tmp_path / name).touch()
    monkeypatch.setattr(kept.shutil, "rmtree", lambda folder, ignore_errors: None)  # killed
    kept.clear(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_an_adapter_says_in_the_pair_what_the_student_said(pair, spec, student, parts, tmp_path):
    """Loading puts it into the matrices. Control: without it the draft says something else."""
    lesson = own_words(pair.first.target, [one.pieces(1, 0)[0] for one in parts.watched], 16, 0.0, 0, ())
    before, losses = student.agreement([lesson] * 2), [student.step(lesson, 0.0) for _ in range(30)]
    right = np.array(pair.first.draft.network.module(lesson.ids)[:, PIECE - 1 : -1].argmax(-1)) == lesson.ids[:, PIECE:]
    assert before == pytest.approx((right * np.array(lesson.said)).sum() / np.array(lesson.said).sum())
    assert losses[-1] < losses[0] and student.agreement([lesson]) > before
    student.save(tmp_path)
    adapted = beside(pair, replace(pair.pair, draft_adapter=str(tmp_path)))
    tuned, network = adapted.first.draft.network.module, student.network
    assert np.allclose(tuned(lesson.ids), network(lesson.ids), atol=1e-3)
    assert not np.allclose(tuned(lesson.ids), load_network(find(spec).checkpoints[1])(lesson.ids), atol=1e-1)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


class Shuffled:
    """Negative control: every word is taught with what the target says elsewhere; and no look notices."""

    def __init__(self, student):
        self._student, self._looks = student, 0
        self.warm_up, self.state, self.save = student.warm_up, student.state, student.save

    def step(self, lesson, share):
        order = mx.array(np.random.default_rng(0).permutation(SAID))
        return self._student.step(replace(lesson, best=lesson.best[:, order], logits=lesson.logits[:, order]), share)

    def agreement(self, lesson):
        self._looks += 1
        return float(self._looks)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_a_draft_that_learned_is_kept_and_one_that_learned_shuffled_words_is_refused(
    pair, student, parts, tmp_path, monkeypatch, wrong
):
    monkeypatch.setattr(engine, "RATE", 2e-3)
    now = iter(range(1000))  # a second for each lesson and each step

    def judged(pair):
        return measured({one.name: measure(pair.session(), one.pieces(12, 0), SAID, 3) for one in parts.judged}, 3)

    before = judged(pair)
    seconds, learner = (60, Shuffled(student)) if wrong else (100, student)
    done = run(pair, learner, tmp_path, parts, seconds, clock=lambda: float(next(now)))
    tuned = beside(pair, replace(pair.pair, draft_adapter=str(tmp_path / training.BEST)))
    found = judge(before, judged(tuned))
    assert done.best > 0 and found.refusal == ("acceptance fell on documents it never saw" if wrong else ""), found


@pytest.mark.parametrize(("bits", "dtype", "costs"), [(None, "float32", False), (4, "float32", True)])
def test_what_a_tuned_draft_costs_more_is_said_where_its_adapter_stays_beside_the_matrices(
    bits, dtype, costs, tiny_pair, tmp_path
):
    """Packed in 4 bits over float32 scales it was said to cost the same."""
    draft = packed_folder(tmp_path / "packed", tiny_pair[1], dtype=dtype) if bits else tiny_pair[1]
    spec = PairSpec(Pair("tiny", str(tiny_pair[0]), str(draft)), "model")
    learner = trainee("draft", spec, load_spec(spec, Wishes()), 3, 0)
    assert learner.same_cost != costs and bool(learner.cost) == costs
    assert ("14 matrices: 28 products more" in learner.cost) == costs


@pytest.mark.parametrize(("kind", "key"), [("qwen3_moe", "num_experts_per_tok"), ("ernie4_5_moe", "moe_k")])
def test_the_values_of_as_many_experts_are_counted_as_a_token_goes_to(kind, key, tmp_path):
    """By names of a configuration, which each family calls otherwise, some were one expert a token."""
    target, draft = (CachedModel(network, kind) for network in networks(kind))
    slot = Slot(target, draft)
    loaded = LoadedPair(Pair("tiny", "t", "d"), ("t", "small"), tokenizer_in(tmp_path), slot, fit_of(slot))
    layers, tokens = draft.network.module.layers, PIECE + SAID
    shapes = [part.weight.shape for layer in layers for part in engine.matrices(layer)]
    config = architectures()[kind].config
    chosen = config[key]
    assert chosen > 1 and any(len(shape) > 2 for shape in shapes)
    rows = sum(shape[-2] * (chosen if len(shape) > 2 else 1) for shape in shapes)
    heads = config["num_attention_heads"] * len(layers)
    counted = 4 * engine.KEPT_VALUES * (rows + heads * tokens) * (1 + 1 / len(layers)) * tokens
    logits = 4 * engine.KEPT_LOGIT_ARRAYS * draft.vocab_size * tokens
    assert trainee("draft", PairSpec(loaded.pair), loaded, 3, 0).piece_bytes == int(counted) + logits
