"""`specdec audit`. Law: the table is on stdout whatever was found, and one divergence that is no near-tie exits 1."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import typer

from specdec_cli.command.command import grouped
from specdec_cli.command.load import load_session, specify
from specdec_cli.command.machines import take_part
from specdec_cli.command.options import HostOptions, ModelOptions
from specdec_cli.core.errors import UsageError
from specdec_cli.core.readfile import read_file
from specdec_cli.core.request import effective, parse_k
from specdec_cli.core.textfile import decode_text
from specdec_cli.system.machine import awake

app = typer.Typer()
# (name, text) of eight kinds of text, short enough for every tokenizer and context.
BUNDLED = (
    ("code", "Complete this Python function.\n\ndef read_lines(path):\n    with open(path) as"),
    ("prose", "Go on with this story. Every evening the lighthouse keeper wrote one line in her book, until"),
    ("list", "Name ten things to pack for a week in the mountains.\n\n1. Boots\n2. A map\n3."),
    ("JSON", 'Go on with this JSON.\n\n[{"name": "Ada", "born": 1815}, {"name": "Alan", "born":'),
    ("dialogue", 'Go on with this talk.\n\n"You are late," said the baker.\n"The clock is early," said'),
    ("repetition", "Say it again and again: one fish, two fish, red fish, blue fish, one fish, two fish, red"),
    ("numbers", "Go on: 1 x 7 = 7, 2 x 7 = 14, 3 x 7 = 21, 4 x 7 = 28, 5 x"),
    ("languages", "Übersetze ins Französische und ins 日本語: Guten Morgen, kleiner Fisch! 🐟🌊"),
)


@app.command(epilog="specdec audit\nspecdec audit -p qwen3-8b -k 1,4,auto")
@grouped
def audit(
    *,
    models: ModelOptions,
    machines: HostOptions,
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
    take_part(machines, models.kv_bits)
    from specdec_cli.apps.audit import screen
    from specdec_cli.terminal.display import print_json
    from specdec_cli.terminal.panel.status import StatusLine

    effective({}, {"temperature": temp})
    if gap is not None and not gap >= 0.0:
        raise UsageError(f"--gap {gap} is below 0", "0 counts exact ties only")
    ks = None if k is None else parse_ks(k)
    asked = (temp, seed, raw, gap)
    samples = BUNDLED if prompts is None else read_prompts(prompts)
    spec = specify(models, ks or (), raw=raw, shown=not json)
    longest = max_tokens + max(len(text) for _, text in samples) // 3
    # Three times: mlx-lm's passes of several rows have caches of their own, and some of them read a copy.
    session = load_session(spec, models, reserve_tokens=3 * longest, shown=not json, remember_costs=False)
    from specdec_cli.measure.audit import AuditPlan, AuditPrompt, run_audit

    chosen = tuple(AuditPrompt(*sample) for sample in samples)
    plan = AuditPlan(chosen, ks or (spec.pair.expected_k,), spec.drafter, max_tokens, *asked)
    with awake(), StatusLine(sys.stderr, "auditing", shown=not json) as line:
        group = session.pair.group
        with group.doing(["audit", asdict(plan)]) if group else nullcontext():
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


def read_prompts(file: Path) -> tuple[tuple[str, str], ...]:
    """One prompt a line, named by its line; empty lines are left out.

    Raises: UsageError for a file that is missing, empty or not UTF-8.
    """
    hint = "one prompt a line, in UTF-8; without --prompts eight bundled ones are used"
    try:
        lines = decode_text(read_file(file, piped=True)).split("\n")
    except OSError as error:
        raise UsageError(f"--prompts {file} cannot be read: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--prompts {file} is not UTF-8: byte {error.start}", hint) from error
    prompts = [(f"line {number}", line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UsageError(f"--prompts {file} holds no prompt: {len(lines)} lines, all empty", hint)
    return tuple(prompts)
