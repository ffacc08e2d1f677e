"""`specdec doctor --report`: what this machine does with a pair, as one JSON object to send.

Each part has a share of the time; one that fails or finds none left is named, and the others still run. The pair is in
memory once: parts that run specdec itself come after it was dropped. A process of its own has mlx's environment
variables from its start, memory of its own, and a crash that is its own. No user name, host name or folder is in a
report, and no prompt or answer.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from threading import Timer
from typing import TYPE_CHECKING, Any, Literal

from specdec_cli import __version__
from specdec_cli.audit.prompts import BUNDLED
from specdec_cli.errors import DoesNotFit, SpecdecError
from specdec_cli.kinds import DEFAULT_DRAFTER, LOOKUP
from specdec_cli.machine import answer_of, machine_state, physical_bytes
from specdec_cli.pairs.pair import Pair

if TYPE_CHECKING:
    from specdec_cli.engine.model import CachedModel
    from specdec_cli.session.session import Session

SCHEMA = 1
Status = Literal["done", "partial", "left out", "failed"]
Clock = Callable[[], float]
OnPart = Callable[[int, int, str], None]
OpenSession = Callable[[int], "Session"]
Lines = Callable[[Sequence[str], Mapping[str, str], "Deadline"], Iterator[str]]
# What was measured is put into the first argument as it is found. Returns why it is not all there; "" if it is.
Work = Callable[[dict[str, Any], "Deadline"], str]
# What models, their caches, the device, other programs and files may raise.
RAISED = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, OSError, MemoryError, SpecdecError)
# The caches that the pair must fit with: as long as the longest context that is measured, else of a short reply.
LONG_TOKENS, SHORT_TOKENS = 8192, 512
PASSES = 7
REPLIES, REPLY_TOKENS, REPLY_K = 4, 256, 4
AUDIT_KS, AUDIT_TOKENS = (1, 4, 8), 48
# Added to a stop token's logit: a reply goes on to its last token.
NEVER = -100.0
# mlx commits a Metal command buffer after so many operations or so many MB, and lets about ten be in flight
# (mlx/backend/metal/device.cpp). With limits that are never reached the host is never stopped.
UNLIMITED = {"MLX_MAX_OPS_PER_BUFFER": "99999", "MLX_MAX_MB_PER_BUFFER": "99999"}
AB_TOKENS, AB_K, AB_TURNS = 128, 4, 3
# Of each run: kernels are compiled, and the draft reads the prompt.
WARM_ROUNDS = 2
# bench loads the pair before its time begins.
BENCH_LOADING_SECONDS = 12.0
# From being asked to end, to being ended.
GRACE_SECONDS = 8.0
# `powermode` of pmset, on a Mac that has three.
POWER_MODES = ("automatic", "low power", "high power")


class Impossible(Exception):
    """A part cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that was measured. `data` is ready for JSON; `note` says why it is not `done`."""

    name: str
    status: Status
    seconds: float
    data: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All parts in their order. `budget_seconds` is what was asked for, `seconds` what was taken."""

    specdec: str
    date: str
    pair: Mapping[str, Any]
    budget_seconds: float
    seconds: float
    parts: Sequence[Part]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"report": "specdec doctor", "schema": SCHEMA, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of a part's time."""

    clock: Clock
    ends_at: float

    @property
    def left_seconds(self) -> float:
        return max(self.ends_at - self.clock(), 0.0)

    def over(self) -> bool:
        return self.clock() >= self.ends_at


@dataclass(frozen=True, slots=True)
class Task:
    """A part to be measured: about `planned_seconds`; with less than `least_seconds` it is left out, with 0 never."""

    name: str
    planned_seconds: float
    least_seconds: float
    work: Work


def specdec_lines(arguments: Sequence[str], environment: Mapping[str, str], deadline: Deadline) -> Iterator[str]:
    """The lines that `specdec ARGUMENTS` writes, until its end or the deadline's; it never outlives the report.

    The user's settings would change what is measured; that of models.toml says where models are, and is kept.

    Raises: RuntimeError with the first line of its stderr if it fails before its time is over.
    """
    ours = {
        name: value
        for name, value in os.environ.items()
        if name == "SPECDEC_MODELS" or not name.startswith(("SPECDEC_", "MLX_MAX_"))
    }
    command = [sys.executable, "-m", "specdec_cli", *arguments]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8",
            env=ours | dict(environment),
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


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def make_report(
    pair: Pair,
    open_session: OpenSession,
    budget_seconds: float,
    on_part: OnPart,
    clock: Clock = time.perf_counter,
    lines: Lines = specdec_lines,
) -> Report:
    """Everything about `pair` here within `budget_seconds`, without any name of this person or machine."""
    began = clock()
    parts = run_tasks(_Measurements(pair, open_session, clock, lines).tasks(), budget_seconds, clock, on_part)
    about = {"name": pair.name, "target": pair.target, "draft": pair.draft, "revisions": [r for _, r in pair.models]}
    names = private_names([model for model, _ in pair.models])
    parts = [replace(one, data=without(names, one.data), note=without(names, one.note)) for one in parts]
    date, seconds = time.strftime("%Y-%m-%d"), clock() - began
    return Report(__version__, date, without(names, about), budget_seconds, seconds, parts)


def run_tasks(tasks: Sequence[Task], budget_seconds: float, clock: Clock, on_part: OnPart) -> list[Part]:
    """Every task in its order; `on_part` is called before each. Time saved by one is there for the later ones."""
    began, parts = clock(), []
    for place, task in enumerate(tasks):
        on_part(place + 1, len(tasks), task.name)
        left = max(began + budget_seconds - clock(), 0.0)
        share = task.planned_seconds / sum(later.planned_seconds for later in tasks[place:])
        if task.least_seconds and left < task.least_seconds:
            note = f"no time: {left:.0f} s were left, and it takes {task.least_seconds:.0f} s at least"
            parts.append(Part(task.name, "left out", 0.0, {}, note))
        else:
            parts.append(_run(task, max(share * left, task.least_seconds), clock))
    return parts


def _run(task: Task, seconds: float, clock: Clock) -> Part:
    begin, data = clock(), dict[str, Any]()
    status: Status
    try:
        note = task.work(data, Deadline(clock, begin + seconds))
        status = "partial" if note else "done"
    except Impossible as error:
        status, note = "left out", str(error)
    except RAISED as error:
        status = "failed"
        note = error.message if isinstance(error, SpecdecError) else f"{type(error).__name__}: {error}"
    return Part(task.name, status, clock() - begin, data, note)


class _Measurements:
    """The parts of a report on one pair; what was found is kept when the time is over."""

    def __init__(self, pair: Pair, open_session: OpenSession, clock: Clock, lines: Lines) -> None:
        self._pair, self._open, self._clock, self._lines = pair, open_session, clock, lines
        self._session: Session | None = None
        self._reserve_tokens = 0

    def tasks(self) -> Sequence[Task]:
        """What is most telling comes first; seconds are those of a report of five minutes."""
        return [
            Task("machine", 5, 0, self.machine),
            Task("load", 20, 1, self.load),
            Task(f"rows at {SHORT_TOKENS}", 30, 5, lambda data, deadline: self.rows(data, deadline, SHORT_TOKENS)),
            Task(f"rows at {LONG_TOKENS}", 45, 10, lambda data, deadline: self.rows(data, deadline, LONG_TOKENS)),
            Task("memory", 30, 5, self.memory),
            Task("audit", 40, 5, self.audit),
            Task("memory given back", 1, 0, self.drop),
            Task("in flight", 40, 10, self.in_flight),
            Task("bench", 45, 25, self.bench),
            Task("self-test", 43, 10, self.selftest),
            Task("machine after", 1, 0, self.machine_after),
        ]

    @property
    def session(self) -> Session:
        """Raises: Impossible if nothing is loaded."""
        if self._session is None:
            raise Impossible("the pair is not loaded")
        return self._session

    @property
    def _models(self) -> list[tuple[str, CachedModel]]:
        slot = self.session.slot
        return [("target", slot.target), *([("draft", slot.draft)] if slot.draft is not None else [])]

    @property
    def _drafter(self) -> str:
        """The pair's draft; without one the text itself drafts, so that rollback is exercised all the same."""
        pair = self.session.pair
        return DEFAULT_DRAFTER if pair.has_draft or pair.head_kind else LOOKUP.name

    def machine(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Chip, sizes and versions, and what may slow this machine down now."""
        from specdec_cli.engine import device

        mac = f"macOS {platform.mac_ver()[0]} {answer_of(['sw_vers', '-buildVersion']).strip()}".strip()
        data |= {
            "chip": device.device_name(),
            "backend": device.backend(),
            "system": mac if sys.platform == "darwin" else f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "memory_bytes": physical_bytes(),
            "working_set_bytes": device.working_set_bytes(),
            "wired_limit_mb": _number(r"(\d+)", ["sysctl", "-n", "iogpu.wired_limit_mb"]),
            "float32_products": device.float32_products(),
            "device": {name: value for name, value in device.device_info().items() if isinstance(value, str | int)},
            "versions": {"specdec": __version__, "python": platform.python_version(), **device.versions()},
            "state": _state(),
        }
        return ""

    def machine_after(self, data: dict[str, Any], deadline: Deadline) -> str:
        """What may have changed meanwhile."""
        data |= _state()
        return ""

    def load(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Both models, with room for a long context where it fits."""
        before, begin = _memory(), self._clock()
        try:
            self._session, self._reserve_tokens = self._open(LONG_TOKENS), LONG_TOKENS
        except DoesNotFit:
            self._session, self._reserve_tokens = self._open(SHORT_TOKENS), SHORT_TOKENS
        data |= {"seconds": self._clock() - begin, "memory_before": before, "memory_after": _memory()}
        for role, model in self._models:
            data[role] = {
                "dtype": model.dtype,
                "caches": list(model.cache_kinds),
                "weight_bytes": model.weight_bytes,
                "context_limit": model.context_limit,
            }
        if head := self._session.slot.head:
            found = head.head.agreement
            data["head"] = {"kind": head.head.kind, "agreement": found and found.to_dict()}
        return ""

    def rows(self, data: dict[str, Any], deadline: Deadline, context_tokens: int) -> str:
        """Passes of every row count after `context_tokens`, of target and draft."""
        from specdec_cli.engine.timing import ROWS, row_costs

        models, notes = self._models, []
        if context_tokens > max(self._reserve_tokens, SHORT_TOKENS):
            raise Impossible(f"caches of {context_tokens} tokens do not fit this machine's memory")
        data["context_tokens"] = context_tokens
        for place, (role, model) in enumerate(models):
            limit = model.context_limit
            if limit is not None and limit < context_tokens + ROWS[-1]:
                notes.append(f"{role}: its context holds {limit} tokens")
                continue
            part = Deadline(self._clock, self._clock() + deadline.left_seconds / (len(models) - place))
            costs = row_costs(model, context_tokens, ROWS, PASSES, self._clock, part.over)
            data[role] = [asdict(cost) for cost in costs]
            passes = costs[-1].passes if len(costs) == len(ROWS) else 0
            if passes < PASSES:
                notes.append(f"{role}: time for {passes} of {PASSES} passes of every row count")
        if not any(data.get(role) for role, _ in models):
            raise Impossible("; ".join(notes))
        return "; ".join(notes)

    def memory(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Memory before and after replies of 256 tokens, each a conversation of its own; none may end early."""
        from specdec_cli.events import Finish
        from specdec_cli.request import Request

        session, data["replies"] = self.session, []
        endless = tuple((token, NEVER) for token in session.pair.tokenizer.stop_tokens)
        sampling = {"temperature": 0.0}
        request = Request(REPLY_TOKENS, k=REPLY_K, drafter=self._drafter, sampling=sampling, logit_bias=endless)
        data["before"] = _memory()
        for place in range(REPLIES):
            events = list(session.reply(session.chat_tokens(BUNDLED[place].text), request, deadline.over))
            tokens = sum(len(event.tokens) for event in events if isinstance(event, Finish))
            data["replies"].append({"tokens": tokens, **_memory()})
            whole = place + (tokens == REPLY_TOKENS)
            if deadline.over() and whole < REPLIES:
                return f"time for {whole} of {REPLIES} whole replies"
        return ""

    def audit(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Greedy answers at several K against plain decoding, prompt by prompt: results and gaps, no text."""
        from specdec_cli.audit.audit import AuditPlan, run_audit

        session, data["findings"], data["rounding"] = self.session, [], []
        for place, prompt in enumerate(BUNDLED):
            plan = AuditPlan([prompt], AUDIT_KS, self._drafter, AUDIT_TOKENS, temperature=0.0)
            found = run_audit(session, plan, lambda *_: None)
            data["near_tie"] = str(found.rounding)
            data["rounding"].append(found.rounding.to_dict())
            data["findings"] += [_without_tokens(finding.to_dict()) for finding in found.findings]
            if deadline.over() and place + 1 < len(BUNDLED):
                return f"time for {place + 1} of {len(BUNDLED)} prompts"
        return ""

    def drop(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Both models' memory is given back: other parts load the pair in a process of its own."""
        from specdec_cli.engine.device import clear_cache

        self.session  # noqa: B018 - nothing to drop is no measurement
        self._session = None
        clear_cache()
        data |= _memory()
        return ""

    def in_flight(self, data: dict[str, Any], deadline: Deadline) -> str:
        """A: mlx as it is. B: the host is never stopped. Rounds of both, in turns, as often as time allows."""
        if self._pair.draft is None:
            raise Impossible("the pair has no draft")
        data |= {"k": AB_K, "unlimited": UNLIMITED, "limited_runs": [], "unlimited_runs": []}
        settings: list[tuple[str, Mapping[str, str]]] = [("limited_runs", {}), ("unlimited_runs", UNLIMITED)]
        longest = 0.0
        for turn in range(AB_TURNS):
            before = deadline.left_seconds
            for name, environment in settings:
                found = None if turn and before < longest else self._rounds(environment, deadline)
                if found is None:
                    return f"time for {turn} of {AB_TURNS} turns"
                data[name].append(found)
            longest = max(longest, before - deadline.left_seconds)
            settings.reverse()  # a machine that grows hot, or less busy, does so for both
        return ""

    def _rounds(self, environment: Mapping[str, str], deadline: Deadline) -> dict[str, Any] | None:
        """Means of one run's drafted rounds, in milliseconds; None if time was over before its end."""
        options = ["--json", "--offline", "--temp", "0", "-k", str(AB_K), "-n", str(AB_TOKENS)]
        run = ["run", *pair_options(self._pair), *options, BUNDLED[0].text]
        events = [json.loads(line) for line in self._lines(run, environment, deadline)]
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
        text = "".join(self._lines(["bench", *pair_options(self._pair), *options], {}, deadline))
        if not text:
            raise Impossible("bench found no time to end")
        found = json.loads(text)
        report = found["report"][0]
        data |= {"asked_seconds": seconds, "conclusion": report["verdict"]["told"]}
        data |= {"rows": [_bench_row(row) for row in report["rows"]]}
        data |= {name: report[name] for name in ("draft_steps", "verify_steps")}
        return "stopped by the time budget" if found["partial"] else ""

    def selftest(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Both tiers of `specdec doctor --selftest`, the one of real precisions first."""
        data["outcomes"] = []
        for line in self._lines(["doctor", "--selftest", "--json"], {"MLX_ENABLE_TF32": "0"}, deadline):
            found = json.loads(line)
            data["outcomes"].append({name: found[name] for name in ("name", "status", "proves", "detail")})
        return f"stopped by the time budget after {len(data['outcomes'])} results" if deadline.over() else ""


def pair_options(pair: Pair) -> list[str]:
    """The options that name `pair` on a command line."""
    if pair.source != "command line":
        return ["--pair", pair.name]
    pinned = {"--target-revision": pair.target_revision, "--draft-revision": pair.draft_revision}
    return [*pair.options, *(word for option, value in pinned.items() if value for word in (option, value))]


def _bench_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A bench row's figures; `speedup_low` and `speedup_high` are those of its interval."""
    kept = {name: row[name] for name in ("k", "measured", "acceptance_rate", "mean_acceptance_length", "verify_steps")}
    ends = {f"speedup_{end}": row["speedup"] and row["speedup"][end] for end in ("low", "high")}
    return kept | ends | {name: row[name] and row[name]["mean"] for name in ("speedup", "tokens_per_second")}


def _without_tokens(finding: Mapping[str, Any]) -> dict[str, Any]:
    """One answer of an audit without any token: result, and where it differs the gap and its limit."""
    names = ("prompt", "k", "result", "tokens_compared", "draft_n", "draft_n_accepted")
    divergence = finding.get("divergence") or {}
    return {name: finding.get(name) for name in names} | {
        name: divergence.get(name) for name in ("position", "gap", "limit")
    }


def _memory() -> dict[str, Any]:
    """Bytes that mlx holds, and that the machine has wired."""
    from specdec_cli.engine.device import memory_use

    return memory_use() | {"wired_bytes": _wired_bytes()}


def _state() -> dict[str, Any]:
    """What may change while a report is made: power, heat, load and wired memory."""
    mode = _number(r"^\s*powermode\s+(\d)", ["pmset", "-g"])
    known = mode is not None and mode < len(POWER_MODES)
    power = {"power_mode": POWER_MODES[mode] if known and mode is not None else None, "wired_bytes": _wired_bytes()}
    return asdict(machine_state()) | power


def _wired_bytes() -> int | None:
    """Memory of the whole machine that cannot be paged out, by macOS's `vm_stat`; None elsewhere."""
    pages, page = (_number(rf"{what}\D+(\d+)", ["vm_stat"]) for what in ("Pages wired down:", "page size of"))
    return None if pages is None or page is None else pages * page


def _number(pattern: str, command: list[str]) -> int | None:
    """The number that a command of macOS says; None where there is no such command."""
    found = re.search(pattern, answer_of(command), re.MULTILINE) if sys.platform == "darwin" else None
    return int(found[1]) if found else None


def private_names(models: Sequence[str]) -> list[tuple[re.Pattern[str], str]]:
    """Patterns of folders, the home path, the host's names and the user's, each with what stands for it.

    The longest come first. Names are found as whole words, so that a short one leaves others as they are.
    """
    folders = sorted((model.rstrip("/") for model in models if Path(model).is_absolute()), key=len, reverse=True)
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no entry for the user's number
        user = ""
    host = socket.gethostname()
    paths = [(path, f"…/{Path(path).name}") for path in folders]
    paths += [(home, "~") for home in (str(Path.home()), str(Path.home().resolve())) if len(home) > 1]
    names = [(host, "(host)"), (host.partition(".")[0], "(host)"), (user, "(user)")]
    words = [(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", shown) for name, shown in names if name]
    return [(re.compile(pattern), shown) for pattern, shown in [*((re.escape(p), s) for p, s in paths), *words]]


def without(names: Sequence[tuple[re.Pattern[str], str]], value: Any) -> Any:
    """`value`, JSON-ready, with every string replaced where it names the person or the machine; keys are ours."""
    if isinstance(value, str):
        for pattern, shown in names:
            value = pattern.sub(shown, value)
        return value
    if isinstance(value, Mapping):
        return {key: without(names, item) for key, item in value.items()}
    return [without(names, item) for item in value] if isinstance(value, list | tuple) else value
