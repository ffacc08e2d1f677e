"""A report as a Mac might give it, every part filled; its figures are made up."""

from __future__ import annotations

MACHINE = {
    "chip": "Apple M4 Pro",
    "backend": "metal",
    "system": "macOS 15.7 24G222",
    "cores": 12,
    "memory_bytes": 48_000_000_000,
    "working_set_bytes": 36_000_000_000,
    "wired_limit_mb": 0,
    "device": {"architecture": "applegpu_g16s"},
    "versions": {"specdec": "0.1.0", "mlx": "0.32.4"},
    "state": {
        "power": "mains", "low_power_mode": False, "thermal": "nominal", "load": 1.5, "power_mode": "automatic",
        "wired_bytes": 5_000_000_000,
    },
}  # fmt: skip
MEMORY = {
    "active_bytes": 5_000_000_000,
    "cache_bytes": 100_000_000,
    "peak_bytes": 6_000_000_000,
    "wired_bytes": 7_000_000_000,
}


def costs(step_seconds):
    """Row costs that grow by a fifth of a step a row, half of each pass in the queueing."""
    found = []
    for rows in (1, 2, 4, 8, 16, 32):
        total = step_seconds * (1 + 0.2 * (rows - 1))
        parts = {"build_seconds": 0.001, "queue_seconds": total / 2, "total_seconds": total}
        found.append({"rows": rows, **parts, "fastest_seconds": 0.9 * total, "passes": 7})
    return found


def finding(prompt, k, result="identical", gap=None):
    place = None if gap is None else 11
    limit = None if gap is None else 0.2
    return {"prompt": prompt, "k": k, "result": result, "tokens_compared": 48, "draft_n": 9, "draft_n_accepted": 5,
            "position": place, "gap": gap, "limit": limit}  # fmt: skip


def bench_row(k, speedup, speed, accepted=None, steps=None):
    rates = {"acceptance_rate": accepted, "mean_acceptance_length": None, "verify_steps": steps}
    ends = {"speedup_low": speedup - 0.1, "speedup_high": speedup + 0.1}
    return {"k": k, "measured": True, "speedup": speedup, "tokens_per_second": speed, **ends, **rates}


def parts():
    kernels, logic = "kernels real models use: 4 bits, head size 128", "rollback logic, float32"
    run = {"rounds": 20, "draft_ms": 25.0, "verify_ms": 7.0, "round_ms": 32.0}
    data = {
        "machine": MACHINE,
        "load": {"seconds": 2.0, "memory_before": {**MEMORY, "active_bytes": 0}, "memory_after": MEMORY},
        "rows at 512": {"context_tokens": 512, "target": costs(0.02), "draft": costs(0.003)},
        "rows at 8192": {},
        "memory": {"before": MEMORY, "replies": [{"tokens": 256, **MEMORY}]},
        "audit": {
            "near_tie": "a gap of at most 0.2",
            "findings": [finding("code", 1), finding("code", 4, "near-tie", 0.125), finding("prose", 1)],
        },
        "memory given back": {**MEMORY, "active_bytes": 8},
        "in flight": {"k": 4, "limited_runs": [run], "unlimited_runs": [{**run, "draft_ms": 12.5, "verify_ms": 19.5}]},
        "bench": {
            "conclusion": "K 4 is best",
            "rows": [bench_row(0, 1.0, 50.0), bench_row(4, 1.8, 90.0, 0.6, 1.3)],
        },
        "self-test": {
            "outcomes": [
                {"name": "qwen3, 4 bits", "status": "pass", "proves": kernels, "detail": "largest change 0.01"},
                {"name": "llama", "status": "pass", "proves": logic, "detail": ""},
                {"name": "olmo", "status": "refused", "proves": logic, "detail": "no package"},
            ]
        },
        "machine after": {**MACHINE["state"], "thermal": "moderate"},
    }  # fmt: skip
    left = {"rows at 8192": ("left out", "caches of 8192 tokens do not fit this machine's memory")}
    return [{"name": name, "status": left.get(name, ("done",))[0], "seconds": 1.5, "data": found,
             "note": left.get(name, ("", ""))[1]} for name, found in data.items()]  # fmt: skip


def report():
    """The JSON object of the report."""
    pair = {"name": "qwen3-8b", "target": "mlx-community/Qwen3-8B-4bit", "draft": "mlx-community/Qwen3-0.6B-4bit"}
    pair |= {"revisions": [None, None]}
    return {"pair": pair, "date": "2026-11-22", "budget_seconds": 300.0, "seconds": 280.0, "parts": parts()}
