"""Is this draft worth using with this target? (pure) Advice gives its reason and never refuses.

Sources: LM Studio's size table; measurements by others on Apple GPUs, collected in the project's notes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec_cli.engine.draft_length.chips import ROW_COST_BEFORE_M3, chip_of
from specdec_cli.format import parameters
from specdec_cli.gain import TYPICAL_ROW_COST, round_steps

# Largest useful draft for a target of at least this many billion parameters.
SIZE_BANDS = ((32.0, 7.0), (14.0, 3.0), (7.0, 1.0))
SHORT_ANSWERS = "answers of a few dozen tokens gain little: the draft must read the prompt's end first"


@dataclass(frozen=True, slots=True)
class Side:
    """One model's size and configuration, known without loading its weights."""

    weight_bytes: int
    config: Mapping[str, Any]

    @property
    def bits(self) -> int:
        """Bits per weight: the quantization's, else those of the declared type, else 16."""
        quantization = self.config.get("quantization") or self.config.get("quantization_config") or {}
        stored = 32 if self.config.get("dtype", self.config.get("torch_dtype")) == "float32" else 16
        bits = quantization.get("bits") if isinstance(quantization, Mapping) else None
        return bits if isinstance(bits, int) and 1 <= bits <= 32 else stored

    @property
    def billions(self) -> float:
        """Parameters in billions, estimated from bytes and bits."""
        # A group of 64 weights has a 16-bit scale and bias: half a bit a weight.
        per_weight = self.bits + (0.5 if self.bits < 16 else 0.0)
        return self.weight_bytes * 8 / per_weight / 1e9

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of the configuration."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, Mapping) else self.config

    @property
    def experts(self) -> bool:
        """A mixture of experts."""
        keys = [*self.config, *self.text_config]
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


def break_even(target: Side, step_bytes: int, k: int) -> float:
    """Tokens a round must yield to pay for K draft steps (cost by the bytes read) and K more rows (typical cost)."""
    return round_steps(k, step_bytes / target.weight_bytes, 1 + k * TYPICAL_ROW_COST)


def _size(target: Side, draft: Side) -> list[str]:
    big, small = target.billions, draft.billions
    if big < 3.5:
        advice = f"a target of {parameters(big)} parameters is too small for a useful draft"
        return [f"{advice}; a better quantization gains more"]
    largest = next((limit for least, limit in SIZE_BANDS if big >= least * 0.9), 1.0)
    about = f"a draft of {parameters(small)} is large for a target of {parameters(big)}: use one up to {largest:.0f} B"
    return [about] if small > largest * 1.2 else []


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
