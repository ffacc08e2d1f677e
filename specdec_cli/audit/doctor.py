"""What `specdec doctor` says of this machine, and its self-test: the conformance suite on the user's own device.

The self-test has two tiers. Every architecture in float32, tiny, judged by its tokens: the logic of rollback. Eight
families in bfloat16 and 4 bits, with the head sizes and key widths of released models, judged by the gap: the kernels
that real models use. A third one, where the GPU is asked for by name, compares it with the CPU. A run is recorded with
the device and the versions, and is valid while these stay the same.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from specdec_cli import blas, jsonfile
from specdec_cli.format import size
from specdec_cli.hub import cache_folder, settings
from specdec_cli.machine import physical_bytes, temporary_folder
from specdec_cli.version import __version__

if TYPE_CHECKING:
    from specdec_cli.engine.conformance.suite import Outcome

Row = tuple[str, str, str]
# (done, of how many, what was found)
OnOutcome = Callable[[int, int, "Outcome"], None]
K = 3
TOKENS = 32
BACKENDS = {
    "metal": "Apple GPU: what specdec is made for",
    "cuda": "NVIDIA GPU",
    "cpu": "works, and shows the mechanism; gains need a fast BLAS",
}
TOO_OLD = "mlx's wheel needs 26.2 on this chip and takes kernels that this system lacks (mlx#4525): update macOS"
VIRTUAL = "a virtual GPU: its times mean nothing here, and none is kept"


def diagnose() -> list[Row]:
    """(name, value, consequence) for every line of the report. Nothing is changed."""
    return [*_machine(), _storage(), *settings(), ("targets", "whatever mlx-lm runs", f"rollback {verification()}")]


def _machine() -> Iterator[Row]:
    from specdec_cli.engine import device

    yield "chip", device.device_name(), f"{platform.system()} {platform.machine()}"
    virtual = device.is_virtual()
    yield "computes on", device.backend(), VIRTUAL if virtual else BACKENDS[device.backend()]
    # An old Python is told 16 for 26.
    chip, system = f"{device.device_name()} {device.kernel_architecture()}", platform.mac_ver()[0]
    if re.search(r"\bM([5-9]|\d\d)\b|_g(1[7-9]|[2-9]\d)", chip) and re.fullmatch(r"(26|16)(\.[01](\..*)?)?", system):
        yield "macOS", system, TOO_OLD
    if library := blas.load():
        slow = f"several rows cost several passes; a fast one: {blas.INSTALL}"
        yield "BLAS", library, slow if library == blas.REFERENCE else ""
        rows = (1, 2, 4, 8)
        costs = ", ".join(f"{1000 * seconds:.1f}" for seconds in device.product_seconds(rows))
        yield "rows", f"{costs} ms", f"for {', '.join(map(str, rows))} rows times 4096 × 1024"
    if device.backend() == "cpu":
        folder, problem = temporary_folder(device.compiled_into())
        yield "temporary folder", folder, f"mlx cannot compile there: {problem}" if problem else "mlx compiles there"
    if working_set := device.working_set_bytes():
        yield "working set", size(working_set), "what Metal recommends for weights and caches together"
    yield "memory", size(physical_bytes()), "both models and both caches must fit"
    if platform.system() == "Darwin" and platform.machine() != "arm64":
        yield "python", platform.machine(), "not native: install an arm64 Python, or mlx cannot use the GPU"
    yield "specdec", __version__, ""
    yield "python", platform.python_version(), sys.executable
    for name, number in device.versions().items():
        yield name, number, ""


def _storage() -> Row:
    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    state = "exists" if folder.exists() else "not there yet"
    note = f"{state}, {size(shutil.disk_usage(existing).free)} free"
    return "model cache", str(folder), note + ("" if os.access(existing, os.W_OK) else ", not writable")


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The outcomes of one run: of the `families` in real precisions, of every architecture's `logic` in float32, and of
    kernels and families on the GPU `against_cpu`, which is empty where no GPU was asked for. `chosen` are the kernels
    that mlx chooses."""

    families: Sequence[Outcome]
    logic: Sequence[Outcome]
    against_cpu: Sequence[Outcome]
    chosen: Sequence[Row]
    seconds: float

    @property
    def outcomes(self) -> list[Outcome]:
        """Of every tier."""
        return [*self.against_cpu, *self.families, *self.logic]

    @property
    def wrong(self) -> list[Outcome]:
        """Outcomes that neither passed nor were refused with a reason."""
        return [outcome for outcome in self.outcomes if outcome.status not in ("pass", "refused")]

    def totals(self) -> list[Row]:
        """(what, result, detail): a line for each tier, and the time."""
        kinds = sorted({kind for outcome in self.logic for kind in outcome.caches})
        logic = f"tokens equal plain decoding, K = {K}, {TOKENS} tokens past every window; caches: {', '.join(kinds)}"
        kernels = "after rollbacks every row equals one-row decoding up to measured rounding, in 16 and 4 bits"
        compared = "products, attention and networks say in float32 what the CPU says"
        tiers = [("rollback logic, float32", self.logic, logic), ("kernels real models use", self.families, kernels)]
        tiers += [("the GPU against the CPU", self.against_cpu, compared)] if self.against_cpu else []
        counted = [(name, f"{_passes(tier)} of {len(tier)} passed", about) for name, tier, about in tiers]
        return [*self.chosen, *counted, ("time", f"{self.seconds:.0f} s", "")]

    def findings(self) -> list[Row]:
        """The totals, and what did not pass."""
        missed = (one for one in self.outcomes if one.status != "pass")
        return [*self.totals(), *((one.name, one.status, one.detail) for one in missed)]


def _passes(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.status == "pass" for outcome in outcomes)


def run_selftest(on_outcome: OnOutcome, against_cpu: bool = False) -> SelfTest:
    """Runs all families, then every listed architecture, on this device, and records the result.

    `against_cpu`: every kernel and family is compared with the CPU's first.
    """
    from specdec_cli.engine import device
    from specdec_cli.engine.conformance.against_cpu import chosen_kernels, kernels, run_against_cpu
    from specdec_cli.engine.conformance.kernels import PRECISIONS, families, run_families
    from specdec_cli.engine.conformance.suite import run_suite
    from specdec_cli.engine.load import architectures

    listed, known = list(architectures().values()), list(families().values())
    compared = list(kernels()) if against_cpu else []
    expected = len(listed) + len(known) * (len(PRECISIONS) + against_cpu) + len(compared)
    began = time.perf_counter()
    tiers: list[list[Outcome]] = [[], [], []]
    first = run_against_cpu(compared, known) if against_cpu else iter(())
    with device.on_cpu() if device.backend() == "cpu" else nullcontext():
        for tier, run in zip(tiers, (first, run_families(known), run_suite(listed, K, TOKENS)), strict=True):
            for outcome in run:
                tier.append(outcome)
                on_outcome(sum(map(len, tiers)), expected, outcome)
    result = SelfTest(tiers[1], tiers[2], tiers[0], chosen_kernels(), time.perf_counter() - began)
    values = {
        "where": _where(),
        "date": time.strftime("%Y-%m-%d"),
        "passed": _passes(result.logic),
        "families": _passes(result.families),
        "wrong": [outcome.name for outcome in result.wrong],
    }
    record_file().parent.mkdir(parents=True, exist_ok=True)
    record_file().write_text(json.dumps(values), encoding="utf-8")
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


def _where() -> dict[str, str]:
    """Everything the result depends on."""
    from specdec_cli.engine import device

    versions = {name: device.versions()[name] for name in ("mlx", "mlx-lm")}
    return {"device": device.device_name(), "backend": device.backend(), **versions, "specdec": __version__}
