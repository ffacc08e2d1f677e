"""`specdec audit`. Law: the table is on stdout whatever was found, and one divergence that is no near-tie exits 1."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import typer

from specdec_cli.command.command import grouped
from specdec_cli.command.load import load_session, specify
from specdec_cli.command.machines import take_part
from specdec_cli.command.options import ModelOptions
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import effective, parse_k
from specdec_cli.system.machine import awake

app = typer.Typer()


@app.command(epilog="specdec audit\nspecdec audit -p qwen3-8b -k 1,4,auto")
@grouped
def audit(
    *,
    models: ModelOptions,
    hosts: str | None = None,
    k: str | None = None,
    max_tokens: int = 64,
    temp: float = 0.8,
    seed: int = 0,
    prompts: Path | None = None,
    raw: bool = False,
    gap: float | None = None,
    json: bool = False,
) -> None:
    """Is this pair lossless here? Measure it.

    Every answer is compared with mlx-lm's own. Then the same texts are read in passes of several rows, to measure what
    rounding can do to near-ties here.
    """
    take_part(hosts, models.kv_bits)
    from specdec_cli.apps.audit import screen
    from specdec_cli.measure.prompts import bundled, from_file
    from specdec_cli.terminal.display import print_json
    from specdec_cli.terminal.panel.status import StatusLine

    effective({}, {"temperature": temp}, "--")
    if gap is not None and not gap >= 0.0:
        raise UsageError(f"--gap {gap} is below 0", "0 counts exact ties only")
    ks = None if k is None else parse_ks(k)
    asked = (temp, seed, raw, gap)
    samples = bundled("audit") if prompts is None else from_file(prompts)
    spec = specify(models, ks or (), raw=raw, shown=not json)
    longest = max_tokens + max(len(sample.text) for sample in samples) // 3
    # Three times: mlx-lm's passes of several rows have caches of their own, and some of them read a copy.
    reserve_tokens, without = 3 * longest, ["--max-context"]
    session = load_session(
        spec, models, reserve_tokens=reserve_tokens, shown=not json, remember_costs=False, without=without
    )
    from specdec_cli.measure.audit import AuditPlan, run_audit
    from specdec_cli.session.several import auditing

    plan = AuditPlan(samples, ks or (spec.pair.expected_k,), spec.drafter, max_tokens, *asked)
    with awake(), StatusLine(sys.stderr, "auditing", shown=not json) as line, auditing(session, asdict(plan)):
        result = run_audit(session, plan, line.count)
    if json:
        print_json(sys.stdout, result.to_dict())
    else:
        screen.print_audit(sys.stdout, result)
    result.require_lossless()


def parse_ks(text: str) -> tuple[int | Literal["auto"], ...]:
    """`1,4,auto` as (1, 4, "auto"), each once.

    Raises: UsageError for anything but `auto` and numbers in bounds.
    """
    return tuple(dict.fromkeys(k for part in text.split(",") if (k := parse_k(part.strip())) is not None))
