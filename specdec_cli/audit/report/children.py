"""The parts of a report that run specdec itself. Law: each ends with its time, and none outlives the report.

A process of its own has mlx's environment variables from its start, memory of its own, and a crash that is its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean
from threading import Timer
from typing import Any

from specdec_cli.audit.prompts import BUNDLED
from specdec_cli.audit.report.budget import Deadline, Impossible

# mlx commits a Metal command buffer after so many operations or so many MB, and lets about ten be in flight
# (mlx/backend/metal/device.cpp). With limits that are never reached the host is never stopped.
UNLIMITED = {"MLX_MAX_OPS_PER_BUFFER": "99999", "MLX_MAX_MB_PER_BUFFER": "99999"}
# The user's own settings of these would change what is measured; the others say where models are.
SETTINGS_KEPT = ("SPECDEC_MODELS",)
AB_TOKENS, AB_K = 128, 4
TURNS = 3
# Of each run: kernels are compiled, and the draft reads the prompt.
WARM_ROUNDS = 2
# bench loads the pair before its time begins.
BENCH_LOADING_SECONDS = 12.0
# From being asked to end, to being ended.
GRACE_SECONDS = 8.0
Lines = Callable[[Sequence[str], Mapping[str, str], Deadline], Iterator[str]]


def specdec_lines(arguments: Sequence[str], environment: Mapping[str, str], deadline: Deadline) -> Iterator[str]:
    """The lines that `specdec ARGUMENTS` writes, until its end or the deadline's.

    Raises: RuntimeError with the first line of its stderr if it fails before its time is over.
    """
    kept = {name: value for name, value in os.environ.items() if _kept(name)}
    command = [sys.executable, "-m", "specdec_cli", *arguments]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8",
            env=kept | dict(environment),
        )  # fmt: skip
        # As Ctrl-C does: bench then says what it has.
        timers = [Timer(deadline.left_seconds, process.send_signal, [signal.SIGINT])]
        timers.append(Timer(deadline.left_seconds + GRACE_SECONDS, process.terminate))
        for timer in timers:
            timer.start()
        try:
            assert process.stdout is not None
            yield from process.stdout
            process.wait()
        finally:
            for timer in timers:
                timer.cancel()
            _end(process)
        errors.seek(0)
        said = errors.readline().strip()
    if process.returncode > 1 and not deadline.over():
        raise RuntimeError(f"specdec {arguments[0]} ended with {process.returncode}: {said}")


def _kept(name: str) -> bool:
    return not name.startswith(("SPECDEC_", "MLX_MAX_")) or name in SETTINGS_KEPT


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the process, whatever it is doing."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


class ChildParts:
    """`pair` are the options that name the pair on a command line; `drafts`: it has a draft."""

    def __init__(self, pair: Sequence[str], drafts: bool, lines: Lines = specdec_lines) -> None:
        self._pair, self._drafts, self._lines = list(pair), drafts, lines

    def in_flight(self, data: dict[str, Any], deadline: Deadline) -> str:
        """A: mlx as it is. B: the host is never stopped. Rounds of both, in turns, as often as time allows."""
        if not self._drafts:
            raise Impossible("the pair has no draft")
        data |= {"k": AB_K, "unlimited": UNLIMITED, "limited_runs": [], "unlimited_runs": []}
        settings: list[tuple[str, Mapping[str, str]]] = [("limited_runs", {}), ("unlimited_runs", UNLIMITED)]
        longest = 0.0
        for turn in range(TURNS):
            before = deadline.left_seconds
            if turn and before < longest:
                return f"time for {turn} of {TURNS} turns"
            for name, environment in settings:
                found = self._rounds(environment, deadline)
                if found is None:
                    return f"time for {turn} of {TURNS} turns"
                data[name].append(found)
            longest = max(longest, before - deadline.left_seconds)
            settings.reverse()  # a machine that grows hot, or less busy, does so for both
        return ""

    def _rounds(self, environment: Mapping[str, str], deadline: Deadline) -> dict[str, Any] | None:
        """Means of one run's drafted rounds, in milliseconds; None if time was over before its end."""
        options = ["--json", "--offline", "--temp", "0", "-k", str(AB_K), "-n", str(AB_TOKENS)]
        events = [
            json.loads(line) for line in self._lines(["run", *self._pair, *options, PROMPT], environment, deadline)
        ]
        if not events or events[-1].get("event") != "finish":
            return None
        rounds = [event for event in events if event["event"] == "round" and event["draft"]][WARM_ROUNDS:]
        if not rounds:
            raise Impossible("the answer was too short for a drafted round")
        draft, verify = (1000 * mean(round[f"{part}_seconds"] for round in rounds) for part in ("draft", "verify"))
        return {"rounds": len(rounds), "draft_ms": draft, "verify_ms": verify, "round_ms": draft + verify}

    def bench(self, data: dict[str, Any], deadline: Deadline) -> str:
        """A short `specdec bench`: its rows and its sentence, none of its prompts."""
        seconds = int(max(deadline.left_seconds - BENCH_LOADING_SECONDS, 10))
        options = ["--json", "-q", "--offline", "--time-budget", f"{seconds}s", "-k", "0-4,8,auto"]
        text = "".join(self._lines(["bench", *self._pair, *options], {}, deadline))
        if not text:
            raise Impossible("bench found no time to end")
        found = json.loads(text)
        report = found["report"][0]
        data["asked_seconds"], data["conclusion"] = seconds, report["verdict"]["told"]
        data["rows"] = [_row(row) for row in report["rows"]]
        data["draft_steps"], data["verify_steps"] = report["draft_steps"], report["verify_steps"]
        return "stopped by the time budget" if found["partial"] else ""

    def selftest(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Both tiers of `specdec doctor --selftest`, the one of real precisions first."""
        data["outcomes"] = []
        for line in self._lines(["doctor", "--selftest", "--json"], {"MLX_ENABLE_TF32": "0"}, deadline):
            found = json.loads(line)
            data["outcomes"].append({name: found[name] for name in ("name", "status", "proves", "detail")})
        return f"stopped by the time budget after {len(data['outcomes'])} results" if deadline.over() else ""


PROMPT = BUNDLED[0].text


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A bench row's figures; `speedup_low` and `speedup_high` are those of its interval."""
    kept = {name: row[name] for name in ("k", "measured", "acceptance_rate", "mean_acceptance_length", "verify_steps")}
    ends = {f"speedup_{end}": row["speedup"] and row["speedup"][end] for end in ("low", "high")}
    return kept | ends | {name: row[name] and row[name]["mean"] for name in ("speedup", "tokens_per_second")}
