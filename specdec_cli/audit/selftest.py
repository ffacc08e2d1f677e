"""The conformance suite on the user's own device. Law: every line says what it proves, and nothing claims more.

Two tiers. Every architecture in float32, tiny, judged by its tokens: the logic of rollback. Eight families in bfloat16
and 4 bits, with the head sizes and key widths of released models, judged by the gap: the kernels that real models use.
Kernels differ between devices: Metal runs other ones for recurrent layers than the CPU. A run is recorded with the
device and the versions of mlx, mlx-lm and specdec, and is valid only as long as these stay the same.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from specdec_cli import jsonfile

if TYPE_CHECKING:
    from specdec_cli.engine.conformance.suite import Outcome

PACE, LEAST_PACE = 8, 3
"""Results that make the pace: the newest so many, and at least so many."""

K = 3
TOKENS = 32
# (done, of how many, what was found)
OnOutcome = Callable[[int, int, "Outcome"], None]


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The outcomes of one run: of the `families` in real precisions, and of every architecture's `logic` in float32."""

    families: tuple[Outcome, ...]
    logic: tuple[Outcome, ...]
    seconds: float

    @property
    def wrong(self) -> list[Outcome]:
        """Outcomes that neither passed nor were refused with a reason."""
        return [outcome for outcome in (*self.families, *self.logic) if outcome.status not in ("pass", "refused")]

    def findings(self) -> list[tuple[str, str, str]]:
        """(what, result, detail): a line for each tier, every family, then each architecture that did not pass."""
        *tiers, seconds = self.totals()
        rows = [(outcome.name, outcome.status, _shown(outcome)) for outcome in self.families]
        rows += [(outcome.name, outcome.status, outcome.detail) for outcome in self.logic if outcome.status != "pass"]
        return [*tiers, *rows, seconds]

    def totals(self) -> list[tuple[str, str, str]]:
        """(what, result, detail): a line for each tier, and the time."""
        kinds = sorted({kind for outcome in self.logic for kind in outcome.caches})
        logic = (
            f"tokens equal plain decoding, K = {K}, {TOKENS} tokens past every window; caches: {', '.join(kinds)}; "
            "tiny and unquantized: no proof for kernels of 16 or 4 bits"
        )
        families = (
            "after rollbacks, every row equals one-row decoding up to measured rounding; random weights: "
            "specdec audit compares a pair's own"
        )
        return [
            ("rollback logic, float32", _passed(self.logic), logic),
            ("kernels real models use", _passed(self.families), families),
            ("time", f"{self.seconds:.0f} s", ""),
        ]


class TimeLeft:
    """How long the rest will take, at the pace of the newest results: the two tiers differ in theirs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ended = deque([clock()], maxlen=PACE + 1)

    def __call__(self, done: int, expected: int) -> str:
        """One result more: `, about 20 s left`; nothing before there is a pace, nor at the end."""
        self._ended.append(self._clock())
        paces = len(self._ended) - 1
        seconds = (self._ended[-1] - self._ended[0]) / paces * (expected - done)
        return f", about {seconds:.0f} s left" if paces >= LEAST_PACE and done < expected else ""


def _shown(outcome: Outcome) -> str:
    """What it proves, where it passed, and the figures."""
    return f"{outcome.proves}; {outcome.detail}" if outcome.status == "pass" else outcome.detail


def _passed(outcomes: Sequence[Outcome]) -> str:
    return f"{_passes(outcomes)} of {len(outcomes)} passed"


def _passes(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.status == "pass" for outcome in outcomes)


def run_selftest(on_outcome: OnOutcome) -> SelfTest:
    """Runs all families, then every listed architecture, on this device, and records the result."""
    from specdec_cli.engine.architectures import architectures
    from specdec_cli.engine.conformance.kernels import PRECISIONS, families, run_families
    from specdec_cli.engine.conformance.suite import run_suite

    listed, known = list(architectures().values()), list(families().values())
    expected = len(listed) + len(known) * len(PRECISIONS)
    began = time.perf_counter()
    outcomes: tuple[list[Outcome], list[Outcome]] = [], []
    for tier, found in zip(outcomes, (run_families(known), run_suite(listed, K, TOKENS)), strict=True):
        for outcome in found:
            tier.append(outcome)
            on_outcome(sum(map(len, outcomes)), expected, outcome)
    result = SelfTest(tuple(outcomes[0]), tuple(outcomes[1]), time.perf_counter() - began)
    _record(result)
    return result


def verification() -> str:
    """How far rollback is verified on this device, in one phrase."""
    from specdec_cli.engine import device

    known = jsonfile.read_or_empty(record_file())
    wrong = known.get("wrong")
    if known.get("where") == _where() and isinstance(wrong, list):
        if wrong:
            return f"FAILED here for {', '.join(map(str, wrong))} on {known.get('date')}: do not trust these"
        logic = f"logic for {known.get('passed', 0)} architectures in float32"
        kernels = f"kernels in {known.get('families', 0)} tests of 16 and 4 bits"
        return f"verified here: {logic}, {kernels}, on {known.get('date')}"
    where = "on CPU by specdec's own tests" if device.backend() == "cpu" else "on CPU only so far"
    return f"verified {where}; for this device: specdec doctor --selftest"


def record_file() -> Path:
    """The file that records the last run."""
    return platformdirs.user_state_path("specdec") / "selftest.json"


def _record(found: SelfTest) -> None:
    values = {
        "where": _where(),
        "date": time.strftime("%Y-%m-%d"),
        "passed": _passes(found.logic),
        "families": _passes(found.families),
        "wrong": [outcome.name for outcome in found.wrong],
    }
    path = record_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")


def _where() -> dict[str, str]:
    """Everything the result depends on."""
    from specdec_cli import __version__
    from specdec_cli.engine import device

    versions = device.versions()
    return {
        "device": device.device_name(),
        "backend": device.backend(),
        "mlx": versions["mlx"],
        "mlx-lm": versions["mlx-lm"],
        "specdec": __version__,
    }
