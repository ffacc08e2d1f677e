"""The public JSON-Schema-Test-Suite, as the sdist of jsonschema 4.26.0 ships it, judged by our masks.

Left out: `refRemote` and `vocabulary`, which are about schemas from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import Constraint
from specdec_cli.models.grammar import Vocabulary

FOLDER = Path(__file__).parent / "json_schema_suite" / "draft2020-12"
# Spellings of one document that are tried, keys in every order.
MOST = 400


@dataclass
class Counts:
    """Of one keyword's file: schemas enforced and refused, instances right, and the ones that are not."""

    enforced: int = 0
    valid: int = 0
    accepted: int = 0
    invalid: int = 0
    kept_out: int = 0
    reasons: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@cache
def bytes_vocabulary() -> Vocabulary:
    return Vocabulary.of_bytes()


def keywords() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def groups(keyword: str) -> list[dict[str, Any]]:
    return json.loads((FOLDER / f"{keyword}.json").read_text("utf-8"))


@cache
def counts(keyword: str) -> Counts:
    found = Counts()
    for group in groups(keyword):
        constraint = Constraint("schema", json.dumps(group["schema"]))
        try:
            bytes_vocabulary().matcher(constraint)
        except UsageError as error:
            found.reasons.append(error.message)
            continue
        found.enforced += 1
        for test in group["tests"]:
            taken = accepts(constraint, test["data"])
            if test["valid"]:
                found.valid, found.accepted = found.valid + 1, found.accepted + taken
            else:
                found.invalid, found.kept_out = found.invalid + 1, found.kept_out + (not taken)
            if taken is not test["valid"]:
                found.wrong.append(f"{group['description']}: {test['description']}")
    return found


def accepts(constraint: Constraint, document: Any) -> bool:
    """Whether the masks let some spelling of `document` through, and the answer end there."""
    return any(spelled(constraint, text) for text in spellings(document))


def spelled(constraint: Constraint, text: str) -> bool:
    vocabulary = bytes_vocabulary()
    ids = [*text.encode("utf-8", "surrogatepass"), *vocabulary.stop_tokens]
    return vocabulary.matcher(constraint).legal(ids) == len(ids)


def spellings(document: Any) -> Iterator[str]:
    """As json.dumps writes it, with keys in every order, whole floats as integers too, escaped or not."""
    for value in islice(_orders(document), MOST):
        yield from dict.fromkeys([json.dumps(value, ensure_ascii=False), json.dumps(value)])


def _orders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        inner = [list(islice(_orders(part), 24)) for part in value.values()]
        for parts in islice(product(*inner), 48):
            yield from map(dict, islice(permutations(zip(value, parts, strict=True)), 120))
    elif isinstance(value, list):
        yield from map(list, islice(product(*[list(islice(_orders(part), 24)) for part in value]), 120))
    elif isinstance(value, float) and value.is_integer():
        yield from (value, int(value))
    else:
        yield value
