"""Prints the table of JSON Schema keywords for specdec_cli/docs/sampling.md: python tests/tools/schema_table.py"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.schema_suite import Counts, counts, keywords

HEAD = "| keyword | schemas enforced | valid accepted | invalid kept out |\n|---|---|---|---|"


def row(keyword: str, found: Counts) -> str:
    schemas = f"{found.enforced} of {found.enforced + len(found.reasons)}"
    return f"| `{keyword}` | {schemas} | {found.accepted} of {found.valid} | {found.kept_out} of {found.invalid} |"


def table() -> str:
    """Keywords that are enforced in some schema, then a sentence with those that are always refused."""
    found = {keyword: counts(keyword) for keyword in keywords()}
    rows = [row(keyword, one) for keyword, one in found.items() if one.enforced]
    refused = ", ".join(f"`{keyword}`" for keyword, one in found.items() if not one.enforced)
    return "\n".join([HEAD, *rows, "", f"Always refused, by their files in the suite: {refused}."])


if __name__ == "__main__":
    print(table())
