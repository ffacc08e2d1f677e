"""A drafter learns what its target says, from the target's own words, by forward KL over its best logits, in float32.

On the text alone a draft learns the text, and agrees less with what the target says of it (DistillSpec, Zhou et al.,
arXiv:2310.08461: on-policy data). Letters: B pieces, P tokens of a prompt, T tokens said after it, M kept logits, D the
target's hidden size, V its vocabulary size, S steps of a head.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tuner.utils import linear_to_lora_layers

from specdec_cli.core.errors import Refused, untrusted
from specdec_cli.engine.cache.rollback import Caches
from specdec_cli.engine.cache.shown import Shown, shown
from specdec_cli.engine.heads.cached_head import CachedHead, Head
from specdec_cli.engine.heads.load_head import HeadNetwork, load_head
from specdec_cli.engine.heads.medusa import MedusaHeads
from specdec_cli.engine.load import load_network
from specdec_cli.engine.model import HEADS, CachedModel, Network
from specdec_cli.models.checkpoint import ADAPTER, Checkpoint
from specdec_cli.models.heads import HeadFiles

KEPT_LOGITS = 64
LORA = {"rank": 16, "scale": 10.0, "dropout": 0.0}
# Learning rates of an adapter, a head that has learned before, and new heads.
RATE, HEAD_RATE, MEDUSA_RATE = 3e-4, 3e-4, 2e-3
LEAST_RATE, WARM_STEPS, LARGEST_GRADIENT = 0.05, 15, 1.0
# A head's later steps count less: each only matters where the one before it was right.
FALLING = 0.8
NAMES = ("ids", "best", "logits", "said", "hidden")
WEIGHTS, STATE = "weights.", "optimizer."


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """`ids` [B, P + T]; of the last T the target's `best` ids [B, T, M] and their `logits`, and which were `said`.

    `hidden` [B, P + T - 1, D] are the target's states before each next id, where heads read them.
    """

    ids: mx.array
    best: mx.array
    logits: mx.array
    said: mx.array
    hidden: mx.array | None = None

    def save(self, path: Path) -> None:
        """Readable only by its owner, and whole or not at all. Raises: OSError."""
        arrays = {name: value for name in NAMES if (value := getattr(self, name)) is not None}
        save_arrays(path, arrays)

    @classmethod
    def read(cls, path: Path) -> Lesson:
        """Lazily: from disk when they are first needed."""
        return cls(**read_arrays(path)[0])


def save_arrays(path: Path, arrays: Mapping[str, mx.array], metadata: Mapping[str, str] | None = None) -> None:
    """Write `arrays`, readable only by their owner, whole or not at all. Raises: OSError."""
    new = path.with_name(f"new-{path.name}")
    new.touch(0o600)
    try:
        mx.save_safetensors(str(new), dict(arrays), dict(metadata or {}))
    except RuntimeError as error:  # mlx's own, which does not say why
        new.unlink()
        full = shutil.disk_usage(path.parent).free < sum(array.nbytes for array in arrays.values())
        code = errno.ENOSPC if full else errno.EIO
        raise OSError(code, os.strerror(code), str(path)) from error
    new.rename(path)


def read_arrays(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """What `save_arrays` wrote: the arrays, lazily, and the metadata."""
    return cast(tuple[dict[str, mx.array], dict[str, str]], mx.load(str(path), return_metadata=True))


def own_words(
    target: CachedModel,
    pieces: Sequence[Sequence[int]],
    tokens: int,
    temperature: float,
    seed: int,
    ends: Collection[int],
) -> Lesson:
    """What `target` says in `tokens` tokens after each of `pieces` [B, P]; nothing behind a token of `ends` is said."""
    key, network, watched = mx.random.key(seed), target.network.module, target.network.hidden
    ids, cache = [mx.array([list(piece) for piece in pieces], dtype=mx.int32)], make_prompt_cache(network)
    best, logits, states = [], [], list[mx.array]()
    watched.take()
    for _ in range(tokens):
        rows = network(ids[-1], cache=cache)[:, -1].astype(mx.float32)
        if (hidden := watched.take()) is not None:
            states.append(hidden)
        top = mx.argpartition(-rows, kth=min(KEPT_LOGITS, rows.shape[-1]) - 1, axis=-1)[:, :KEPT_LOGITS]
        best.append(top.astype(mx.int32))
        logits.append(mx.take_along_axis(rows, top, axis=-1))
        key, now = mx.random.split(key)
        drawn = mx.random.categorical(rows / temperature, key=now) if temperature else rows.argmax(-1)
        ids.append(drawn[:, None].astype(mx.int32))
        mx.eval(ids[-1], best[-1], logits[-1], states[-1:])
    words = mx.concatenate(ids[1:], axis=1)
    ended = sum((words == end for end in ends), mx.zeros(words.shape, dtype=mx.bool_)).astype(mx.int32)
    said = mx.cumsum(ended, axis=1) - ended == 0
    hidden = mx.concatenate(states, axis=1) if states else None
    lesson = Lesson(mx.concatenate([ids[0], words], axis=1), mx.stack(best, 1), mx.stack(logits, 1), said, hidden)
    mx.eval([value for name in NAMES if (value := getattr(lesson, name)) is not None])
    return lesson


def best_guesses(
    target: CachedModel, draft: CachedModel | CachedHead, ids: Sequence[int], count: int
) -> list[list[int]]:
    """[len(ids)]: the `count` likeliest ids after each of `ids`, by the draft alone; a head knows none at first."""
    if isinstance(draft, CachedModel):
        rows = draft.network.module(draft.ids(ids)[None])[0]
    else:
        head, told = draft.head, target.ids(ids)[None]
        seen = None
        if head.module.shown:
            seen = shown_of(target.network, told)
        else:
            target.network.module(told)
        hidden = cast(mx.array, target.network.hidden.take())
        step = head.module(head.output_head.embed(told[0, 1:])[None], hidden[:, :-1], seen)
        rows = draft.logits(step.scored)
        rows = mx.concatenate([mx.zeros_like(rows[:1]), rows])
    best = mx.argpartition(-rows, kth=count - 1, axis=-1)[:, :count]
    return cast(list[list[int]], best.tolist())


def shown_of(target: Network, ids: mx.array) -> Shown:
    """What heads see of `target` before each of `ids` [B, T] but the first, in a pass over all."""
    caches = Caches(target.module)
    target.module(ids, cache=caches.layers)
    return shown(caches.layers, target.owners, ids.shape[1] - 1, ids.shape[1] - 1)


def divergence(logits: mx.array, lesson: Lesson) -> mx.array:
    """KL(target ‖ drafter), but for a constant, a token that was said: of `logits` [B, T, V], over ids both have."""
    logits = logits.astype(mx.float32)
    known = lesson.best < logits.shape[-1]
    p = mx.softmax(mx.where(known, lesson.logits, -mx.inf), axis=-1)
    q = mx.take_along_axis(logits, mx.where(known, lesson.best, 0), axis=-1) - mx.logsumexp(logits, -1, keepdims=True)
    loss: mx.array = -((p * q).sum(-1) * lesson.said).sum() / mx.maximum(lesson.said.sum(), 1)
    return loss


# Arrays of float32 that a step keeps for its gradient: of what each matrix and each head of attention gives, and of the
# logits. Its peak for Qwen3 of width 256 to 1024 is 0.8 to 0.9 of what these say.
KEPT_VALUES, KEPT_LOGIT_ARRAYS = 2, 4


def matrices(network: nn.Module) -> list[nn.Module]:
    """The modules of `network` that hold a matrix, packed or not; of experts, all in one."""
    return [part for _, part in network.named_modules() if "weight" in part and part.weight.ndim > 1]


def value_bytes(layers: Sequence[nn.Module], tokens: int, steps: int = 1, experts: int = 1) -> int:
    """Bytes of values that a step keeps of one sequence of `tokens` that passes `layers` so many `steps` times.

    Each token goes to so many `experts`. One layer more is on its way.
    """
    parts = [part for layer in layers for _, part in layer.named_modules()]
    rows = [(part.weight, experts if part.weight.ndim > 2 else 1) for layer in layers for part in matrices(layer)]
    widths = sum(weight.shape[-2] * times for weight, times in rows)
    heads = sum(next((vars(part)[name] for name in HEADS[0] if name in vars(part)), 0) for part in parts)
    values = KEPT_VALUES * (widths + heads * tokens * (steps + 1) / 2)
    return int(4 * values * (1 + 1 / len(layers)) * tokens * steps)


class Student:
    """A network in float32 that learns; in float16 AdamW's epsilon is 0, and all becomes NaN."""

    def __init__(self, network: nn.Module, rate: float) -> None:
        """`network` has the weights that learn, and perhaps frozen ones."""
        self.network, self._rate, self._steps = network, rate, 0
        self._optimizer = optim.AdamW(learning_rate=rate, weight_decay=0.0)
        self._optimizer.init(network.trainable_parameters())
        self._gradient = nn.value_and_grad(network, self.loss)

    @abstractmethod
    def loss(self, lesson: Lesson) -> mx.array:
        """Of the network as it is."""

    @abstractmethod
    def agreement(self, lessons: Sequence[Lesson]) -> float:
        """The share of the words said that it would say as well, each after the target's own."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """What was learned, as it is loaded again. Raises: OSError."""

    def warm_up(self, lesson: Lesson) -> None:
        """The work of a step that changes nothing, to know what it takes."""
        weights = self.network.trainable_parameters()
        mx.eval(self._gradient(lesson))
        self.network.update(weights)  # what a gradient was taken of is left in their place

    def step(self, lesson: Lesson, share: float) -> float:
        """One step at a rate that falls with the `share` of the steps that is over. Returns the loss, finite or not."""
        fallen = (1 - LEAST_RATE) * (1 + math.cos(math.pi * min(share, 1.0))) / 2 + LEAST_RATE
        self._steps += 1
        self._optimizer.learning_rate = mx.array(self._rate * min(1.0, self._steps / WARM_STEPS) * fallen)
        loss, gradient = self._gradient(lesson)
        if math.isfinite(value := float(loss.item())):
            gradient, _ = optim.clip_grad_norm(gradient, LARGEST_GRADIENT)
            self._optimizer.update(self.network, gradient)
            mx.eval(self.network.parameters(), self._optimizer.state)
        return value

    def state(self) -> dict[str, mx.array]:
        """All that a later process needs to go on from here."""
        weights, optimizer = tree_flatten(self.network.trainable_parameters()), tree_flatten(self._optimizer.state)
        return {WEIGHTS + name: value for name, value in weights} | {STATE + name: value for name, value in optimizer}

    def restore(self, state: Mapping[str, mx.array], steps: int) -> None:
        """Go on from `state`, which was that after `steps`."""

        def part(prefix: str) -> list[tuple[str, mx.array]]:
            return [(name.removeprefix(prefix), value) for name, value in state.items() if name.startswith(prefix)]

        self.network.update(tree_unflatten(part(WEIGHTS)))
        self._optimizer.state = tree_unflatten(part(STATE))
        self._steps = steps


class DraftStudent(Student):
    """The network of `checkpoint` under a new LoRA."""

    def __init__(self, checkpoint: Checkpoint, seed: int) -> None:
        """Raises: Refused for layers that mlx-lm cannot train, NotAvailable."""
        network = load_network(checkpoint)
        network.set_dtype(mx.float32)
        network.freeze()
        mx.random.seed(seed)
        self._layers = len(network.layers)
        wrong = "tune another pair's draft; specdec pairs lists them"
        with untrusted(lambda reason: Refused(f"{checkpoint.name} cannot be trained by mlx-lm: {reason}", wrong)):
            linear_to_lora_layers(network, self._layers, dict(LORA))
        super().__init__(network, RATE)

    def loss(self, lesson: Lesson) -> mx.array:
        return divergence(self._said(lesson), lesson)

    def _said(self, lesson: Lesson) -> mx.array:
        """[B, T, V]."""
        logits: mx.array = self.network(lesson.ids[:, :-1])[:, -lesson.best.shape[1] :]
        return logits

    def agreement(self, lessons: Sequence[Lesson]) -> float:
        right, said = mx.array(0), mx.array(0)
        for lesson in lessons:
            words = lesson.ids[:, -lesson.best.shape[1] :]
            right += ((self._said(lesson).argmax(-1) == words) * lesson.said).sum()
            said += lesson.said.sum()
            mx.eval(right, said)
        return cast(float, (right / mx.maximum(said, 1)).item())

    def save(self, folder: Path) -> None:
        """As mlx_lm.lora does."""
        save_arrays(folder / ADAPTER, dict(tree_flatten(self.network.trainable_parameters())))
        _write_json(
            folder / "adapter_config.json",
            {"fine_tune_type": "lora", "num_layers": self._layers, "lora_parameters": LORA},
        )


class HeadStudent(Student):
    """A head over `target` that learns S steps, each from the target's states; embedding and output head stay."""

    def __init__(
        self, module: HeadNetwork, target: CachedModel, steps: int, rate: float, config: Mapping[str, Any]
    ) -> None:
        """`config` is kept beside the weights."""
        module.set_dtype(mx.float32)
        if module.output is not None:
            module.output.freeze()
        self._target, self._config = target, config
        self._weights = [FALLING**s for s in range(min(steps, module.most))]
        super().__init__(module, rate)

    @classmethod
    def of_files(cls, files: HeadFiles, target: CachedModel, steps: int) -> HeadStudent:
        """The head in `files` learns on. Raises: Refused for one in a few bits."""
        module = load_head(files, target.network.hidden.output_head.hidden_size)
        if packed := next((path for path, part in module.named_modules() if "bits" in vars(part)), ""):
            raise Refused(
                f"{files.title} is packed in a few bits ({packed}), and only floats can learn",
                "name a head in 16 bits: --draft ID",
            )
        Head(module, target.network, files.name)  # from now on the target keeps its states
        return cls(module, target, steps, HEAD_RATE, files.config)

    @classmethod
    def medusa(cls, target: CachedModel, heads: int) -> HeadStudent:
        """New Medusa heads. Raises: Refused where the target has no state that a head can read."""
        size, vocab_size = target.network.hidden.output_head.hidden_size, target.vocab_size
        module = MedusaHeads(heads, size)
        Head(module, target.network, target.name)
        config = {"model_type": "medusa", "num_heads": heads, "num_hidden_layers": 1, "hidden_size": size}
        return cls(module, target, heads, MEDUSA_RATE, config | {"vocab_size": vocab_size})

    def cached(self) -> CachedHead:
        """A conversation's, over the weights as they are."""
        return CachedHead(Head(self.network, self._target.network, self._target.name, recent=1))

    def _guesses(self, lesson: Lesson) -> Iterator[mx.array]:
        """Of each step [B, T, V] for the T words: row t is from the state of s + 1 positions before it."""
        states, spoken = cast(mx.array, lesson.hidden), lesson.best.shape[1]
        head = self._target.network.hidden.output_head.scored_by(self.network.output)
        batch, last = lesson.ids.shape[0], lesson.ids.shape[1] - 1
        embedded = head.embed(lesson.ids[:, 1:].reshape(-1)).reshape(batch, last, -1)
        seen = shown_of(self._target.network, lesson.ids) if self.network.shown else None
        self._target.network.hidden.take()
        scored = self.network.guesses(embedded.astype(mx.float32), states.astype(mx.float32), len(self._weights), seen)
        for s, rows in enumerate(scored, 1):
            chosen = rows[:, last - s - spoken : last - s].astype(states.dtype)
            yield head.logits(chosen.reshape(batch * spoken, -1)).reshape(batch, spoken, -1)

    def loss(self, lesson: Lesson) -> mx.array:
        losses = zip(self._weights, self._guesses(lesson), strict=True)
        total: mx.array = sum((weight * divergence(logits, lesson) for weight, logits in losses), mx.array(0.0))
        return total / sum(self._weights)

    def agreement(self, lessons: Sequence[Lesson]) -> float:
        """Of S guesses from one state, those before the first wrong one: what a draft of S tokens has accepted."""
        right, said, steps = mx.array(0.0), mx.array(0), len(self._weights)
        for lesson in lessons:
            spoken = lesson.best.shape[1]
            words = lesson.ids[:, -spoken:]
            hits = [(logits.argmax(-1) == words) * lesson.said for logits in self._guesses(lesson)]
            # Row t of step s is from the state before word t - s: those of one state lie on a diagonal.
            chain = mx.ones((words.shape[0], spoken - steps + 1))
            for s, hit in enumerate(hits):
                chain = chain * hit[:, s : spoken - steps + 1 + s]
                right += chain.sum() / steps
            said += lesson.said[:, : spoken - steps + 1].sum()
            mx.eval(right, said)
        return cast(float, (right / mx.maximum(said, 1)).item())

    def save(self, folder: Path) -> None:
        """As a folder that holds a head alone, in the number type of the target's states."""
        dtype = getattr(mx, self._target.dtype)
        weights = dict(tree_flatten(self.network.parameters()))
        floats = {name: value for name, value in weights.items() if mx.issubdtype(value.dtype, mx.floating)}
        weights |= {name: value.astype(dtype) for name, value in floats.items()}
        save_arrays(folder / "model.safetensors", weights, {"format": "mlx"})
        _write_json(folder / "config.json", {**self._config, "dtype": self._target.dtype})


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.touch(0o600)
    path.write_text(json.dumps(values) + "\n", encoding="utf-8")
