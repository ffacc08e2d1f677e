"""What an audit found: equal, a near-tie, or another text (pure).

Law: a near-tie is what rounding alone can flip, and the limit for it is stated before anything is compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from specdec_cli.errors import SpecdecError

Result = Literal["identical", "near-tie", "diverged"]

# The spacing of numbers at 1; TF32 keeps as many bits as float16.
EPSILONS: Mapping[str, float] = {"float32": 2.0**-23, "TF32": 2.0**-10, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# In units of epsilon × largest logit, summing in another order moved the distance of the demo target's two best logits
# by up to 2.4 in half precision, and flipped gaps of up to 1.1; in float32 by up to 15: 2e-5 (250 tokens, 8 layers).
ROUNDINGS = 4
LEAST = 1e-3


@dataclass(frozen=True, slots=True)
class Token:
    """An id and its text, unfiltered."""

    id: int
    text: str

    def __str__(self) -> str:
        return f"{self.id} {json.dumps(self.text, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest gap that counts as a near-tie: a function of the precision, or the one that was `given`."""

    precision: str
    given: float | None = None

    def at(self, largest_logit: float, temperature: float) -> float:
        """Scores are logits, above temperature 0 divided by it, and so are their errors."""
        if self.given is not None:
            return self.given
        return max(LEAST, ROUNDINGS * EPSILONS[self.precision] * largest_logit) / (temperature or 1.0)

    def __str__(self) -> str:
        if self.given is not None:
            return f"a gap of at most {self.given:g} (--gap)"
        if EPSILONS[self.precision] == EPSILONS["float32"]:
            return f"a gap of at most {LEAST:g} (÷ temperature where coupled)"
        scale = f"{ROUNDINGS} × {EPSILONS[self.precision]:.2g} (the spacing of {self.precision})"
        return f"a gap of at most {scale} × the largest logit (÷ temperature where coupled)"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where the answers differ: index `position` of the answer's tokens; None says nothing more.

    `gap` is by how much plain decoding's own scores prefer its token; infinite where they rule the other out.
    """

    position: int
    plain: Token | None
    specdec: Token | None
    gap: float
    limit: float

    @property
    def near_tie(self) -> bool:
        return self.gap <= self.limit

    @property
    def summary(self) -> str:
        plain, specdec = (str(token or "nothing") for token in (self.plain, self.specdec))
        return f"token {self.position + 1} is {specdec} and {plain} in plain decoding, gap {self.gap:.3g}"

    def to_dict(self) -> dict[str, Any]:
        """`gap` is null where it is infinite."""
        return asdict(self) | {"gap": self.gap if math.isfinite(self.gap) else None}


@dataclass(frozen=True, slots=True)
class Finding:
    """One prompt under one rule and K. `tokens` were compared: all, or up to and including the first that differs.

    `drafted` and `accepted` tell whether rollback was tried at all.
    """

    prompt: str
    rule: str
    k: int | str
    drafted: int
    accepted: int
    tokens: int
    divergence: Divergence | None

    @property
    def result(self) -> Result:
        if self.divergence is None:
            return "identical"
        return "near-tie" if self.divergence.near_tie else "diverged"

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "rule": self.rule,
            "k": self.k,
            "draft_n": self.drafted,
            "draft_n_accepted": self.accepted,
            "tokens_compared": self.tokens,
            "result": self.result,
            "divergence": self.divergence and self.divergence.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """All findings and what they hold for. `device` is the backend, `plain` what the answers were compared with."""

    target: str
    draft: str | None
    drafter: str
    dtype: str
    device: str
    plain: str
    max_tokens: int
    temperature: float
    seed: int
    sampling: Mapping[str, Any]
    limit: Limit
    findings: Sequence[Finding]

    def count(self, result: Result) -> int:
        return sum(finding.result == result for finding in self.findings)

    @property
    def tokens(self) -> int:
        return sum(finding.tokens for finding in self.findings)

    @property
    def lossless(self) -> bool:
        """Every answer is plain decoding's, but for near-ties."""
        return not self.count("diverged")

    @property
    def verdict(self) -> str:
        """One sentence: what was found, in which precision, against what, and what a near-tie is."""
        answers, identical, near = len(self.findings), self.count("identical"), self.count("near-tie")
        ties = f", {near} up to a near-tie" if near else ""
        if self.lossless:
            result = f"lossless here: {identical} of {answers} answers are identical{ties}"
        else:
            result = (
                f"not lossless here: {self.count('diverged')} of {answers} answers diverge, {identical} identical{ties}"
            )
        ks = ", ".join(dict.fromkeys(str(finding.k) for finding in self.findings))
        where = f"{self.tokens} tokens at K {ks} in {self.limit.precision} on {self.device}"
        return f"{result} ({where}), compared with {self.plain}; a near-tie is {self.limit}."

    def to_dict(self) -> dict[str, Any]:
        """The `--json` object. A divergence's `position` is an index into the answer's tokens."""
        return {
            "lossless": self.lossless,
            "target": self.target,
            "draft": self.draft,
            "drafter": self.drafter,
            "dtype": self.dtype,
            "precision": self.limit.precision,
            "device": self.device,
            "compared_with": self.plain,
            "near_tie": str(self.limit),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "sampling": dict(self.sampling),
            "identical": self.count("identical"),
            "near_ties": self.count("near-tie"),
            "diverged": self.count("diverged"),
            "tokens_compared": self.tokens,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def require_lossless(self) -> None:
        """Raises: SpecdecError that names the first divergence."""
        diverged = [finding for finding in self.findings if finding.result == "diverged"]
        if not diverged:
            return
        first = diverged[0]
        summary = first.divergence.summary if first.divergence else ""
        raise SpecdecError(
            f"{len(diverged)} of {len(self.findings)} answers diverge; first {first.prompt}, {first.rule}: {summary}",
            "-k 0 decodes plainly; please report what specdec doctor and specdec audit --json say",
        )
