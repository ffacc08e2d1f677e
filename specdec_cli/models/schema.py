"""JSON schemas, as far as their grammar does not tell (pure): spelled as the library reads them, unknown words found.

A keyword that no draft knows holds nothing, and a misspelt one looks just like it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import UsageError

HINT = 'for example: \'{"type": "object", "properties": {"name": {"type": "string"}}}\''
# By what a keyword holds: a schema, a list of them, or a table of them.
ONE = (
    *("additionalProperties", "items", "additionalItems", "contains", "not", "if", "then", "else", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies")
ASSERTED = (
    *("type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
    *("maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains"),
    *("maxProperties", "minProperties", "required", "dependentRequired", "format", "$ref", "$dynamicRef"),
)
ANNOTATIONS = (
    *("title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples", "example"),
    *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$vocabulary", "$comment", "contentEncoding"),
    *("contentMediaType", "discriminator", "x-guidance"),
)
KNOWN = frozenset({*ONE, *LISTED, *NAMED, *ASSERTED, *ANNOTATIONS})
# As JSON writes them; those with a letter of their own are \n, \t and the like.
UNSPELLABLE = re.compile(r"(?<!\\)(?:\\\\)*(\\u00[01][0-9a-f]|\\u007f)")
COUNTS = {"maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"}
# What every key of an object is; the library knows no schemas of keys.
ANY_NAME: tuple[object, ...] = (True, {}, {"type": "string"})
# What names a place in a schema: a copy of it would be a second place of that name.
NAMES = {"$id", "id", "$anchor", "$dynamicAnchor"}
# References to references, as far as they are followed: they may turn in a circle.
MOST_STEPS = 32
# Branches that are copied: a union may hold itself.
MOST_COPIES = 256
Schema = Mapping[str, Any]


def parse(text: str) -> dict[str, Any]:
    """The schema in `text`, in the library's spelling. Raises: UsageError for what is no JSON object."""
    try:
        return _spell(jsonfile.parse_object(text))
    except jsonfile.NotJson as error:
        raise UsageError(f"the schema cannot be read: {error}", HINT) from error
    except RecursionError as error:
        raise UsageError("the schema cannot be read: something in it is nested too deeply", HINT) from error


def _spell(schema: dict[str, Any]) -> dict[str, Any]:
    asked, copies = deepcopy(schema), 0
    for part in _parts(schema):  # of what is copied here, too
        if part.get("propertyNames") in ANY_NAME:
            del part["propertyNames"]
        for word in COUNTS & part.keys():  # 2.0 is a whole number here, and the library takes 2 alone
            if isinstance(part[word], float) and part[word].is_integer():
                part[word] = int(part[word])
        if copies < MOST_COPIES and isinstance(branches := part.get("oneOf"), list):
            # The library cannot tell two references apart.
            part["oneOf"] = [deepcopy(_resolve(asked, branch)) for branch in branches]
            copies += len(branches)
    return schema


def _resolve(root: Schema, branch: Any) -> Any:
    """What `branch` stands for where it is a reference and nothing else; itself otherwise."""
    for _ in range(MOST_STEPS):
        if not isinstance(branch, dict) or list(branch) != ["$ref"]:
            return branch
        referred = _follow(root, branch["$ref"])
        if not isinstance(referred, dict) or any(NAMES & part.keys() for part in _parts(referred)):
            return branch
        branch = referred
    return branch


def unknown_keywords(schema: Schema) -> tuple[str, ...]:
    """Keywords that no draft of JSON Schema knows, each once; one that begins with `x-` says so itself."""
    found = (word for part in _parts(schema) for word in part if word not in KNOWN and not word.startswith("x-"))
    return tuple(dict.fromkeys(found))


def unenforceable(schema: Schema) -> str:
    """What of a schema its grammar would not hold, though it can be made; empty where there is nothing.

    Two of the keys that it does not require may be the same, and control characters without a letter have no spelling.
    """
    for part in _parts(schema):
        least = part.get("minProperties", 0)
        if isinstance(least, int | float) and least > len(_list(part, "required")) + 1:
            return f"minProperties {least:g} counts keys, and keys that are not required may repeat"
        said = json.dumps([*(part.get(word) for word in ("const", "enum", "required")), *part.get("properties", ())])
        if found := UNSPELLABLE.search(said):
            return f"the control character {found[1]} has no spelling in an answer"
    return ""


def _list(part: Schema, word: str) -> list[Any]:
    value = part.get(word)
    return value if isinstance(value, list) else []


def _follow(root: Schema, reference: Any) -> Any:
    """What a reference inside the schema names; None for any other."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    value: Any = root
    for step in reference.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and every schema inside it."""
    waiting = [schema]
    while waiting:
        part = waiting.pop(0)
        if not isinstance(part, dict):
            continue
        yield part
        waiting += [part[word] for word in ONE if word in part]
        waiting += [inner for word in LISTED for inner in _list(part, word)]
        tables = (part[word] for word in NAMED if isinstance(part.get(word), dict))
        waiting += [inner for table in tables for inner in table.values()]
