"""`specdec doctor --report`: what this machine does with a pair, as one JSON object to send.

A list of sections is measured in order, each in its share of the time. One that fails says so, and the others still
run. Those that run specdec itself come last, in processes of their own: a crash there is theirs. No user name, host
name or folder is in a report, and no prompt or answer.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec_cli.audit.prompts import BUNDLED
from specdec_cli.errors import DoesNotFit, SpecdecError
from specdec_cli.format import size
from specdec_cli.kinds import BLOCK, DEFAULT_DRAFTER, LOOKUP
from specdec_cli.machine import MachineState, machine_state, physical_bytes
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request
from specdec_cli.version import __version__

if TYPE_CHECKING:
    from specdec_cli.engine.model import CachedModel
    from specdec_cli.session.session import Session

SCHEMA = 1
Clock = Callable[[], float]
# (number, of how many, name)
OnSection = Callable[[int, int, str], None]
OpenSession = Callable[[int], "Session"]
# What models, their caches, the device, other programs and files may raise.
RAISED = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, OSError, MemoryError, SpecdecError)
# The caches that the pair must fit with: as long as the longest context that is measured, else of a short reply.
LONG_TOKENS, SHORT_TOKENS = 8192, 512
PASSES = 7
REPLIES, REPLY_TOKENS, REPLY_K = 4, 256, 4
# Of a first sampled reply and the same one again; those that Qwen3's card advises.
SAMPLED_TOKENS, SAMPLING = 32, {"temperature": 0.7, "top_k": 20, "top_p": 0.8}
AUDIT_KS, AUDIT_TOKENS = (1, 4, 8), 48
# bench loads the pair before its time begins.
BENCH_LOADING_SECONDS = 12.0
NOTHING_PRIVATE = (
    "It holds no prompt and no answer, and neither your name, this machine's name nor a path of your home."
)
# Load a core, before anything runs, from which on other programs are felt.
BUSY = 0.5


class LeftOut(Exception):
    """A section cannot be measured here; the message says why."""


@dataclass(slots=True)
class Section:
    """One thing that is measured: `data` for JSON, `told` in a line, and in `note` why it is not "done"."""

    name: str
    status: str = "done"
    seconds: float = 0.0
    data: dict[str, Any] = field(default_factory=dict)
    told: str = ""
    note: str = ""


# Fills a section with what is found; the second argument says how many seconds are left.
Measure = Callable[[Section, Clock], None]


def make_report(
    pair: Pair,
    open_session: OpenSession,
    budget_seconds: float,
    on_section: OnSection,
    clock: Clock = time.perf_counter,
) -> dict[str, Any]:
    """The JSON object of everything about `pair` here, measured within about `budget_seconds`."""
    began = clock()
    parts = measure_sections(_Measurements(pair, open_session, clock).sections(), budget_seconds, clock, on_section)
    found = {
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
        "budget_seconds": budget_seconds,
        "seconds": clock() - began,
        "parts": [asdict(part) for part in parts],
    }
    anonymous: dict[str, Any] = without(private_names([model for model, _ in pair.models]), found)
    return anonymous


def measure_sections(
    sections: Sequence[tuple[str, float, Measure]], budget_seconds: float, clock: Clock, on_section: OnSection
) -> list[Section]:
    """Every (name, share of the time, measure) in order. Time that one saves is there for the later ones.

    A section without a share takes no time worth counting and is never left out.
    """
    ends_at, parts = clock() + budget_seconds, []
    for place, (name, share, measure) in enumerate(sections):
        on_section(place + 1, len(sections), name)
        begin, part = clock(), Section(name)
        seconds = (ends_at - begin) * share / (sum(later for _, later, _ in sections[place:]) or 1)
        try:
            if share and seconds <= 0:
                raise LeftOut("no time was left")
            measure(part, partial(_left, clock, begin + seconds))
            part.status = "partial" if part.note else "done"
        except LeftOut as error:
            part.status, part.note = "left out", str(error)
        except RAISED as error:
            part.status = "failed"
            part.note = error.message if isinstance(error, SpecdecError) else f"{type(error).__name__}: {error}"
        part.seconds = clock() - begin
        parts.append(part)
    return parts


class _Measurements:
    """The sections of a report on one pair, which is in memory until the last of them that reads it."""

    def __init__(self, pair: Pair, open_session: OpenSession, clock: Clock) -> None:
        self._pair, self._open, self._clock = pair, open_session, clock
        self._loaded: Session | None = None
        self._reserve_tokens = 0

    def sections(self) -> list[tuple[str, float, Measure]]:
        """What is most telling comes first; shares are the seconds of a report of five minutes."""
        return [
            ("machine", 0, self.machine),
            ("load", 20, self.load),
            ("sampled replies", 5, self.sampled),
            (f"rows at {SHORT_TOKENS}", 35, partial(self.rows, SHORT_TOKENS)),
            (f"rows at {LONG_TOKENS}", 55, partial(self.rows, LONG_TOKENS)),
            ("memory", 40, self.memory),
            ("audit", 50, self.audit),
            ("memory given back", 0, self.release),
            ("bench", 55, self.bench),
            ("self-test", 45, self.selftest),
            ("machine after", 0, self.machine_after),
        ]

    @property
    def session(self) -> Session:
        if self._loaded is None:
            raise LeftOut("the pair is not loaded")
        return self._loaded

    @property
    def _models(self) -> list[tuple[str, CachedModel]]:
        from specdec_cli.engine.model import CachedModel

        slot = self.session.slot
        return [("target", slot.target), *([("draft", slot.draft)] if isinstance(slot.draft, CachedModel) else [])]

    @property
    def _drafter(self) -> str:
        """The pair's draft; without one the text itself drafts, so that rollback is exercised all the same."""
        pair = self.session.pair
        return DEFAULT_DRAFTER if pair.draft_kind else LOOKUP.name

    def machine(self, part: Section, left: Clock) -> None:
        """Chip, sizes and versions, and what may slow this machine down now."""
        from specdec_cli.engine import device

        state, cores = machine_state(), os.cpu_count() or 1
        mac = f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else ""
        part.data = {
            "chip": device.device_name(),
            "backend": device.backend(),
            "system": mac or f"{platform.system()} {platform.release()}",
            "cores": cores,
            "memory_bytes": physical_bytes(),
            "working_set_bytes": device.working_set_bytes(),
            "device": {name: value for name, value in device.device_info().items() if isinstance(value, str | int)},
            "versions": {"specdec": __version__, "python": platform.python_version(), **device.versions()},
            "state": asdict(state),
        }
        named = ", ".join(part.data[name] for name in ("chip", "backend", "system"))
        part.told = f"{named}, {size(part.data['memory_bytes'])}; {tell_state(state, cores)}"

    def machine_after(self, part: Section, left: Clock) -> None:
        """What may have changed meanwhile."""
        state = machine_state()
        part.data, part.told = asdict(state), tell_state(state)

    def load(self, part: Section, left: Clock) -> None:
        """Both models, with room for a long context where it fits."""
        from specdec_cli.engine.heads.cached import CachedHead

        begin = self._clock()
        try:
            self._loaded, self._reserve_tokens = self._open(LONG_TOKENS), LONG_TOKENS
        except DoesNotFit:
            self._loaded, self._reserve_tokens = self._open(SHORT_TOKENS), SHORT_TOKENS
        part.data = {"seconds": self._clock() - begin, **_memory()}
        for role, model in self._models:
            facts = {"dtype": model.dtype, "caches": list(model.cache_kinds), "weight_bytes": model.weight_bytes}
            part.data[role] = facts | {"context_limit": model.context_limit, "draft_context": model.recent}
        part.told = ", ".join(f"{role} {model.dtype} {size(model.weight_bytes)}" for role, model in self._models)
        if isinstance(draft := self.session.slot.draft, CachedHead):
            found = draft.head.agreement
            part.data["head"] = {"kind": draft.kind, "agreement": found and found.to_dict()}
            guessed = f"guesses {found.share:.0%} of {found.words} words" if found else "not checked"
            part.told += f", head {draft.kind}: {guessed}"

    def sampled(self, part: Section, left: Clock) -> None:
        """One sampled reply twice, each time as a conversation of its own: what is compiled at its first use shows."""
        from specdec_cli.events import Finish

        prompt, request = BUNDLED[0].text, sampled_request(self._drafter)
        ends: list[Finish] = []
        for _ in range(2):
            session = self.session.pair.session()
            events = session.reply(session.chat_tokens(prompt), request, lambda: not left())
            ends += [event for event in events if isinstance(event, Finish)]
        part.data["first_token_seconds"] = firsts = [end.stats["ttft_seconds"] for end in ends]
        part.data["seconds"] = totals = [end.stats["total_seconds"] for end in ends]
        part.told = ", ".join(
            f"{name} {' then '.join(f'{seconds:.2f}' for seconds in found)} s"
            for name, found in (("first token", firsts), ("all of it", totals))
        )

    def rows(self, context_tokens: int, part: Section, left: Clock) -> None:
        """Passes of every row count after `context_tokens`, of target and draft."""
        from specdec_cli.engine.timing import ROWS, row_costs

        if context_tokens > max(self._reserve_tokens, SHORT_TOKENS):
            raise LeftOut(f"caches of {context_tokens} tokens do not fit this machine's memory")
        models, notes, seconds = self._models, [], dict[str, dict[int, float]]()
        part.data["context_tokens"] = context_tokens
        for place, (role, model) in enumerate(models):
            if model.context_limit is not None and model.context_limit < context_tokens + ROWS[-1]:
                notes.append(f"{role}: its context holds {model.context_limit} tokens")
                continue
            kept = left() * (1 - 1 / (len(models) - place))  # for the models that follow
            over = partial(_reached, left, kept)
            costs = row_costs(model, context_tokens, ROWS, PASSES, self._clock, over)
            part.data[role] = [asdict(cost) for cost in costs]
            seconds[role] = {cost.rows: cost.total_seconds for cost in costs}
            if len(costs) < len(ROWS) or costs[-1].passes < PASSES:
                notes.append(f"{role}: no time for {PASSES} passes of every row count")
        part.note = "; ".join(notes)
        if not any(seconds.values()):
            raise LeftOut(part.note)
        part.told = tell_rows(seconds.get("target", {}), seconds.get("draft", {}))

    def memory(self, part: Section, left: Clock) -> None:
        """Memory before and after replies of at most 256 tokens, each a conversation of its own."""
        request = Request(REPLY_TOKENS, k=REPLY_K, drafter=self._drafter, sampling={"temperature": 0.0})
        uses = [_memory()]
        for prompt in BUNDLED[:REPLIES]:
            for _ in self.session.reply(self.session.chat_tokens(prompt.text), request, lambda: not left()):
                pass
            uses.append(_memory())
        part.data = {"before": uses[0], "replies": uses[1:]}
        kept = " then ".join(size(use["cache_bytes"]) for use in uses)
        part.told = (
            f"{size(uses[-1]['active_bytes'])} in arrays, peak {size(uses[-1]['peak_bytes'])}; kept buffers {kept}"
        )

    def audit(self, part: Section, left: Clock) -> None:
        """Greedy answers at several K against plain decoding, prompt by prompt: results and gaps, no text."""
        from specdec_cli.audit.audit import AuditPlan, run_audit

        part.data |= {"findings": (findings := list[dict[str, Any]]()), "rounding": []}
        for place, prompt in enumerate(BUNDLED):
            if not left():
                part.note = f"time for {place} of {len(BUNDLED)} prompts"
                break
            plan = AuditPlan([prompt], AUDIT_KS, self._drafter, AUDIT_TOKENS, temperature=0.0)
            found = run_audit(self.session, plan, lambda *_: None).to_dict()
            part.data["near_tie"] = found["near_tie"]
            part.data["rounding"].append(found["rounding"])
            for one in found["findings"]:
                divergence = one.pop("divergence") or {}  # without its tokens
                findings.append(one | {name: divergence.get(name) for name in ("position", "gap", "limit")})
        results = Counter(one["result"] for one in findings)
        part.told = f"{results['diverged']} of {len(findings)} answers diverged, {results['near-tie']} at a near-tie"

    def release(self, part: Section, left: Clock) -> None:
        """The memory of both models is given back: the next sections load the pair again."""
        from specdec_cli.engine.device import clear_cache

        self.session  # noqa: B018 - nothing to release is no measurement
        self._loaded = None
        clear_cache()
        part.data = _memory()
        part.told = f"{size(part.data['active_bytes'])} left"

    def bench(self, part: Section, left: Clock) -> None:
        """A short `specdec bench`: its rows and its sentence, none of its prompts."""
        seconds = int(max(left() - BENCH_LOADING_SECONDS, 10))
        options = ["--json", "-q", "--offline", "--time-budget", f"{seconds}s", "-k", "0-4,8,auto"]
        text = specdec_output(["bench", *pair_options(self._pair), *options], left() + BENCH_LOADING_SECONDS)
        if not text:
            raise LeftOut("bench found no time to end")
        report = json.loads(text)["report"][0]
        part.told = report["verdict"]["told"]
        part.data = {"asked_seconds": seconds, "conclusion": part.told}
        part.data |= {name: report[name] for name in ("rows", "draft_steps", "verify_steps")}

    def selftest(self, part: Section, left: Clock) -> None:
        """`specdec doctor --selftest`, as far as time allows."""
        lines = specdec_output(["doctor", "--selftest", "--json"], left()).split("\n")[:-1]
        outcomes = [json.loads(line) for line in lines]
        part.data = {"outcomes": outcomes}
        part.note = "" if left() else f"stopped by the time budget after {len(outcomes)} results"
        wrong = [one["name"] for one in outcomes if one["status"] not in ("pass", "skipped")]
        passed = sum(one["status"] == "pass" for one in outcomes)
        part.told = f"{passed} of {len(outcomes)} passed, {len(wrong)} wrong{': ' * bool(wrong)}{', '.join(wrong)}"


def sampled_request(drafter: str) -> Request:
    """The sampled reply that is timed twice."""
    return Request(SAMPLED_TOKENS, k=REPLY_K, drafter=drafter, rule=BLOCK.name, seed=0, sampling=SAMPLING)


def report_rows(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(what, value, note) of every line of the report."""
    pair = report["pair"]
    models = f"{pair['target']} with {pair['draft']}" if pair["draft"] else str(pair["target"])
    parts = [(part["name"], part["told"] or part["status"], part["note"]) for part in report["parts"]]
    return [("pair", pair["name"], models), *parts, ("time", f"{report['seconds']:.0f} s", "")]


def _left(clock: Clock, end: float) -> float:
    """Seconds until `end`, 0 after it."""
    return max(end - clock(), 0.0)


def _reached(left: Clock, seconds: float) -> bool:
    return left() <= seconds


def tell_state(state: MachineState, cores: int = 0) -> str:
    """Power, heat and load; a load that slows things down is said of the start alone, where `cores` is given."""
    parts = [f"on {state.power}"] if state.power else []
    parts += ["low power mode, which caps the chip"] if state.low_power_mode else []
    parts += [f"thermal pressure {state.thermal}"] if state.thermal else []
    if state.load is not None:
        busy = f" on {cores} cores before anything ran: times are too long"
        parts.append(f"load {state.load:g}{busy if cores and state.load > BUSY * cores else ''}")
    return ", ".join(parts)


def tell_rows(target: Mapping[int, float], draft: Mapping[int, float]) -> str:
    """One row of the target, and what several rows and a draft step cost in such passes: v(n) and c."""
    if not target.get(1):
        return ""
    step = f", c {draft[1] / target[1]:.2f}" if draft.get(1) else ""
    costs = (f", v({n}) {target[n] / target[1]:.3g}" for n in (2, 4, 8, 16, 32) if n in target)
    return f"{1000 * target[1]:.3g} ms a row{step}{''.join(costs)}"


def specdec_output(arguments: Sequence[str], seconds: float) -> str:
    """What `specdec ARGUMENTS` writes within so many seconds, without the user's settings.

    Raises: RuntimeError with the first line of its stderr if it fails.
    """
    ours = {name: value for name, value in os.environ.items() if name == "SPECDEC_MODELS" or name[:8] != "SPECDEC_"}
    command = [sys.executable, "-m", "specdec_cli", *arguments]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "encoding": "utf-8"}
    try:
        done = subprocess.run(command, timeout=seconds, env=ours, **streams)
    except subprocess.TimeoutExpired as error:
        return bytes(error.stdout or b"").decode(errors="replace")
    if done.returncode not in (0, 1):
        said = next(iter(done.stderr.splitlines()), "")
        raise RuntimeError(f"specdec {arguments[0]} ended with {done.returncode}: {said}")
    return str(done.stdout)


def pair_options(pair: Pair) -> list[str]:
    """The options that name `pair` on a command line."""
    if pair.source != "command line":
        return ["--pair", pair.name]
    pinned = {"--target-revision": pair.target_revision, "--draft-revision": pair.draft_revision}
    return [*pair.options, *(word for option, value in pinned.items() if value for word in (option, value))]


def _memory() -> dict[str, Any]:
    """Bytes that mlx holds."""
    from specdec_cli.engine.device import memory_use

    return memory_use()


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
