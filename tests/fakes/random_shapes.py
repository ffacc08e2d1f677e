"""Random schemas and regular expressions. Small ones, so that a random model comes to their end."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

NAMES = ["a", "name", "x-y", "é", "a b", 'q"', "日本", "", "$ref", "type", "<|im_start|>"]
# What the library does not enforce: a schema with one of these must be refused.
REFUSED: list[dict[str, Any]] = [
    {"uniqueItems": True},
    {"not": {"type": "null"}},
    {"contains": {"type": "string"}},
    {"if": {"type": "string"}, "then": {"maxLength": 2}},
    {"dependentRequired": {"a": ["b"]}},
    {"propertyNames": {"maxLength": 2}},
    {"format": "idn-email"},
    {"unevaluatedProperties": False},
]


# Both hold themselves; the second one without a way out.
NODE = {"type": ["object", "null"], "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}
LOOP = {"type": "object", "properties": {"next": {"$ref": "#/$defs/loop"}}, "required": ["next"]}
DEFINED = {"node": NODE | {"additionalProperties": False}, "loop": LOOP | {"additionalProperties": False}}


def random_schema(rng: Random) -> dict[str, Any]:
    """A schema of up to three levels; its strings, lists and numbers have bounds."""
    return _schema(rng, 2) | {"$defs": DEFINED}


def _schema(rng: Random, depth: int) -> dict[str, Any]:
    kinds: list[Callable[[Random, int], dict[str, Any]]] = [_string, _integer, _number, _fixed, _const]
    if depth:
        kinds += [_object, _object, _object, _array, _array, _any_of, _all_of, _referred]
    made = rng.choice(kinds)(rng, depth)
    if rng.random() < 0.03:
        made |= rng.choice(REFUSED)
    if rng.random() < 0.1:
        made["description"] = 'anything, \\ " { at all'
    return made


def _string(rng: Random, _: int) -> dict[str, Any]:
    least = rng.choice([0, 0, 1, 3])
    bounded: dict[str, Any] = {"type": "string", "minLength": least, "maxLength": least + rng.randrange(5)}
    patterned = {"type": "string", "pattern": f"^{random_regex(rng)[0]}$"}
    return rng.choice([bounded, bounded, patterned, {"type": "string", "format": rng.choice(["date", "uuid", "ipv4"])}])


def _integer(rng: Random, _: int) -> dict[str, Any]:
    low = rng.randrange(-120, 120)
    bounds = {rng.choice(["minimum", "exclusiveMinimum"]): low, rng.choice(["maximum", "exclusiveMaximum"]): low + 90}
    return {"type": "integer", **bounds, **({"multipleOf": rng.choice([2, 5, 7])} if rng.random() < 0.3 else {})}


def _number(rng: Random, _: int) -> dict[str, Any]:
    low = rng.choice([-5.5, 0, 0.25, 3])
    return {"type": rng.choice(["number", ["number", "null"]]), "minimum": low, "maximum": low + rng.choice([1, 7.5])}


def _fixed(rng: Random, _: int) -> dict[str, Any]:
    return {"type": rng.choice(["boolean", "null", ["boolean", "null"]])}


def _const(rng: Random, _: int) -> dict[str, Any]:
    values = [1, -2.5, "a", 'b"\\\n', None, True, [1, {"a": []}], {"k": "日本"}, "", "<|im_end|>"]
    return {"const": rng.choice(values)} if rng.random() < 0.5 else {"enum": rng.sample(values, rng.randint(1, 4))}


def _object(rng: Random, depth: int) -> dict[str, Any]:
    names = rng.sample(NAMES, rng.randint(0, 3))
    made: dict[str, Any] = {"type": "object", "properties": {name: _schema(rng, depth - 1) for name in names}}
    made["required"] = [name for name in names if rng.random() < 0.7]
    if rng.random() < 0.8:
        made["additionalProperties"] = False
    elif rng.random() < 0.5:
        made |= {"additionalProperties": _schema(rng, 0), "maxProperties": len(names) + 1}
        made["required"] = names
    return made


def _array(rng: Random, depth: int) -> dict[str, Any]:
    first = [_schema(rng, depth - 1) for _ in range(rng.choice([0, 0, 1, 2]))]
    least = rng.randrange(3)
    made = {"type": "array", "items": _schema(rng, depth - 1), "minItems": least, "maxItems": least + 2}
    return made | ({"prefixItems": first} if first else {})


def _any_of(rng: Random, depth: int) -> dict[str, Any]:
    return {rng.choice(["anyOf", "anyOf", "oneOf"]): [_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}


def _all_of(rng: Random, depth: int) -> dict[str, Any]:
    low = rng.randrange(9)
    return {"allOf": [{"type": "integer", "minimum": low}, {"maximum": low + rng.choice([-1, 20])}]}


def _referred(rng: Random, _: int) -> dict[str, Any]:
    """To itself, with a way out or without one."""
    return {"$ref": f"#/$defs/{'loop' if rng.random() < 0.2 else 'node'}"}


Sample = Callable[[Random], str]


def random_regex(rng: Random, depth: int = 2) -> tuple[str, Sample]:
    """(an expression, a source of texts that it matches as a whole)."""
    if not depth or rng.random() < 0.3:
        return _atom(rng)
    parts = [random_regex(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.4:
        text = f"({'|'.join(part for part, _ in parts)})"
        return text, lambda source: source.choice(parts)[1](source)
    text, sample = f"({''.join(part for part, _ in parts)})", lambda source: "".join(one(source) for _, one in parts)
    low = rng.randrange(3)
    counted = f"{{{low},{low + 2}}}"
    sign, least, most = rng.choice([("?", 0, 1), ("*", 0, 3), ("+", 1, 3), (counted, low, low + 2), ("", 1, 1)])
    return text + sign, lambda source: "".join(sample(source) for _ in range(source.randint(least, most)))


def _atom(rng: Random) -> tuple[str, Sample]:
    if rng.random() < 0.5:
        letter = rng.choice(["a", "b", "é", "日", " ", "/", '"', ".", "\\", "#", "{", "-", "\n"])
        return re.escape(letter).replace("\\\n", "\\n"), lambda _: letter
    classes = [("[a-e]", "abcde"), ("[0-9_]", "0123456789_"), ("[^a-y]", "z!é\n"), (".", "aé/"), (r"[\]\-x]", "]-x")]
    text, letters = rng.choice(classes)
    return text, lambda source: source.choice(letters)
