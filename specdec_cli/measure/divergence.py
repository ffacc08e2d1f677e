"""What an audit finds: the answer is equal, differs at a near-tie, which rounding alone can flip, or is another (pure).

A near-tie's limit is measured on the same texts, whatever the comparison says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from specdec_cli.core.errors import SpecdecError
from specdec_cli.measure.rounding import Rounding, finite

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
    """One prompt under one rule and K. `tokens_compared` includes the first difference.

    `draft_n` and `draft_n_accepted` show whether rollback was exercised.
    """

    prompt: str
    rule: str
    k: int | str
    draft_n: int
    draft_n_accepted: int
    tokens_compared: int
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
        return asdict(self) | {"result": self.result, "divergence": self.divergence and self.divergence.to_dict()}


@dataclass(frozen=True, slots=True)
class Audit:
    """All findings and their setting. `device` is the backend, `compared_with` names the reference implementation.

    `near_ties_expected`: answers that the machine's own rounding flips somewhere, going by its measured changes.
    """

    target: str
    draft: str | None
    drafter: str
    dtype: str
    device: str
    compared_with: str
    max_tokens: int
    temperature: float
    seed: int
    sampling: Mapping[str, Any]
    rounding: Rounding
    findings: Sequence[Finding]
    near_ties_expected: float = 0.0

    def count(self, result: Status) -> int:
        return sum(finding.result == result for finding in self.findings)

    @property
    def tokens_compared(self) -> int:
        return sum(finding.tokens_compared for finding in self.findings)

    @property
    def most_near_ties(self) -> float:
        """Near-ties that rounding explains: twice what is expected, three deviations, and two for luck."""
        if self.rounding.given is not None:
            return math.inf
        return 2 * self.near_ties_expected + 3 * math.sqrt(2 * self.near_ties_expected) + 2

    @property
    def problem(self) -> str:
        """What rounding does not explain: the first divergence, else the first fault, else too many near-ties."""
        answers, near = len(self.findings), self.count("near-tie")
        for finding in self.findings:
            if finding.result == "diverged" and finding.divergence:
                first = f"first {finding.prompt}, {finding.rule}: {finding.divergence.summary}"
                return f"{self.count('diverged')} of {answers} answers diverge; {first}"
        if self.rounding.faults:
            return f"this is more than rounding: {self.rounding.faults[0]}"
        if near > self.most_near_ties:
            most = f"rounding explains {self.most_near_ties:.0f} at most"
            return f"{near} of {answers} answers differ at a near-tie, and {most}"
        return ""

    @property
    def lossless(self) -> bool | None:
        """Whether every answer is plain decoding's, except for near-ties that rounding explains.

        None where most answers differ at a near-tie: that proves nothing.
        """
        if self.problem:
            return False
        return None if self.count("near-tie") > self.count("identical") else True

    @property
    def verdict(self) -> str:
        """One sentence: the result, the precision, the reference, and the limit of a near-tie."""
        near, ks = self.count("near-tie"), ", ".join(dict.fromkeys(str(finding.k) for finding in self.findings))
        ties = f", {near} up to a near-tie" if near else ""
        counts = f"{self.count('identical')} of {len(self.findings)} answers are identical{ties}"
        hidden = ", so rounding may hide a fault; try shorter answers (-n)"
        result = {True: f"lossless here: {counts}", None: f"in doubt here: {counts}{hidden}"}
        said = result.get(self.lossless, f"not lossless here: {counts}; {self.problem}")
        where = f"{self.tokens_compared} tokens at K {ks} in {self.rounding.precision} on {self.device}"
        return f"{said} ({where}), compared with {self.compared_with}; a near-tie is {self.rounding}."

    def to_dict(self) -> dict[str, Any]:
        """The `--json` object; `lossless` is null where that is in doubt.

        A divergence's `position` is an index into the answer's tokens."""
        named = (
            *("lossless", "target", "draft", "drafter", "dtype", "device", "compared_with", "max_tokens"),
            *("temperature", "seed", "near_ties_expected", "tokens_compared"),
        )
        return {name: getattr(self, name) for name in named} | {
            "precision": self.rounding.precision,
            "near_tie": str(self.rounding),
            "sampling": dict(self.sampling),
            "identical": self.count("identical"),
            "near_ties": self.count("near-tie"),
            "diverged": self.count("diverged"),
            "rounding": self.rounding.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def require_lossless(self) -> None:
        """Raises: SpecdecError that names what is wrong."""
        if self.problem:
            hint = "-k 0 decodes plainly; please report what specdec doctor and specdec audit --json say"
            raise SpecdecError(self.problem, hint)
