"""`specdec audit`. Law: the table is on stdout whatever was found, and one divergence that is no near-tie exits 1."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from specdec_cli.cli import options
from specdec_cli.cli.pipes import quietly
from specdec_cli.errors import UsageError
from specdec_cli.request import DEFAULT_K, MAX_K, effective, parse_k

app = typer.Typer()

Ks = Annotated[
    str | None,
    typer.Option(
        "--num-draft-tokens",
        "-k",
        metavar="N|auto,…",
        envvar="SPECDEC_K",
        show_envvar=False,
        help=f"Tokens drafted per round, 0 to {MAX_K}, or auto; several, as in 1,4, are compared one by one.",
        show_default=f"the pair's, else {DEFAULT_K}",
    ),
]
Temp = Annotated[float, typer.Option(metavar="T", help="Temperature of the coupled answers; 0 leaves them out.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the coupled answers.")]
Prompts = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Your own prompts, one a line.", show_default="eight bundled ones")
]
Gap = Annotated[
    float | None,
    typer.Option(
        metavar="X", help="Largest gap that counts as a near-tie.", show_default="from the precision and the logits"
    ),
]


@app.command()
@quietly
def audit(
    pair: options.PairName = None,
    target: options.Target = None,
    draft: options.DraftModel = None,
    k: Ks = None,
    max_tokens: options.MaxTokens = 64,
    temp: Temp = 0.8,
    seed: Seed = 0,
    prompts: Prompts = None,
    raw: options.Raw = False,
    gap: Gap = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    drafter: options.DrafterName = None,
    target_revision: options.TargetRevision = None,
    draft_revision: options.DraftRevision = None,
    kv_bits: options.KvBits = None,
    offline: options.Offline = False,
    force: options.Force = False,
) -> None:
    """Is this pair lossless on this machine? Every answer is compared with mlx-lm's own plain decoding."""
    from specdec_cli.audit.prompts import BUNDLED, read_prompts
    from specdec_cli.pairs.resolve import resolve_pair
    from specdec_cli.ui.audit import print_audit
    from specdec_cli.ui.display import counting, loading
    from specdec_cli.ui.pairs import print_json, print_line

    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    effective({}, {"temperature": temp})
    if gap is not None and not gap >= 0.0:
        raise UsageError(f"--gap {gap} is below 0", "0 counts exact ties only")
    ks = None if k is None else parse_ks(k)
    samples = BUNDLED if prompts is None else read_prompts(prompts)
    if ks and not any(ks):
        drafter = "none"  # no need to load a draft
    resolved = resolve_pair(pair, target, draft, target_revision, draft_revision, here=drafter != "none")
    drafter = drafter or resolved.drafter
    if resolved.reason:
        print_line(sys.stderr, resolved.reason)
    with loading(sys.stderr, resolved.pair.name, shown=True):
        from specdec_cli.audit.audit import AuditPlan, run_audit
        from specdec_cli.session.load import load

        # Twice: plain decoding has caches of its own.
        room = None if force else 2 * (max_tokens + max(len(sample.text) for sample in samples) // 3)
        session = load(resolved.pair, drafter=drafter, reserve_tokens=room, kv_bits=kv_bits).session()
    plan = AuditPlan(samples, ks or (resolved.pair.expected_k,), drafter, max_tokens, temp, seed, raw, gap)
    with counting(sys.stderr) as report:
        found = run_audit(session, plan, report)
    if json:
        print_json(sys.stdout, found.to_dict())
    else:
        print_audit(sys.stdout, found)
    found.require_lossless()


def parse_ks(text: str) -> tuple[int | Literal["auto"], ...]:
    """`1,4,auto` as (1, 4, "auto"), each once.

    Raises: UsageError for anything but `auto` and numbers in bounds.
    """
    return tuple(dict.fromkeys(k for part in text.split(",") if (k := parse_k(part.strip())) is not None))
