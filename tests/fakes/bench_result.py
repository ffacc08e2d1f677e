"""A whole bench result from a simulated machine: for tests of what is made of a result."""

from __future__ import annotations

from fakes.bench_machine import Simulated, Texts
from fakes.machine import BY_NAME
from specdec_cli.bench.result import BenchResult, BenchSettings, Condition, Contender, Environment
from specdec_cli.bench.sweep import BenchPlan, Sweep
from specdec_cli.machine import MachineState

KINDS = {"code": 0.86, "chat": 0.68, "prose": 0.52, "summary": 0.74, "json": 0.9, "edit": 0.93, "reasoning": 0.71}


def sample_result(
    machine: str = "M4 Pro (mlx 3852)",
    *,
    budget_seconds: float = 240.0,
    contenders: tuple[Contender, ...] = (Contender("model", "mlx-community/Qwen3-0.6B-4bit"),),
    temperatures: tuple[float, ...] = (0.0,),
    kinds: dict[str, float] = KINDS,
    pair: str = "qwen3-8b",
    cancel_after: float = float("inf"),
) -> BenchResult:
    """A bench with made-up models on a machine with published costs."""
    ks = (0, 1, 2, 3, 4, 5, 6, 7, 8, "auto")
    plan = BenchPlan(ks, budget_seconds, seed=3)
    simulated = Simulated(BY_NAME[machine], seed=3, cancel_after=cancel_after)
    conditions = [Condition(contender, temperature) for temperature in temperatures for contender in contenders]
    bench = Sweep(simulated, plan, conditions, Texts(kinds).prompts(8, 1), 2.0)
    bench.run()
    settings = BenchSettings(
        pair=pair,
        named=True,
        target="mlx-community/Qwen3-8B-4bit",
        contenders=contenders,
        ks=ks,
        temperatures=temperatures,
        rule="greedy",
        kinds=tuple(kinds),
        prompts="bundled",
        max_tokens=96,
        ends="natural",
        raw=False,
        budget_seconds=budget_seconds,
        cooldown_seconds=0.0,
        seed=3,
    )
    environment = Environment(
        chip="Apple M4 Pro",
        device="metal",
        system="macOS 26.1",
        memory_bytes=48 * 2**30,
        cores=14,
        dtype="bfloat16",
        caches={"target": ("KVCache",)},
        versions={"specdec": "0.1.0", "mlx": "0.32.0", "mlx-lm": "0.32.2"},
        date="2026-01-31",
        before=MachineState("mains", False, "nominal", 1.4),
        after=MachineState("mains", False, "nominal", 2.2),
    )
    made = tuple(bench.samples), (), tuple(bench.costs)
    return BenchResult(settings, environment, *made, bench.seconds, bench.partial)
