"""A draft learns what its target says: LoRA in float32 on the target's own words, by forward KL over its best logits.

On the text alone a draft learns the text, and agrees less with what the target says of it (DistillSpec, Zhou et al.,
arXiv:2310.08461: on-policy data). Letters: B pieces, P tokens of a prompt, T tokens said after it, M kept logits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tuner.utils import linear_to_lora_layers

from specdec_cli.core.errors import Refused, untrusted
from specdec_cli.engine.load import load_network
from specdec_cli.engine.model import CachedModel
from specdec_cli.models.checkpoint import ADAPTER, Checkpoint

KEPT_LOGITS = 64
LORA = {"rank": 16, "scale": 10.0, "dropout": 0.0}
RATE, LEAST_RATE, WARM_STEPS, LARGEST_GRADIENT = 3e-4, 0.05, 15, 1.0
NAMES = ("ids", "best", "logits", "said")


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """`ids` [B, P + T]; of the last T the target's `best` ids [B, T, M] and their `logits`, and which were `said`."""

    ids: mx.array
    best: mx.array
    logits: mx.array
    said: mx.array

    def save(self, path: Path) -> None:
        """Readable only by its owner. Raises: OSError."""
        path.touch(0o600)
        mx.save_safetensors(str(path), {name: getattr(self, name) for name in NAMES})

    @classmethod
    def read(cls, path: Path) -> Lesson:
        """Lazily: from disk when they are first needed."""
        arrays = cast(dict[str, mx.array], mx.load(str(path)))
        return cls(*(arrays[name] for name in NAMES))


def own_words(
    target: CachedModel,
    pieces: Sequence[Sequence[int]],
    tokens: int,
    temperature: float,
    seed: int,
    ends: Collection[int],
) -> Lesson:
    """What `target` says in `tokens` tokens after each of `pieces` [B, P]; nothing behind a token of `ends` is said."""
    key, network = mx.random.key(seed), target.network.module
    ids, cache = [mx.array([list(piece) for piece in pieces], dtype=mx.int32)], make_prompt_cache(network)
    best, logits = [], []
    rows = network(ids[0], cache=cache)[:, -1].astype(mx.float32)
    for _ in range(tokens):
        top = mx.argpartition(-rows, kth=min(KEPT_LOGITS, rows.shape[-1]) - 1, axis=-1)[:, :KEPT_LOGITS]
        best.append(top.astype(mx.int32))
        logits.append(mx.take_along_axis(rows, top, axis=-1))
        key, now = mx.random.split(key)
        drawn = mx.random.categorical(rows / temperature, key=now) if temperature else rows.argmax(-1)
        ids.append(drawn[:, None].astype(mx.int32))
        mx.eval(ids[-1], best[-1], logits[-1])
        rows = network(ids[-1], cache=cache)[:, -1].astype(mx.float32)
    words = mx.concatenate(ids[1:], axis=1)
    ended = sum((words == end for end in ends), mx.zeros(words.shape, dtype=mx.bool_)).astype(mx.int32)
    said = mx.cumsum(ended, axis=1) - ended == 0
    lesson = Lesson(mx.concatenate([ids[0], words], axis=1), mx.stack(best, 1), mx.stack(logits, 1), said)
    mx.eval(lesson.ids, lesson.best, lesson.logits, lesson.said)
    return lesson


def best_of_draft(draft: CachedModel, ids: Sequence[int], count: int) -> list[list[int]]:
    """[len(ids)]: the `count` likeliest ids after each of `ids`, by the draft alone."""
    rows = draft.network.module(draft.ids(ids)[None])[0]
    best = mx.argpartition(-rows, kth=count - 1, axis=-1)[:, :count]
    return cast(list[list[int]], best.tolist())


class Student:
    """The network of `checkpoint` in float32 under a new LoRA; in float16 AdamW's epsilon is 0, and all becomes NaN."""

    def __init__(self, checkpoint: Checkpoint, seed: int) -> None:
        """Raises: Refused for layers that mlx-lm cannot train, NotAvailable."""
        self.network = load_network(checkpoint)
        self.network.set_dtype(mx.float32)
        self.network.freeze()
        mx.random.seed(seed)
        self._layers = len(self.network.layers)
        wrong = "tune another pair's draft; specdec pairs lists them"
        with untrusted(lambda reason: Refused(f"{checkpoint.name} cannot be trained by mlx-lm: {reason}", wrong)):
            linear_to_lora_layers(self.network, self._layers, dict(LORA))
        self._optimizer = optim.AdamW(learning_rate=RATE, weight_decay=0.0)
        self._gradient = nn.value_and_grad(self.network, self._loss)
        self._steps = 0

    def _loss(self, network: nn.Module, lesson: Lesson) -> mx.array:
        """KL(target ‖ draft), but for a constant, a token that was said; over the ids that both have."""
        spoken = lesson.best.shape[1]
        logits = network(lesson.ids[:, :-1])[:, -spoken:].astype(mx.float32)
        known = lesson.best < logits.shape[-1]
        p = mx.softmax(mx.where(known, lesson.logits, -mx.inf), axis=-1)
        q = mx.take_along_axis(logits, mx.where(known, lesson.best, 0), axis=-1) - mx.logsumexp(
            logits, -1, keepdims=True
        )
        loss: mx.array = -((p * q).sum(-1) * lesson.said).sum() / mx.maximum(lesson.said.sum(), 1)
        return loss

    def step(self, lesson: Lesson, share: float) -> float:
        """One step at a rate that falls with the `share` of the time that is over. Returns the loss, finite or not."""
        fallen = (1 - LEAST_RATE) * (1 + math.cos(math.pi * min(share, 1.0))) / 2 + LEAST_RATE
        self._steps += 1
        self._optimizer.learning_rate = mx.array(RATE * min(1.0, self._steps / WARM_STEPS) * fallen)
        loss, gradient = self._gradient(self.network, lesson)
        if math.isfinite(value := float(loss.item())):
            gradient, _ = optim.clip_grad_norm(gradient, LARGEST_GRADIENT)
            self._optimizer.update(self.network, gradient)
            mx.eval(self.network.parameters(), self._optimizer.state)
        return value

    def agreement(self, lessons: Sequence[Lesson]) -> float:
        """The share of the words said that the draft would say as well, each after the target's own."""
        right, said = mx.array(0), mx.array(0)
        for lesson in lessons:
            spoken = lesson.best.shape[1]
            guesses = self.network(lesson.ids[:, :-1])[:, -spoken:].argmax(-1)
            right += ((guesses == lesson.ids[:, -spoken:]) * lesson.said).sum()
            said += lesson.said.sum()
            mx.eval(right, said)
        return cast(float, (right / mx.maximum(said, 1)).item())

    def save(self, folder: Path) -> None:
        """As mlx_lm.lora does. Raises: OSError."""
        config = {"fine_tune_type": "lora", "num_layers": self._layers, "lora_parameters": LORA}
        for name in (ADAPTER, "adapter_config.json"):
            (folder / name).touch(0o600)
        mx.save_safetensors(str(folder / ADAPTER), dict(tree_flatten(self.network.trainable_parameters())))
        (folder / "adapter_config.json").write_text(json.dumps(config) + "\n", encoding="utf-8")
