"""Prints the table of JSON Schema keywords for specdec_cli/docs/sampling.md: python tests/tools/schema_table.py"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.schema_suite import Counts, counts, keywords

HEAD = "| keyword | schemas enforced | valid accepted | invalid kept out |\n|---|---|---|---|"


def row(keyword: str, found: Counts) -> str:
    schemas = f"{found.enforced}/{found.enforced + len(found.reasons)}"
    return f"| `{keyword}` | {schemas} | {found.accepted}/{found.valid} | {found.kept_out}/{found.invalid} |"


def whole(found: Counts) -> bool:
    """Whether every schema is enforced, and every document judged right."""
    return not found.reasons and (found.accepted, found.kept_out) == (found.valid, found.invalid)


def table() -> str:
    """Keywords that are enforced in part, then those that are enforced wholly and those that are always refused."""
    found = {keyword: counts(keyword) for keyword in keywords()}
    held = {keyword: one for keyword, one in found.items() if one.enforced and whole(one)}
    rows = [row(keyword, one) for keyword, one in found.items() if one.enforced and keyword not in held]
    schemas, documents = (
        sum(each) for each in zip(*((one.enforced, one.valid + one.invalid) for one in held.values()), strict=True)
    )
    judged = f"{schemas} schemas, {documents} documents"
    refused = [keyword for keyword, one in found.items() if not one.enforced]
    lines = [f"Enforced in every schema, every document judged right ({judged}): {listed(held)}."]
    lines += ["", f"Always refused, by their files in the suite: {listed(refused)}."]
    return "\n".join([HEAD, *rows, "", *lines])


def listed(keywords: Iterable[str]) -> str:
    return ", ".join(f"`{keyword}`" for keyword in keywords)


if __name__ == "__main__":
    print(table())
