"""Families of MTP heads, by their tensors' names (pure). Law: a head is of a family that is known whole, or refused.

Each family's own names are those of `heads.QWEN` under other words. Which trunk state a head reads, the order of its
inputs and its decoder layer are the engine's (`engine.heads.families`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from specdec_cli.errors import Refused

PREFIX = re.compile(r"^(?:language_model\.|model\.)*mtp\.")
OTHERWISE = "use a small language model of the target's family as draft instead"


@dataclass(frozen=True, slots=True)
class Family:
    """`layer` matches what precedes a head's names up to the number of its layer, before `mark`.

    `names` are its own words for the parts of a head; other tensors belong to its decoder layer. `copies` repeat what
    the target has, so they are not read.
    """

    name: str
    model_types: frozenset[str]
    layer: re.Pattern[str] = PREFIX
    mark: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    copies: frozenset[str] = frozenset()

    def own_names(self, names: Iterable[str], source: str) -> dict[str, str]:
        """A head's name -> the name that it has among `names`, those of the tensors of `source`.

        Raises: Refused for a head of several layers.
        """
        names = list(names)
        layers = sorted({found[0] for name in names if (found := self.layer.match(name)) and self._marks(name)})
        if len(layers) > 1:
            raise Refused(
                f"the MTP head of {source} has {len(layers)} layers ({layers[0]}* and {layers[1]}*), and specdec knows "
                "heads of one",
                OTHERWISE,
            )
        parts = {name.removeprefix(layers[0]): name for name in names if name.startswith(layers[0])} if layers else {}
        return {self._renamed(part): name for part, name in parts.items() if part not in self.copies}

    def _marks(self, name: str) -> bool:
        return self.layer.sub("", name, count=1).startswith(self.mark)

    def _renamed(self, part: str) -> str:
        base, dot, end = part.rpartition(".")
        return f"{self.names[base]}{dot}{end}" if base in self.names else f"layers.0.{part}"


QWEN = Family("Qwen3-Next to 3.8", frozenset())
NEXTN = {
    "eh_proj": "fc",
    "enorm": "pre_fc_norm_embedding",
    "hnorm": "pre_fc_norm_hidden",
    "shared_head.norm": "norm",
}
MIMO = {
    "input_proj": "fc",
    "token_layernorm": "pre_fc_norm_embedding",
    "hidden_layernorm": "pre_fc_norm_hidden",
    "final_layernorm": "norm",
}
COPIES = frozenset({"embed_tokens.weight", "shared_head.head.weight"})
AFTER_THE_TRUNK = re.compile(r"^(?:language_model\.|model\.)*layers\.\d+\.")
MTP_LAYERS = re.compile(r"^(?:model\.)?mtp_layers\.\d+\.")
DEEPSEEK = Family("DeepSeek V3", frozenset({"deepseek_v3"}), AFTER_THE_TRUNK, "eh_proj.", NEXTN, COPIES)
GLM = Family("GLM-4.5", frozenset({"glm4_moe"}), AFTER_THE_TRUNK, "eh_proj.", NEXTN, COPIES)
# The only one whose output head is its own, and not a copy of the target's.
FLASH = Family(
    "GLM-4.7-Flash",
    frozenset({"glm4_moe_lite"}),
    AFTER_THE_TRUNK,
    "eh_proj.",
    NEXTN | {"shared_head.head": "output"},
    frozenset({"embed_tokens.weight"}),
)
MIMO_7B = Family("MiMo", frozenset({"mimo"}), MTP_LAYERS, "input_proj.", MIMO)
KNOWN = (DEEPSEEK, GLM, FLASH, MIMO_7B)
# Heads of other families, by a tensor that only they have. Of some it is open how they are used, others need more than
# one cache, or have several layers.
FOREIGN = {
    "Step": re.compile(r"transformer\.shared_head\."),
    "DeepSeek or GLM": re.compile(r"\.eh_proj\."),
    "DeepSeek V4": re.compile(r"(^|\.)mtp\..*\be_proj\."),
    "MiMo": re.compile(r"mtp_layers\.\d+\.|(^|\.)mtp\..*\binput_proj\."),
    "Nemotron-H": re.compile(r"(^|\.)mtp\..*\bmixer\."),
}


def family_of(names: Iterable[str], model_type: str, source: str) -> tuple[Family, dict[str, str]] | None:
    """The family other than Qwen's that a head among `names` is of, and its own names; None where there is no head.

    `model_type` is what its configuration says; `source` is for messages. Raises: Refused for a head that is not known.
    """
    names, own_type = list(names), re.sub(r"[_-]?(mtp|nextn)$", "", model_type)
    for family in KNOWN:
        found = family.own_names(names, source) if own_type in family.model_types else {}
        if found:
            return family, found
    for foreign, pattern in FOREIGN.items():
        if known := next((name for name in names if pattern.search(name)), None):
            raise Refused(
                f"{source} ({model_type}) has a head of the {foreign} family ({known}), "
                "which specdec does not know yet",
                OTHERWISE,
            )
    return None


def is_foreign(name: str) -> bool:
    """Whether a tensor of that name is of a head other than Qwen's."""
    return any(pattern.search(name) for pattern in FOREIGN.values())
