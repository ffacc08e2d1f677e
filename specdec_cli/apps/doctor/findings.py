"""What `specdec doctor` says of this machine, what is kept here, and its self-test on the user's own device.

A run of the self-test is recorded with the device and the versions, and is valid while these stay the same.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from specdec_cli.core import jsonfile
from specdec_cli.core.format import size
from specdec_cli.core.gain import expected_tokens
from specdec_cli.engine import device
from specdec_cli.hub import cache_folder, settings
from specdec_cli.hub.cache import heads_folder
from specdec_cli.pairs.drafts import compared_file
from specdec_cli.pairs.registry import user_file
from specdec_cli.pairs.tuned import tuned_folder
from specdec_cli.session.cost_file import cost_file
from specdec_cli.session.disk_entries import DISK_CACHE, disk_cache_folder
from specdec_cli.session.kept_chats import kept_folder
from specdec_cli.system import blas
from specdec_cli.system.config import config_file
from specdec_cli.system.machine import physical_bytes, temporary_folder
from specdec_cli.system.servers import servers_folder
from specdec_cli.version import __version__

if TYPE_CHECKING:
    from specdec_cli.engine.selftest import Outcome

Row = tuple[str, str, str]
# Whether all is well, the thing, its state, and what follows from it.
Finding = tuple[bool, str, str, str]
# (done, of how many, what was found)
OnOutcome = Callable[[int, int, "Outcome"], None]
# A product is timed with so many rows. They are dear where they cost more than the tokens that such a pass yields when
# three of four drafted ones are accepted.
ROWS = (1, 2, 4, 8)
DEAR = expected_tokens([0.75] * (ROWS[-1] - 1))[-1]
CLAIM = "with models of eight kinds, passes of several rows and rollbacks change no more than rounding does here"
BACKENDS = {
    "metal": "Apple GPU: what specdec is made for",
    "cuda": "NVIDIA GPU",
    "cpu": "works, and shows the mechanism; gains need a fast BLAS",
}
TOO_OLD = "mlx's wheel needs 26.2 on this chip and takes kernels that this system lacks (mlx#4525): update macOS"
VIRTUAL = "a virtual GPU: its times mean nothing here, and none is kept"


def diagnose() -> list[Finding]:
    """Every line of the report. Nothing is changed."""
    rollback = f"rollback {verification()}"
    targets = "FAILED" not in rollback, "targets", "whatever mlx-lm runs", rollback
    return [*_machine(), _storage(), *((True, *setting) for setting in settings()), targets]


def _machine() -> Iterator[Finding]:
    yield True, "chip", device.device_name(), f"{platform.system()} {platform.machine()}"
    virtual = device.is_virtual()
    yield not virtual, "computes on", device.backend(), VIRTUAL if virtual else BACKENDS[device.backend()]
    # An old Python is told 16 for 26.
    chip, system = f"{device.device_name()} {device.kernel_architecture()}", platform.mac_ver()[0]
    if re.search(r"\bM([5-9]|\d\d)\b|_g(1[7-9]|[2-9]\d)", chip) and re.fullmatch(r"(26|16)(\.[01](\..*)?)?", system):
        yield False, "macOS", system, TOO_OLD
    if library := blas.load():
        slow = f"several rows cost several passes; a fast one: {blas.INSTALL}"
        fast = library != blas.REFERENCE
        yield fast, "BLAS", library, "" if fast else slow
        one, *_, most = device.product_seconds(ROWS)
        pays = "drafting can pay" if most < DEAR * one else "drafting hardly pays here"
        yield most < DEAR * one, "rows", f"{ROWS[-1]} cost {most / one:.1f} of one", pays
    if device.backend() == "cpu":
        folder, problem = temporary_folder(device.compiled_into())
        told = f"mlx cannot compile there: {problem}" if problem else "mlx compiles there"
        yield not problem, "temporary folder", folder, told
    if working_set := device.working_set_bytes():
        yield True, "working set", size(working_set), "what Metal recommends for weights and caches together"
    yield True, "memory", size(physical_bytes()), "both models and both caches must fit"
    if platform.system() == "Darwin" and platform.machine() != "arm64":
        yield False, "python", platform.machine(), "not native: install an arm64 Python, or mlx cannot use the GPU"
    yield True, "specdec", __version__, ", ".join(f"{name} {number}" for name, number in device.versions().items())
    yield True, "python", platform.python_version(), sys.executable


def _storage() -> Finding:
    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    state = "exists" if folder.exists() else "not there yet"
    note = f"{state}, {size(shutil.disk_usage(existing).free)} free"
    writable = os.access(existing, os.W_OK)
    return writable, "model cache", str(folder), note + ("" if writable else ", not writable")


# Where Typer installs the completion of each shell.
COMPLETIONS = (".bash_completions/specdec.sh", ".zfunc/_specdec", ".config/fish/completions/specdec.fish")
# A bash whose ~/.bashrc still reads the removed file begins with an error. That file may be a link, which sed spoils.
READ_BY_BASH = '; sed -i.bak /bash_completions.specdec/d "$(realpath ~/.bashrc)"'


def places() -> Iterator[tuple[str, list[Path], str]]:
    """(name, files and folders, command) of everything that may be there; without a command, `rm` removes it."""
    state, tuned = platformdirs.user_state_path("specdec"), tuned_folder()
    yield "chats", _inside(kept_folder()), "specdec chats delete --all"
    yield "typed lines", [state / "history"], ""
    yield "tuned", [path for path in _inside(tuned) if path.name[0] != "."], "specdec rm NAME"
    yield "stopped trainings", [path for path in _inside(tuned) if path.name[0] == "." and _is_stopped(path)], ""
    yield "disk cache", [disk_cache_folder()], f"specdec rm {DISK_CACHE}"
    yield "heads", _inside(heads_folder()), "specdec rm NAME"
    yield "measured costs", [cost_file().path], ""
    yield "self-test", [record_file()], ""
    yield "servers' logs", [servers_folder()], ""
    yield "compared tokenizers", [compared_file()], ""
    yield "settings", [config_file()], ""
    yield "your pairs", [user_file()], ""
    yield "completion", [Path.home() / name for name in COMPLETIONS], ""


def kept_here() -> list[Row]:
    """(name, size, the command that removes it with its place) of what is there."""
    found = []
    for name, paths, command in places():
        there = [path for path in paths if path.exists()]
        if command and there:
            found.append((name, size(sum(map(_bytes, there))), f"{command} (in {_short(there[0].parent)})"))
        elif there:
            for path in there:
                also = READ_BY_BASH * (path == Path.home() / COMPLETIONS[0])
                found.append((name, size(_bytes(path)), f"rm {'-r ' * path.is_dir()}{_short(path)}{also}"))
    return found


def _short(path: Path) -> str:
    """As a shell takes it."""
    if path.is_relative_to(Path.home()):
        return f"~/{shlex.quote(str(path.relative_to(Path.home())))}"
    return shlex.quote(str(path))


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_stopped(training: Path) -> bool:
    """Whether no process is at it: one that runs would lose its files."""
    try:
        with jsonfile.locked(training, patience_seconds=0.0):
            return True
    except OSError:
        return False


def _bytes(path: Path) -> int:
    """Of the file, or of all files in the folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())


def run_selftest(on_outcome: OnOutcome) -> tuple[list[Outcome], float]:
    """Runs every family in every precision on this device: what was found, and in how many seconds. It is recorded."""
    from specdec_cli.engine.selftest import PRECISIONS, families, run_families

    listed, outcomes = list(families().values()), list["Outcome"]()
    began = time.perf_counter()
    for outcome in run_families(listed):
        outcomes.append(outcome)
        on_outcome(len(outcomes), len(listed) * len(PRECISIONS), outcome)
    seconds = time.perf_counter() - began
    values = {
        "where": _where(),
        "date": time.strftime("%Y-%m-%d"),
        "passed": _passed(outcomes),
        "wrong": wrong(outcomes),
    }
    record_file().parent.mkdir(parents=True, exist_ok=True)
    record_file().write_text(json.dumps(values), encoding="utf-8")
    return outcomes, seconds


def wrong(outcomes: Sequence[Outcome]) -> list[str]:
    """The names of those that neither passed nor were skipped with a reason."""
    return [outcome.name for outcome in outcomes if outcome.status not in ("pass", "skipped")]


def totals(outcomes: Sequence[Outcome], seconds: float) -> list[Row]:
    """(what, result, detail): what was shown, and the time."""
    result = f"{_passed(outcomes)} of {len(outcomes)} passed"
    return [("self-test", result, CLAIM), ("time", f"{seconds:.0f} s", "")]


def missed(outcomes: Sequence[Outcome]) -> list[Row]:
    """What did not pass."""
    return [(outcome.name, outcome.status, outcome.detail) for outcome in outcomes if outcome.status != "pass"]


def _passed(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.status == "pass" for outcome in outcomes)


def verification() -> str:
    """How far rollback is verified on this device, in one phrase."""
    record = jsonfile.read_or_empty(record_file())
    wrong = record.get("wrong")
    if record.get("where") == _where() and isinstance(wrong, list):
        if wrong:
            return f"FAILED here for {', '.join(map(str, wrong))} on {record.get('date')}: do not trust these"
        return f"verified here, in {record.get('passed', 0)} tests of 16 and 4 bits, on {record.get('date')}"
    where = "on CPU by specdec's own tests" if device.backend() == "cpu" else "on CPU only so far"
    return f"verified {where}; for this device: specdec doctor --selftest"


def record_file() -> Path:
    """The file that records the last run."""
    return platformdirs.user_state_path("specdec") / "selftest.json"


def _where() -> dict[str, str]:
    """Everything the result depends on."""
    versions = {name: device.versions()[name] for name in ("mlx", "mlx-lm")}
    return {"device": device.device_name(), "backend": device.backend(), **versions, "specdec": __version__}
