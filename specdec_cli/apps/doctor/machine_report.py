"""`specdec doctor --report`: what doctor, audit, bench and the self-test say of a pair here, as one JSON object.

Each command runs in a process of its own, in its share of the time: a crash there is its own. One that fails says so,
and the others still run. No user name, host name or folder is in a report, and no prompt or answer.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specdec_cli.apps.doctor.findings import diagnose
from specdec_cli.pairs.pair import Pair
from specdec_cli.system.machine import machine_state
from specdec_cli.version import __version__

SCHEMA = 2
# (number, of how many, name)
OnPart = Callable[[int, int, str], None]
# A command's words, and its share of the time that is left.
COMMANDS: Mapping[str, tuple[Sequence[str], float]] = {
    "selftest": (("doctor", "--selftest", "--json"), 0.3),
    "bench": (("bench", "--json", "-q", "-k", "0-4,8,auto"), 0.5),
    "audit": (("audit", "--json", "-k", "4", "-n", "16"), 1.0),
}
# Of bench's time, once it has loaded the pair and while it may go on with the last answer.
BENCH_SHARE = 0.7
NOTHING_PRIVATE = (
    "It holds no prompt and no answer, and neither your name, this machine's name nor a path of your home."
)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What one command found: `data` for JSON, `summary` in a line, `note`: why there is no more of it."""

    data: Any
    summary: str = ""
    note: str = ""


def make_report(pair: Pair, drafter: str, budget_seconds: float, on_part: OnPart) -> dict[str, Any]:
    """The JSON object of everything about `pair` here, found within about `budget_seconds`."""
    began = time.monotonic()
    state, parts = asdict(machine_state()), {"doctor": CommandResult([list(row) for _, *row in diagnose()])}
    for number, (name, (words, share)) in enumerate(COMMANDS.items(), 1):
        on_part(number, len(COMMANDS), name)
        seconds = share * max(budget_seconds - (time.monotonic() - began), 0.0)
        parts[name] = run_part(name, [*words, *options_of(name, pair, drafter, seconds)], seconds)
    report = {
        "report": "specdec doctor",
        "schema": SCHEMA,
        "specdec": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "pair": {
            "name": pair.name,
            "target": pair.target,
            "draft": pair.draft,
            "revisions": [r for _, r in pair.models],
        },
        "seconds": time.monotonic() - began,
        "machine_before": state,
        "machine_after": asdict(machine_state()),
        **{name: asdict(part) for name, part in parts.items()},
    }
    anonymous: dict[str, Any] = without(private_names([model for model, _ in pair.models]), report)
    return anonymous


def options_of(name: str, pair: Pair, drafter: str, seconds: float) -> list[str]:
    """The words that a command needs besides its own."""
    if name == "selftest":
        return []
    more = ("--drafter", drafter) if name == "audit" else ("--time-budget", f"{max(seconds * BENCH_SHARE, 5):.0f}s")
    return [*pair_options(pair), "--offline", *more]


def run_part(name: str, words: Sequence[str], seconds: float) -> CommandResult:
    """What the command prints, without any text of a prompt or an answer."""
    try:
        text, note = specdec_output(words, seconds)
        return READERS[name](text, note) if text else CommandResult(None, "", note or "it printed nothing")
    except (RuntimeError, ValueError, LookupError, TypeError) as error:
        return CommandResult(None, "", str(error))


def read_audit(text: str, note: str) -> CommandResult:
    """Results and gaps of `audit --json`."""
    report = json.loads(text)
    for finding in report["findings"]:
        divergence = finding.pop("divergence") or {}  # without its tokens
        finding |= {name: divergence.get(name) for name in ("position", "gap", "limit")}
    results = Counter(finding["result"] for finding in report["findings"])
    data = {name: report[name] for name in ("near_tie", "rounding", "findings")}
    return CommandResult(data, ", ".join(f"{count} {result}" for result, count in sorted(results.items())), note)


def read_bench(text: str, note: str) -> CommandResult:
    """The rows and the sentence of `bench --json`, and what passes and draft steps cost."""
    report = json.loads(text)["report"][0]
    summary = str(report["verdict"]["told"])
    return CommandResult({name: report[name] for name in ("rows", "draft_steps", "verify_steps")}, summary, note)


def read_selftest(text: str, note: str) -> CommandResult:
    """The outcomes of `doctor --selftest --json`, as far as there was time."""
    outcomes = [json.loads(line) for line in text.split("\n")[:-1]]
    wrong = [outcome["name"] for outcome in outcomes if outcome["status"] not in ("pass", "skipped")]
    passed = sum(outcome["status"] == "pass" for outcome in outcomes)
    return CommandResult(
        outcomes, f"{passed} of {len(outcomes)} passed, {len(wrong)} wrong{': ' * bool(wrong)}{', '.join(wrong)}", note
    )


READERS: Mapping[str, Callable[[str, str], CommandResult]] = {
    "audit": read_audit,
    "bench": read_bench,
    "selftest": read_selftest,
}


def report_rows(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(what, value, note) of every line of the report."""
    pair = report["pair"]
    models = f"{pair['target']} with {pair['draft']}" if pair["draft"] else str(pair["target"])
    parts = [(name, report[name]["summary"] or "nothing", report[name]["note"]) for name in COMMANDS]
    rows = [(str(what), str(value), str(note)) for what, value, note in report["doctor"]["data"]]
    return [*rows, ("pair", pair["name"], models), *parts, ("time", f"{report['seconds']:.0f} s", "")]


def specdec_output(arguments: Sequence[str], seconds: float) -> tuple[str, str]:
    """(what `specdec ARGUMENTS` writes within so many seconds without the user's settings, why it is not all).

    Raises: RuntimeError with the first line of its stderr if it fails.
    """
    ours = {name: value for name, value in os.environ.items() if name == "SPECDEC_MODELS" or name[:8] != "SPECDEC_"}
    ours["SPECDEC_CONFIG"] = os.devnull
    command = [sys.executable, "-m", "specdec_cli", *arguments]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "encoding": "utf-8"}
    try:
        done = subprocess.run(command, timeout=seconds, env=ours, **streams)
    except subprocess.TimeoutExpired as error:
        return bytes(error.stdout or b"").decode(errors="replace"), f"stopped after its {seconds:.0f} s"
    if done.returncode not in (0, 1):
        said = next(iter(done.stderr.splitlines()), "")
        raise RuntimeError(f"specdec {arguments[0]} ended with {done.returncode}: {said}")
    return str(done.stdout), ""


def pair_options(pair: Pair) -> list[str]:
    """The options that name `pair` on a command line."""
    return ["--pair", pair.name] if pair.source != "command line" else pair.options


def private_names(models: Sequence[str]) -> list[tuple[re.Pattern[str], str]]:
    """Patterns of folders, the home path, the host's names and the user's, each with what stands for it.

    The longest path comes first. Names are found as whole words, so that a short one leaves others as they are.
    """
    folders = sorted((model.rstrip("/") for model in models if Path(model).is_absolute()), key=len, reverse=True)
    homes = [home for home in (str(Path.home()), str(Path.home().resolve())) if len(home) > 1]
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no entry for the user's number
        user = ""
    host = socket.gethostname()
    names = [(host, "(host)"), (host.partition(".")[0], "(host)"), (user, "(user)")]
    patterns = [(re.escape(path), f"…/{Path(path).name}") for path in folders]
    patterns += [(re.escape(home), "~") for home in homes]
    patterns += [(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", shown) for name, shown in names if name]
    return [(re.compile(pattern), shown) for pattern, shown in patterns]


def without(names: Sequence[tuple[re.Pattern[str], str]], value: Any) -> Any:
    """`value`, JSON-ready, with every string replaced where it names the person or the machine; keys are ours."""
    if isinstance(value, str):
        for pattern, shown in names:
            value = pattern.sub(shown, value)
        return value
    if isinstance(value, Mapping):
        return {key: without(names, item) for key, item in value.items()}
    return [without(names, item) for item in value] if isinstance(value, list | tuple) else value
