"""Writes the table of supported architectures from the conformance suite: python tests/tools/support_table.py"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

DOCUMENT = Path(__file__).parents[2] / "specdec_cli/docs/models.md"
BEGIN = "<!-- support table: python tests/tools/support_table.py -->"
END = "<!-- end of support table -->"
ROLLBACK = {
    "KVCache": "trimmed",
    "WindowKVCache": "sliding window with slack, trimmed",
    "ChunkedKVCache": "trimmed while its chunk is whole",
    "ArraysCache": "state restored, recurrence recomputed",
}
OTHER = "state restored, accepted tokens fed again"


def table(outcomes) -> str:
    """Markdown: cache kinds, how they are rolled back, and the architectures that passed with them."""
    rows = defaultdict(list)
    for outcome in outcomes:
        rows[", ".join(outcome.caches) or outcome.detail].append(outcome)
    lines = ["| caches | rolled back by | architectures |", "|---|---|---|"]
    for kinds, found in sorted(rows.items(), key=lambda row: (row[1][0].status == "refused", -len(row[1]))):
        names = " ".join(f"`{outcome.name}`" for outcome in found)
        rules = "; ".join(ROLLBACK.get(kind, OTHER) for kind in kinds.split(", "))
        lines.append(f"| {kinds} | {'not tested' if found[0].status == 'refused' else rules} | {names} |")
    return "\n".join(lines)


def table_cells(text: str) -> dict[str, list[str]]:
    """Cache kinds -> architectures, read from such a table."""
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    return {row[0].removeprefix("| "): re.findall(r"`([^`]+)`", row[-1]) for row in rows}


def main() -> None:
    os.environ["MLX_ENABLE_TF32"] = "0"
    from conformance.architectures import architectures
    from conformance.suite import Outcome, check
    from specdec_cli.engine.load import UNVERIFIABLE

    outcomes = [check(architecture, k=3, tokens=32) for architecture in architectures().values()]
    outcomes += [Outcome(name, "refused", detail=reason) for name, reason in UNVERIFIABLE.items()]
    wrong = [outcome for outcome in outcomes if outcome.status not in ("pass", "refused")]
    if wrong:
        raise SystemExit(f"not written: {wrong}")
    text = DOCUMENT.read_text("utf-8")
    head, _, rest = text.partition(BEGIN)
    DOCUMENT.write_text(f"{head}{BEGIN}\n\n{table(outcomes)}\n\n{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
