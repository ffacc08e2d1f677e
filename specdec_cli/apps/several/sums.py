"""What the ranks' all-reduces take, by size, and what that means for K."""

from __future__ import annotations

from statistics import median

from specdec_cli.core.format import size
from specdec_cli.core.gain import expected_tokens
from specdec_cli.engine.group import backend, joined
from specdec_cli.session.several import Task

# What is summed for one row of a pass, and how often in a pass: a target of some 30 billion parameters.
ROW_BYTES, SUMS, DRAFTED = 10_240, 2 * 64, 4
SUM_BYTES = (1_000, ROW_BYTES, (DRAFTED + 1) * ROW_BYTES, 1_000_000)


def measured() -> list[tuple[str, str, str]]:
    """Rows of a table, as rank 0 measures them with all others."""
    group = joined()
    assert group is not None
    found, medians = [("ranks", str(group.size), f"over {backend()}")], []
    for n in SUM_BYTES:
        with group.doing(Task("sum", numbers=n // 4)):
            seconds = sorted(group.seconds(n // 4))
        medians.append(median(seconds))
        slowest = f"9 of 10 within {seconds[len(seconds) * 9 // 10] * 1e6:.0f} µs"
        pace = f"{n / medians[-1] / 1e6:.0f} MB/s"
        found.append((f"all-reduce of {size(n)}", f"{medians[-1] * 1e6:.0f} µs", f"{slowest}, {pace}"))
    plain, drafted = (SUMS * 1e3 * seconds for seconds in medians[1:3])
    tokens = expected_tokens([0.75] * DRAFTED)[-1]
    waits = f"a token for the {SUMS} sums of 64 layers"
    found.append(("at K 0", f"{plain:.1f} ms", waits))
    found.append((f"at K {DRAFTED}", f"{drafted / tokens:.1f} ms", f"{waits}, where 3 of 4 drafted ones are accepted"))
    return found
