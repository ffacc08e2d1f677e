"""The conformance suite on the user's own device. Law: an architecture is verified only where the suite passed.

Kernels differ between devices: Metal runs other kernels for recurrent layers than the CPU. A run is recorded with the
device and the versions of mlx, mlx-lm and specdec, and is valid only as long as these stay the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from specdec_cli.engine.conformance.suite import Outcome

K = 3
TOKENS = 32
OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The outcomes of one run."""

    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def wrong(self) -> list[Outcome]:
        """Outcomes that neither passed nor were refused with a reason."""
        return [outcome for outcome in self.outcomes if outcome.status not in ("pass", "refused")]

    @property
    def passed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == "pass"]

    def findings(self) -> list[tuple[str, str, str]]:
        """(architecture, status, detail): the summary first, then every outcome that did not pass."""
        passed, kinds = self.passed, sorted({kind for outcome in self.outcomes for kind in outcome.caches})
        test = f"tokens equal plain decoding, K = {K}, {TOKENS} tokens past every window; caches: {', '.join(kinds)}"
        rows = [("passed", f"{len(passed)} of {len(self.outcomes)}", f"in {self.seconds:.0f} s; {test}")]
        rest = [outcome for outcome in self.outcomes if outcome.status != "pass"]
        return rows + [(outcome.name, outcome.status, outcome.detail) for outcome in rest]


def run_selftest(on_progress: OnProgress) -> SelfTest:
    """Runs every listed architecture on this device and records the result."""
    from specdec_cli.engine.architectures import architectures
    from specdec_cli.engine.conformance.suite import run_suite

    listed = list(architectures().values())
    began, outcomes = time.perf_counter(), []
    for done, outcome in enumerate(run_suite(listed, K, TOKENS), 1):
        outcomes.append(outcome)
        on_progress(done, len(listed), outcome.name)
    found = SelfTest(tuple(outcomes), time.perf_counter() - began)
    _record(found)
    return found


def verification() -> str:
    """How far exact rollback is verified on this device, in one phrase."""
    from specdec_cli.engine import device

    try:
        known = json.loads(record_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    if known.get("where") == _where():
        if known["wrong"]:
            return f"FAILED here for {', '.join(known['wrong'])} on {known['date']}: do not trust these"
        return f"verified here for {known['passed']} architectures on {known['date']}"
    where = "on CPU by specdec's own tests" if device.backend() == "cpu" else "on CPU only so far"
    return f"verified {where}; for this device: specdec doctor --selftest"


def record_file() -> Path:
    """The file that records the last run."""
    return platformdirs.user_state_path("specdec") / "selftest.json"


def _record(found: SelfTest) -> None:
    values = {
        "where": _where(),
        "date": time.strftime("%Y-%m-%d"),
        "passed": len(found.passed),
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
