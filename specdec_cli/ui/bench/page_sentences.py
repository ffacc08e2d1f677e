"""The words around the figures of the bench's page (pure). Law: every term on the page is defined on the page."""

from __future__ import annotations

from typing import Final

from specdec_cli.bench import sentences
from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.bench.result import BenchResult
from specdec_cli.bench.rows import Row
from specdec_cli.format import percent, size

HEADINGS: Final = (
    "K",
    "speed-up",
    "95 %",
    "",
    "tokens/s",
    "accepted",
    "of judged",
    "tokens per pass",
    "draft share",
    "v(K + 1)",
    "first token",
    "peak memory",
)
TERMS: Final = (
    ("K", "draft length: tokens drafted a round; K 0 is plain decoding by mlx-lm, the baseline of every speed-up."),
    ("speed-up", "tokens a second ÷ the baseline's, prompt by prompt; the mean of their logarithms, as a ratio."),
    ("interval", "95 %, Student's t over prompts: where the mean of more such prompts is likely to lie."),
    ("too few", f"seen on fewer than {FEWEST_PROMPTS} prompts, so that there is no interval (cross)."),
    ("accepted", "accepted ÷ drafted tokens. Of judged: accepted ÷ (accepted + rejected), the draft accuracy a."),
    ("tokens per pass", "emitted tokens ÷ target passes: 1 when nothing is accepted, K + 1 when everything is."),
    ("draft share", "the draft's part of a round's time."),
    ("c, v(n)", "a draft step, and a target pass over n rows, in plain steps: one token by plain decoding."),
    ("S(K)", "(1 + a + … + a^K) ÷ (K·c + v(K + 1)): predicted speed-up if each token is accepted with probability a."),
)


def title(result: BenchResult) -> str:
    return f"{result.settings.pair} on {result.environment.chip}"


def subtitle(result: BenchResult) -> str:
    """What was measured on what, and when."""
    prompts = len({sample.prompt for sample in result.samples})
    kinds = ", ".join(dict.fromkeys(sample.prompt.kind for sample in result.samples))
    date = result.environment.date[:16].replace("T", " ")
    return f"target {result.settings.target} · {date} · {prompts} prompts: {kinds}"


def warnings(result: BenchResult) -> list[str]:
    """Warnings that a reader needs before the numbers."""
    return ["Interrupted: these numbers are valid, but fewer than planned."] if result.partial else []


def facts(result: BenchResult) -> list[tuple[str, str]]:
    """The machine, the software and the settings."""
    settings, machine = result.settings, result.environment
    ends = "natural, by a stop token" if settings.ends == "natural" else "fixed, stop tokens ruled out"
    memory = f"{machine.memory_bytes / 2**30:.0f} GiB"
    return [
        ("machine", f"{machine.chip}, {memory}, {machine.cores} cores, {machine.system}"),
        ("state", sentences.surroundings(result) or "not known"),
        ("computed on", f"{machine.device}, {machine.dtype}"),
        ("software", ", ".join(f"{name} {number}" for name, number in machine.versions.items())),
        ("sampling", f"rule {settings.rule}, seed {settings.seed}"),
        ("prompts", settings.prompts),
        ("answers", f"{len(result.samples)} of at most {settings.max_tokens} tokens; ends {ends}"),
        ("time", f"{result.seconds:.0f} s of {settings.budget_seconds:.0f} s allowed"),
        ("recommended", sentences.rule()),
    ]


def cells(row: Row) -> list[str]:
    """One row of the table, under `HEADINGS`."""
    pace = row.tokens_per_second
    return [
        str(row.k),
        "–" if row.speedup is None else f"{row.speedup.mean:.2f}×",
        _spread(row.speedup) if row.k != 0 else "",
        row.source,
        "–" if pace is None else f"{pace.mean:.1f}",
        percent(row.acceptance_rate),
        percent(row.judged_rate),
        "–" if row.mean_acceptance_length is None else f"{row.mean_acceptance_length:.2f}",
        percent(row.draft_share),
        "–" if row.verify_steps is None else f"{row.verify_steps:.2f}",
        "–" if row.ttft_seconds is None else f"{row.ttft_seconds:.2f} s",
        size(row.peak_memory_bytes),
    ]


def _spread(interval: Interval | None) -> str:
    """1.61–1.84; a dash where too few prompts give no interval."""
    if interval is None or interval.prompts < FEWEST_PROMPTS:
        return "–"
    return f"{interval.low:.2f}–{interval.high:.2f}"
