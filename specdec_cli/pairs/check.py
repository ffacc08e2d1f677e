"""Can this pair run here, and is its draft worth using? By its files alone: no weight is read.

Advice gives its reason and never refuses. Its sources: LM Studio's size table; measurements by others on Apple GPUs,
collected in the project's notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec_cli import hub
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.format import parameters
from specdec_cli.core.gain import interpolate, round_steps
from specdec_cli.engine import device
from specdec_cli.engine.load import empty_model
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.planning.chips import ROW_COST_BEFORE_M3, chip_of, rows_elsewhere
from specdec_cli.models.checkpoint import text_config
from specdec_cli.models.heads import HeadFiles
from specdec_cli.models.packing import bits_a_weight, packing_of
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.pairs.files import ModelFiles, PairFiles
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.verdict import PairVerdict

DEFAULT_CONTEXT = 4096
MORE = "name more machines, or use a smaller target"
# Tensors of a head's experts, by any of the names that they are stored under.
EXPERTS = re.compile(r"\.(experts|switch_mlp)\.")


def judge(fit: Fit, context_tokens: int | None, others: Sequence[tuple[str, int]] = ()) -> PairVerdict:
    """Answers the five questions about a pair: tokenizers, template and stops, caches, memory, expected gain.

    `others` are further machines that share the target: their names, and the bytes that models may take there.

    Raises: NotAvailable where a tokenizer cannot be read.
    """
    files, tokenizer = fit.files, fit.files.tokenizer
    memory = fit.at(context_tokens or min(DEFAULT_CONTEXT, fit.longest))
    elsewhere = [(name, replace(memory, usable_bytes=usable, servers=())) for name, usable in others]
    obstacles = [*fit.refusals()]
    for name, one in [("", memory), *elsewhere]:
        if not one.fits:
            obstacles.append(one.obstacle() if not name else DoesNotFit(f"{name}: {one.obstacle().message}", MORE))
    if obstacles and (alone := fit.without_unasked_head):
        verdict = judge(alone, context_tokens, others)  # as loading does: such a head is left alone
        if not verdict.obstacles:
            return replace(verdict, warnings=(*verdict.warnings, f"no head drafts: {obstacles[0].message}"))
    pair, head = files.pair, files.head
    networks = [empty_model(replace(one, group=None), fit.kv_bits) for one in files.checkpoints]
    sides = [Side.of(one, network) for one, network in zip(files.models, networks, strict=True)]
    draft = sides[1] if len(sides) == 2 else None
    shipped = pair.target.startswith(hub.SHIPPED)  # a demo has the size that a package has
    step_bytes = draft.step_bytes if draft else head and _step_bytes(head, sides[0])
    return PairVerdict(
        pair=pair,
        vocab=files.vocab,
        stop_tokens=tuple(tokenizer.piece(token) for token in sorted(tokenizer.stop_tokens)),
        has_template=tokenizer.has_template,
        caches=tuple((network.name, ", ".join(network.cache_kinds)) for network in networks),
        contexts=tuple((c.name, *(c.stated_context or (None, "config.json does not say"))) for c in files.checkpoints),
        memory=memory,
        break_even=break_even(sides[0], step_bytes, pair.expected_k) if step_bytes else None,
        warnings=(*_translated(files), *_rowless(tokenizer, networks[0].vocab_size), *_strays(files)),
        advice=() if shipped else tuple(advise(sides[0], draft, device.device_name(), head is not None)),
        obstacles=tuple(obstacles),
        head=head,
        machines=tuple(elsewhere),
    )


def _step_bytes(head: HeadFiles, target: Side) -> int:
    """Bytes that a drafted token reads: the head, and the target's output head at the target's bits."""
    sizes = text_config(target.config)
    rows = 0 if head.scores else int(sizes.get("vocab_size", 0)) * int(sizes.get("hidden_size", 0))
    # Of its own experts it reads as many as the target does.
    experts = sum(stored.size_bytes for name, stored in head.tensors.items() if EXPERTS.search(name))
    unread = experts * target.unread_bytes / (target.unread_bytes + target.expert_bytes or 1)
    return head.loaded_bytes - head.gathered_bytes - round(unread) + rows * target.bits // 8


def _translated(files: PairFiles) -> Iterator[str]:
    """What a draft of another tokenizer loses."""
    if files.vocab and files.vocab.warning:
        yield files.vocab.warning


def _strays(files: PairFiles) -> Iterator[str]:
    """Weight files that are left alone."""
    for checkpoint in files.checkpoints:
        if checkpoint.strays:
            yield f"{checkpoint.strays[0].name} of {checkpoint.name} is not read: its index does not name it"


def _rowless(tokenizer: Tokenizer, rows: int) -> tuple[str, ...]:
    """Tokens that the target's embedding has no row for: a prompt may not hold them, and no answer will."""
    ids = [token for token in tokenizer.table().tokens if token >= rows]
    if not ids:
        return ()
    more = f", and {len(ids) - 1} more have none either" if len(ids) > 1 else ""
    first = f"token {tokenizer.piece(min(ids))} has the id {min(ids)}, and the target has {rows} rows{more}"
    return (f"{first}; harmless unless a prompt holds it, which is refused",)


# Largest useful draft for a target of at least this many billion parameters.
SIZE_BANDS = ((32.0, 7.0), (14.0, 3.0), (7.0, 1.0))
SHORT_ANSWERS = "answers of a few dozen tokens gain little: the draft must read the prompt's end first"


@dataclass(frozen=True, slots=True)
class Side:
    """One model's size and configuration, known without loading its weights.

    Of the experts of a mixture a step reads `expert_bytes`; it reads all but `unread_bytes`, and of the parameters the
    share `active`.
    """

    weight_bytes: int
    config: Mapping[str, Any]
    expert_bytes: float = 0.0
    unread_bytes: float = 0.0
    active: float = 1.0

    @classmethod
    def of(cls, files: ModelFiles, empty: CachedModel) -> Side:
        """Of the model in `files`, whose shapes `empty` has, at one width throughout."""
        size = files.weight_bytes, files.checkpoint.config
        return cls(*size, *empty.network.experts(*size), empty.step_bytes / empty.weight_bytes)

    @property
    def step_bytes(self) -> float:
        """Bytes that a step reads."""
        return self.weight_bytes - self.unread_bytes

    @property
    def bits(self) -> int:
        """Bits per weight: the quantization's, else those of the declared type, else 16."""
        packing = packing_of(self.config, "")
        return packing.bits if packing else int(bits_a_weight(self.config, ""))

    @property
    def billions(self) -> float:
        """Parameters in billions, estimated from bytes and bits."""
        return self.weight_bytes * 8 / bits_a_weight(self.config, "") / 1e9

    @property
    def experts(self) -> bool:
        """A mixture of experts."""
        keys = [*self.config, *text_config(self.config)]
        return any(re.search(r"num_(local_|routed_)?experts$|n_routed_experts", key) for key in keys)


def advise(target: Side, draft: Side | None, chip: str, head: bool = False) -> list[str]:
    """Sentences, the most important first; the one on short answers for every draft model. `head`: that is the draft.

    A head has no size to choose, and reads the prompt with the target.
    """
    if head:
        return [*_target(target), *_chip(chip)]
    if draft is None:
        return ["no draft: the text itself drafts (--drafter ngram)"]
    return [*_size(target, draft), *_target(target), *_chip(chip), SHORT_ANSWERS]


def break_even(target: Side, step_bytes: float, k: int) -> float:
    """Tokens a round must yield to pay for K draft steps (cost by the bytes read) and K more rows (typical cost)."""
    rows = {1: 1.0, **rows_elsewhere(target.expert_bytes / target.step_bytes, shares_reads=False)}
    return round_steps(k, step_bytes / target.step_bytes, interpolate(rows, k + 1))


def _size(target: Side, draft: Side) -> list[str]:
    big, small = target.billions * target.active, draft.billions * draft.active
    if big < 3.5:
        advice = f"a target of {_words(target)} parameters is too small for a useful draft"
        return [f"{advice}; a better quantization gains more"]
    largest = next((limit for least, limit in SIZE_BANDS if big >= least * 0.9), 1.0)
    about = f"a draft of {_words(draft)} is large for a target of {_words(target)}: use one up to {largest:.0f} B"
    return [about] if small > largest * 1.2 else []


def _words(side: Side) -> str:
    return parameters(side.billions * side.active) + (" active" if side.active < 1 else "")


def _target(target: Side) -> list[str]:
    found = []
    if target.experts:
        found.append("mixture of experts: every verified row reads other experts, so gains are small")
    if target.bits <= 4:
        found.append("4-bit targets gain least: the same target in 8 bits is slower, but gains more from a draft")
    return found


def _chip(chip: str) -> list[str]:
    found = chip_of(chip)
    if found and found.generation in ROW_COST_BEFORE_M3:
        cost = f"{chip}: before M3 several rows at once cost nearly as much as one by one, and pairs often lose"
        return [cost, "on text that repeats itself try --drafter ngram: it costs no draft passes"]
    return []
