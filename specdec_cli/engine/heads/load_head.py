"""A head's files -> its network, which then has to guess its target's own words, or is refused.

Every tensor must have its place, and every place its tensor. Norms that are shifted twice or not at all fail silently,
as does a head of another model: so the target says some words, and the head guesses each from the words before it.
Letters: T positions, E experts, I their inner size, D hidden size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from specdec_cli.core.errors import NotAvailable, Refused, reason
from specdec_cli.core.format import percent
from specdec_cli.core.kinds import import_named
from specdec_cli.engine import device
from specdec_cli.engine.cache.shown import Shown
from specdec_cli.engine.failure import device_failure
from specdec_cli.engine.heads.assistant import Assistant, AssistantBuild
from specdec_cli.engine.heads.medusa import MedusaBuild, MedusaHeads
from specdec_cli.engine.heads.mtp import Build, MtpHead, Tensors
from specdec_cli.engine.model import CachedModel, Output
from specdec_cli.models.heads import ITS_TARGET, HeadFiles

HeadNetwork = MtpHead | MedusaHeads | Assistant
HeadBuild = Build | MedusaBuild | AssistantBuild
ONE_EXPERT = re.compile(r"(.*\.)experts\.(\d+)\.(.+)")
# Scales without biases: the type of 32 or 16 numbers that share one.
MODES = {(32, 4): "mxfp4", (32, 8): "mxfp8", (16, 4): "nvfp4"}
# Words that the target says after each prompt. Each is a plain step, so a head that guesses well at once is not asked
# for more than the first prompt's.
WORDS = 32
# Agreement beyond chance (Cohen's kappa). CLEAR: no further prompt is asked. FLOOR: less is a head of another model.
CLEAR, FLOOR = 0.6, 0.1


def load_head(
    files: HeadFiles, hidden_size: int, on_share: Callable[[float], None] = lambda share: None
) -> HeadNetwork:
    """The head with its weights in memory, for a target of `hidden_size`; `on_share` hears which share of them is.

    Raises: NotAvailable where tensors are missing, of another shape than the configuration says, or not to be placed;
    Refused for a head of another target.
    """
    build: HeadBuild = import_named(files.family.build)
    head = _empty(files, build, hidden_size)
    try:
        tensors = _read_tensors(files, build)
    except ValueError as error:
        raise NotAvailable(f"{files.title} cannot be read: {reason(error)}", "download it again") from error
    _quantize(head, tensors, files.title)
    _require_all(head, tensors, files.title)
    if files.declared_dtype == "float32":
        floats = {name: value for name, value in tensors.items() if mx.issubdtype(value.dtype, mx.floating)}
        tensors |= {name: value.astype(mx.float32) for name, value in floats.items()}
    head.load_weights(list(tensors.items()))
    head.eval()
    try:
        device.read_weights(head, on_share)
    except RuntimeError as error:
        raise device_failure(error) or NotAvailable(
            f"{files.title} cannot be read: {reason(error)}", "download it again"
        ) from error
    return head


def _empty(files: HeadFiles, build: HeadBuild, hidden_size: int) -> HeadNetwork:
    """The head's network of its configuration, with weights that were never computed."""
    if refusal := files.of_other_size(hidden_size):
        raise refusal
    if second := next((name for name in files.tensors if re.match(r"layers\.[1-9]", name)), None):
        raise Refused(
            f"{files.title} has several layers ({second}), and specdec supports heads of one",
            "use a small language model of the target's family as draft instead",
        )
    dense = not any(".mlp.experts." in name or ".mlp.switch_mlp." in name for name in files.tensors)
    try:
        return build.head(files.config, dense, hidden_size)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise NotAvailable(
            f"{files.title} cannot be built: {reason(error)}",
            "its config.json lacks the language model's own values; take the head from another repository",
        ) from error


def _read_tensors(files: HeadFiles, build: HeadBuild) -> Tensors:
    """The tensors by the names of the network's parameters: experts joined, norms as they are multiplied with."""
    loaded: dict[Any, Any] = {path: mx.load(str(path)) for path in files.files}
    tensors: Tensors = {name: loaded[stored.file][stored.name] for name, stored in files.tensors.items()}
    tensors = build.convert(files.config, _stack_experts(_split_fused(tensors)))
    if files.zero_centred:
        norms = {n: v for n, v in tensors.items() if v.ndim == 1 and (n.endswith("norm.weight") or "norm_" in n)}
        tensors |= {name: value + 1.0 for name, value in norms.items()}
    return tensors


def _split_fused(tensors: Tensors) -> Tensors:
    """`experts.gate_up_proj` [E, 2 I, D] as two matrices; `experts.down_proj` under its new name."""
    found: Tensors = {}
    for name, value in tensors.items():
        base, _, part = name.partition(".experts.")
        end = re.sub(r"^(gate_up|down)_proj", "", part).replace("_", ".") or ".weight"
        if part.startswith("gate_up_proj"):
            gate, up = mx.split(value, 2, axis=-2)
            found |= {f"{base}.switch_mlp.gate_proj{end}": gate, f"{base}.switch_mlp.up_proj{end}": up}
        elif part.startswith("down_proj"):
            found[f"{base}.switch_mlp.down_proj{end}"] = value
        else:
            found[name] = value
    return found


def _stack_experts(tensors: Tensors) -> Tensors:
    """Experts that are stored one by one, as [E, …]."""
    groups: dict[str, dict[int, mx.array]] = {}
    found: Tensors = {}
    for name, value in tensors.items():
        if match := ONE_EXPERT.fullmatch(name):
            groups.setdefault(f"{match[1]}switch_mlp.{match[3]}", {})[int(match[2])] = value
        else:
            found[name] = value
    return found | {name: mx.stack([group[i] for i in sorted(group)]) for name, group in groups.items()}


def _quantize(head: HeadNetwork, tensors: Tensors, title: str) -> None:
    """Give each part of `head` that is stored in a few bits the place for them, by the shapes that are stored."""

    def of(path: str, module: nn.Module) -> bool | dict[str, Any]:
        scales = tensors.get(f"{path}.scales")
        if scales is None or not hasattr(module, "to_quantized"):
            return False
        size, words = int(module.weight.shape[-1]), int(tensors[f"{path}.weight"].shape[-1])
        group, bits = size // int(scales.shape[-1]), words * 32 // size
        mode = "affine" if f"{path}.biases" in tensors else MODES.get((group, bits))
        if mode is None or group * scales.shape[-1] != size or words * 32 != bits * size:
            raise NotAvailable(
                f"{title} stores {path} in a quantization that mlx does not have: weight "
                f"{tensors[f'{path}.weight'].shape}, scales {scales.shape} for {size} inputs",
                "use a head in 16 bits, or one that was quantized with MLX",
            )
        return {"group_size": group, "bits": bits, "mode": mode}

    nn.quantize(head, class_predicate=of)


def _require_all(head: HeadNetwork, tensors: Tensors, title: str) -> None:
    expected = {path: value.shape for path, value in tree_flatten(head.parameters())}
    if missing := sorted(set(expected) - set(tensors)):
        raise NotAvailable(
            f"{title} lacks {len(missing)} of {len(expected)} tensors, first {missing[0]}",
            "download it again, or take the head from another repository",
        )
    if extra := sorted(set(tensors) - set(expected)):
        raise Refused(
            f"{title} has {len(extra)} tensors that specdec does not support, first {extra[0]}",
            "use a small language model of the target's family as draft instead",
        )
    for path, shape in expected.items():
        if tensors[path].shape != shape:
            raise NotAvailable(
                f"{title} has {path} {list(tensors[path].shape)} where its config.json says {list(shape)}",
                "the weights and config.json disagree; download the model again",
            )


def require_shown(head: Assistant, shown: Shown, title: str) -> None:
    """Raises: Refused for layers that cannot attend to what is `shown` of the target."""
    for layer in head.model.layers:
        attention, rows = layer.self_attn, shown.rows.get(layer.layer_type)
        wanted = f"a {layer.layer_type} layer of {attention.n_heads} heads of {attention.head_dim} values"
        if rows is None:
            found = f"only {', '.join(sorted(shown.rows)) or 'keys of another kind'}"
        elif rows.width != attention.head_dim or attention.n_heads % rows.heads:
            found = f"keys of {rows.heads} heads of {rows.width} values for it"
        else:
            continue
        raise Refused(f"{title} has {wanted}, and the target has {found}", ITS_TARGET)


@dataclass(frozen=True, slots=True)
class Text:
    """Token ids, the target's own from `begin` on, and its `hidden` states [T - 1, D] before each next token.

    `shown` are its keys and values before each of its own words, where a head attends to them.
    """

    context: Sequence[int]
    begin: int
    hidden: mx.array
    shown: Shown | None = None

    @property
    def words(self) -> Sequence[int]:
        """The target's own that a head can guess: it reads a state and a token before each."""
        return self.context[max(self.begin, 2) :]


@dataclass(frozen=True, slots=True)
class HeadAgreement:
    """Of `words` words, the share that a head guesses, and the share that luck alone would."""

    words: int
    share: float
    chance: float

    @property
    def kappa(self) -> float:
        """Agreement beyond chance: 1 for every word, 0 for luck. Where luck guesses every word, there is no telling."""
        return (self.share - self.chance) / (1 - self.chance) if self.chance < 1 else self.share

    def require(self, files: HeadFiles, target: str) -> None:
        """Raises: Refused, with the numbers, if the head in `files` agrees with `target` hardly more than luck does."""
        if self.kappa < FLOOR:
            raise Refused(
                f"{files.title} guesses {percent(self.share)} of {self.words} tokens of {target}, where "
                f"chance guesses {percent(self.chance)}: it is another model's, or damaged",
                files.family.hint,
            )

    def to_dict(self) -> dict[str, Any]:
        summary = f"guesses {percent(self.share)} of {self.words} of its target's tokens"
        return asdict(self) | {"summary": summary}


def agreement(head: HeadNetwork, target: CachedModel, texts: Sequence[Text]) -> HeadAgreement:
    """How well `head` guesses the words of `target` in `texts`."""
    guesses: list[int] = []
    output_head = target.network.hidden.output_head
    for text in texts:
        embedded = output_head.embed(mx.array(list(text.context[1:-1]), dtype=mx.int32))
        step = head(embedded[None], text.hidden[None, :-1], text.shown if head.shown else None)
        scored = step.scored[0, -len(text.words) :]
        best = mx.argmax(output_head.scored_by(head.output).logits(scored), axis=-1)
        guesses += device.to_list(target.network.agreed(best))
    words = [word for text in texts for word in text.words]
    right = sum(guess == word for guess, word in zip(guesses, words, strict=True))
    said, guessed = Counter(words), Counter(guesses)
    chance = sum(said[word] * guessed[word] for word in said) / max(len(words), 1) ** 2
    return HeadAgreement(len(words), right / max(len(words), 1), chance)


def load_agreeing(
    files: HeadFiles,
    target: CachedModel,
    texts: Iterator[Text],
    on_share: Callable[[float], None] = lambda share: None,
) -> tuple[HeadNetwork, HeadAgreement]:
    """The head in `files`, and how well it agrees with `target`'s own `texts`.

    They are asked for one by one until it agrees clearly. Raises: as `load_head`.
    """
    head = load_head(files, target.network.hidden.output_head.hidden_size, on_share)
    if isinstance(head, Assistant):
        asked = target.fresh()
        asked.extend(mx.zeros((1,), mx.int32))  # for its shapes: nothing is computed
        require_shown(head, asked.shown(1), files.title)
    read = list[Text]()
    found = agreement(head, target, read)
    for text in texts:
        read.append(text)
        found = agreement(head, target, read)
        if found.kappa >= CLEAR:
            break
    return head, found


def own_texts(target: CachedModel, prompts: Iterable[Sequence[int]], stops: frozenset[int]) -> Iterator[Text]:
    """What `target` says at temperature 0 after each of `prompts`, until it stops. Its own caches stay as they are."""
    for prompt in prompts:
        cached, context, outputs = target.fresh(), list(prompt), list[Output]()
        with target.network.hidden.exposed():
            outputs += cached.prefill(context)
            while len(context) < len(prompt) + WORDS and context[-1] not in stops:
                outputs.append(cached.outputs(context))
                context += device.to_list(target.network.agreed(mx.argmax(outputs[-1].logits, axis=-1)))
        text = Text(context, len(prompt), mx.concatenate([one.hidden for one in outputs if one.hidden is not None]))
        if text.words:
            owned = target.network.owners
            yield replace(text, shown=cached.shown(len(context) - 2, len(text.words))) if owned else text
