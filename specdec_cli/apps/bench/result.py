"""What a bench was asked for, what it measured, and its JSON file (pure). Every figure is derived from this.

Version SCHEMA of the file: one object, seconds as floats, fields may be added, never renamed. Letters: K draft length,
n rows of a target pass. An arm is one way to decode: a contender at one K. K 0 is the baseline, mlx-lm's own plain
decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal, NamedTuple

from specdec_cli.core.kinds import NONE, kind_of
from specdec_cli.core.request import DraftContext
from specdec_cli.measure.prompts import PromptId, SamplePrompt
from specdec_cli.system.machine import MachineState

SCHEMA = 1
# Measured rounds of one kind, at either end of a bench, that are needed to say that its passes became dearer.
FEWEST_COSTS = 3
Length = int | Literal["auto"]
Phase = Literal["confirm", "drift"]


@dataclass(frozen=True, slots=True)
class Contender:
    """Who drafts; `draft` is the draft model's id, None where no model drafts."""

    drafter: str
    draft: str | None = None

    @property
    def name(self) -> str:
        """The draft's short name, else the drafter's; both where a model is only part of the drafter."""
        if self.draft is None:
            return self.drafter
        short = self.draft.rstrip("/").rsplit("/", 1)[-1]
        return short if kind_of(self.drafter).needs_draft else f"{self.drafter} with {short}"


@dataclass(frozen=True, slots=True)
class Condition:
    """A contender at one temperature: what a K is recommended for."""

    contender: Contender
    temperature: float

    def arm(self, k: Length) -> Arm:
        """This contender at K `k`; at K 0 the baseline."""
        return Arm(self.contender if k else Contender(NONE.name), self.temperature, k)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to decode. The baseline has drafter `none` and K 0."""

    contender: Contender
    temperature: float
    k: Length

    @property
    def condition(self) -> Condition:
        return Condition(self.contender, self.temperature)


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer, end to end.

    `decode_seconds` starts after the first round, of `first_tokens`, and excludes the draft's prefill.
    `started_seconds` counts from the start of the bench. `round_draft_seconds` and `round_verify_seconds` are medians
    over the rounds that drafted K tokens, None if there were none.
    """

    arm: Arm
    prompt: PromptId
    phase: Phase
    started_seconds: float
    prompt_tokens: int
    emitted_tokens: int
    target_passes: int
    prefill_seconds: float
    ttft_seconds: float
    decode_seconds: float
    finish: str
    draft_n: int = 0
    draft_n_accepted: int = 0
    rejected_n: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    draft_prefill_seconds: float = 0.0
    peak_memory_bytes: int | None = None
    round_draft_seconds: float | None = None
    round_verify_seconds: float | None = None
    first_tokens: int = 1

    @property
    def timed_tokens(self) -> int:
        return self.emitted_tokens - self.first_tokens

    @property
    def tokens_per_second(self) -> float:
        """Decode only: tokens after the first round / seconds after it."""
        return self.timed_tokens / self.decode_seconds


class RoundCost(NamedTuple):
    """What a round of `k` drafted tokens costs, in plain steps of `plain_seconds` on the same prompt."""

    condition: Condition
    k: int
    draft: float
    verify: float
    plain_seconds: float


def costs(samples: Sequence[Sample]) -> Iterator[RoundCost]:
    """Those of every sample whose rounds drafted a fixed K, over the plain step measured next to it: a machine that
    slows down changes both."""
    plain = {(one.arm, one.prompt): one for one in samples if one.arm.k == 0 and one.phase == "confirm"}
    for one in samples:
        draft, verify, base = one.round_draft_seconds, one.round_verify_seconds, one.arm.condition.arm(0)
        if one.arm.k != "auto" and draft is not None and verify is not None and (base, one.prompt) in plain:
            step = 1 / plain[base, one.prompt].tokens_per_second
            yield RoundCost(one.arm.condition, one.arm.k, draft / step, verify / step, step)


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and the software; `before` and `after` are its state at both ends of the bench."""

    chip: str
    device: str
    system: str
    memory_bytes: int
    cores: int
    dtype: str
    caches: Mapping[str, tuple[str, ...]]
    versions: Mapping[str, str]
    date: str
    before: MachineState = field(default_factory=MachineState)
    after: MachineState = field(default_factory=MachineState)


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What was requested. `ends` is `natural` (a stop token ends an answer) or `fixed` (stop tokens are ruled out).

    Until the bench has begun, `prompts` is the file of the prompts ("": the bundled ones), and `max_tokens` may be 0:
    as many as the budget allows. `draft_context` is in effect, `own_context`: as the pair has it.
    `of_a_pair`: the target is at a commit or under an adapter that only this pair names.
    """

    pair: str
    named: bool
    target: str
    contenders: tuple[Contender, ...]
    ks: tuple[Length, ...]
    temperatures: tuple[float, ...]
    rule: str
    kinds: tuple[str, ...]
    prompts: str
    max_tokens: int
    ends: Literal["natural", "fixed"]
    raw: bool
    budget_seconds: float
    cooldown_seconds: float
    seed: int
    draft_context: DraftContext | None = None
    own_context: bool = True
    of_a_pair: bool = False

    @property
    def conditions(self) -> list[Condition]:
        """Every contender at every temperature, in the order asked for."""
        return [Condition(contender, one) for one in self.temperatures for contender in self.contenders]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Everything measured. `partial`: the bench was interrupted, so there is less than planned; all of it is valid."""

    settings: BenchSettings
    environment: Environment
    samples: tuple[Sample, ...]
    seconds: float
    partial: bool = False
    schema: int = SCHEMA

    @property
    def drift(self) -> float | None:
        """The last baseline's speed against the first's on the same prompt: -0.05 is 5 % slower at the end."""
        last = next((s for s in reversed(self.samples) if s.phase == "drift"), None)
        if last is None:
            return None
        first = next(s for s in self.samples if s.arm == last.arm and s.prompt == last.prompt)
        return last.tokens_per_second / first.tokens_per_second - 1.0

    @property
    def row_drift(self) -> float | None:
        """How much more a pass of several rows costs at the end than at the start, in plain steps: 0.1 is 10 % more.

        A hot machine may verify slower while its plain steps stay as they were. None where too little was measured.
        """
        ratios: dict[tuple[Condition, int], list[float]] = {}
        for cost in costs(self.samples):
            ratios.setdefault((cost.condition, cost.k), []).append(cost.verify)
        thirds = [(found, len(found) // 3) for found in ratios.values() if len(found) // 3 >= FEWEST_COSTS]
        changes = [median(found[-third:]) / median(found[:third]) for found, third in thirds]
        return median(changes) - 1.0 if changes else None


def kinds_of(prompts: Iterable[SamplePrompt | PromptId]) -> tuple[str, ...]:
    """Each kind once."""
    return tuple(dict.fromkeys(prompt.kind for prompt in prompts))


def to_dict(result: BenchResult) -> dict[str, Any]:
    """The JSON object of a bench."""
    return {"specdec": "bench", **asdict(result)}
