"""What an audit finds: the answer is equal, differs at a near-tie, which rounding alone can flip, or is another (pure).

A near-tie's limit is measured on the same texts, whatever the comparison says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from specdec_cli.audit.rounding import Rounding, finite
from specdec_cli.errors import SpecdecError

Status = Literal["identical", "near-tie", "diverged"]


@dataclass(frozen=True, slots=True)
class Token:
    """An id and its text, unfiltered."""

    id: int
    text: str

    def __str__(self) -> str:
        return f"{self.id} {json.dumps(self.text, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference, at index `position` of the answer's tokens; None where that answer has already ended.

    `gap` is the lead of plain decoding's token in plain decoding's scores; infinite where the other is ruled out.
    """

    position: int
    plain: Token | None
    specdec: Token | None
    gap: float
    limit: float = 0.0

    @property
    def near_tie(self) -> bool:
        return math.isfinite(self.gap) and self.gap <= self.limit

    @property
    def summary(self) -> str:
        plain, specdec = (str(token or "nothing") for token in (self.plain, self.specdec))
        return f"token {self.position + 1} is {specdec} and {plain} in plain decoding, gap {self.gap:.3g}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"gap": finite(self.gap)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One prompt under one rule and K. `tokens` counts the compared ones, up to and including the first difference.

    `drafted` and `accepted` show whether rollback was exercised.
    """

    prompt: str
    rule: str
    k: int | str
    drafted: int
    accepted: int
    tokens: int
    divergence: Divergence | None

    @property
    def result(self) -> Status:
        if self.divergence is None:
            return "identical"
        return "near-tie" if self.divergence.near_tie else "diverged"

    def with_limit(self, limit: float) -> Finding:
        """Judged with `limit`, in scores, as the largest gap of a near-tie."""
        return replace(self, divergence=self.divergence and replace(self.divergence, limit=limit))

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
    """All findings and their setting. `device` is the backend, `plain` names the reference implementation.

    `expected_flips`: answers that the machine's own rounding flips somewhere, going by its measured changes.
    """

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
    rounding: Rounding
    findings: Sequence[Finding]
    constraint: str | None = None
    expected_flips: float = 0.0

    def count(self, result: Status) -> int:
        return sum(finding.result == result for finding in self.findings)

    @property
    def tokens(self) -> int:
        return sum(finding.tokens for finding in self.findings)

    @property
    def most_flips(self) -> float:
        """Near-ties that rounding explains: twice what is expected, three deviations, and two for luck."""
        if self.rounding.given is not None:
            return math.inf
        return 2 * self.expected_flips + 3 * math.sqrt(2 * self.expected_flips) + 2

    @property
    def lossless(self) -> bool | None:
        """Whether every answer is plain decoding's, except for near-ties that rounding explains.

        None where most answers differ at a near-tie: that proves nothing.
        """
        if self.count("diverged") or self.rounding.faults or self.count("near-tie") > self.most_flips:
            return False
        return None if self.count("near-tie") > self.count("identical") else True

    @property
    def verdict(self) -> str:
        """One sentence: the result, the precision, the reference, and the limit of a near-tie."""
        answers, identical, near = len(self.findings), self.count("identical"), self.count("near-tie")
        ties = f", {near} up to a near-tie" if near else ""
        counts = f"{identical} of {answers} answers are identical{ties}"
        if self.lossless:
            result = f"lossless here: {counts}"
        elif self.lossless is None:
            result = f"in doubt here: {counts}, so rounding hides what there is to see; shorter answers show more"
        elif diverged := self.count("diverged"):
            result = f"not lossless here: {diverged} of {answers} answers diverge, {identical} identical{ties}"
        elif self.rounding.faults:
            rows = " and ".join(str(fault.rows) for fault in self.rounding.faults)
            result = (
                f"not lossless here: passes of {rows} rows differ from mlx-lm's own by more than rounding; {counts}"
            )
        else:
            result = f"not lossless here: {counts}, and rounding explains {self.most_flips:.0f} near-ties at most"
        ks = ", ".join(dict.fromkeys(str(finding.k) for finding in self.findings))
        where = f"{self.tokens} tokens at K {ks} in {self.rounding.precision} on {self.device}"
        return f"{result} ({where}), compared with {self.plain}; a near-tie is {self.rounding}."

    def to_dict(self) -> dict[str, Any]:
        """The `--json` object; `lossless` is null where that is in doubt.

        A divergence's `position` is an index into the answer's tokens."""
        return {
            "lossless": self.lossless,
            "target": self.target,
            "draft": self.draft,
            "drafter": self.drafter,
            "dtype": self.dtype,
            "precision": self.rounding.precision,
            "device": self.device,
            "compared_with": self.plain,
            "near_tie": str(self.rounding),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "sampling": dict(self.sampling),
            "constraint": self.constraint,
            "identical": self.count("identical"),
            "near_ties": self.count("near-tie"),
            "near_ties_expected": self.expected_flips,
            "diverged": self.count("diverged"),
            "tokens_compared": self.tokens,
            "rounding": self.rounding.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def require_lossless(self) -> None:
        """Raises: SpecdecError that names the first divergence, else the first fault, else too many near-ties."""
        if self.lossless is not False:
            return
        answers = len(self.findings)
        diverged = [(one, one.divergence) for one in self.findings if one.divergence and not one.divergence.near_tie]
        if diverged:
            first, divergence = diverged[0]
            where = f"first {first.prompt}, {first.rule}: {divergence.summary}"
            problem = f"{len(diverged)} of {answers} answers diverge; {where}"
        elif self.rounding.faults:
            problem = f"this is more than rounding: {self.rounding.faults[0]}"
        else:
            near = f"{self.count('near-tie')} of {answers} answers differ at a near-tie"
            problem = f"{near}, and rounding explains {self.most_flips:.0f} at most"
        raise SpecdecError(
            problem, "-k 0 decodes plainly; please report what specdec doctor and specdec audit --json say"
        )
