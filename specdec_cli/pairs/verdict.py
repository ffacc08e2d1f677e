"""The verdict on a pair. An obstacle has an exit code; advice never forbids."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.gain import break_even_acceptance
from specdec_cli.models.heads import HeadFiles
from specdec_cli.models.vocab import VocabVerdict
from specdec_cli.pairs.pair import Pair

if TYPE_CHECKING:  # its import takes seconds, and a table of pairs needs none
    from specdec_cli.pairs.fit import Fit


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """The findings on a pair. `obstacles` forbid it, the worst first; `advice` and `warnings` do not.

    `contexts` are (model, tokens it was made for, the fields that say so). `head` drafts where it is not None.
    `machines` are the others that share the target, with what they need; `memory` is then this machine's.
    """

    pair: Pair
    vocab: VocabVerdict | None
    stop_tokens: tuple[str, ...]
    has_template: bool
    caches: tuple[tuple[str, str], ...]
    contexts: tuple[tuple[str, int | None, str], ...]
    memory: Fit
    break_even: float | None
    warnings: tuple[str, ...]
    advice: tuple[str, ...]
    obstacles: tuple[SpecdecError, ...]
    head: HeadFiles | None = None
    machines: tuple[tuple[str, Fit], ...] = ()

    @property
    def exit_code(self) -> int:
        """0 for a pair that runs here, 4 for a refused one, 5 for one that does not fit."""
        return self.obstacles[0].exit_code if self.obstacles else 0

    def to_dict(self) -> dict[str, Any]:
        """The `--json` object."""
        pair, vocab, memory, head = self.pair, self.vocab, self.memory, self.head
        sizes = ("name", "weight_bytes", "cache_bytes")
        models = [{name: getattr(part, name) for name in sizes} for part in memory.footprints]
        names = ("peak_bytes", "limit_bytes", "fits", "largest_context")
        return {
            "pair": pair.name,
            "one_source": pair.one_source,
            "target": pair.target,
            "draft": pair.draft,
            "verdict": "refused" if self.obstacles else "runs",
            "exit_code": self.exit_code,
            "obstacles": [{"message": error.message, "hint": error.hint} for error in self.obstacles],
            "tokenizers": vocab and asdict(vocab),
            "head": head
            and {"kind": head.family.kind, "name": head.name, "tensors": len(head.tensors), "bytes": head.loaded_bytes},
            "stop_tokens": list(self.stop_tokens),
            "has_template": self.has_template,
            "caches": dict(self.caches),
            "contexts": [{"name": name, "tokens": tokens, "stated_by": field} for name, tokens, field in self.contexts],
            "memory": {"context_tokens": memory.tokens}
            | {name: getattr(memory, name) for name in names}
            | {"models": models, "prefill_bytes": memory.prefill_bytes},
            "break_even_tokens_per_round": self.break_even,
            "break_even_acceptance": self.break_even and break_even_acceptance(self.break_even, pair.expected_k),
            "warnings": list(self.warnings),
            "advice": list(self.advice),
            **({"machines": [{"name": name, **_sum(one)} for name, one in self.machines]} if self.machines else {}),
        }


def _sum(memory: Fit) -> dict[str, Any]:
    return {name: getattr(memory, name) for name in ("peak_bytes", "limit_bytes", "fits")}
