"""JSON schemas, as far as their grammar does not tell."""

import pytest

from specdec_cli.errors import UsageError
from specdec_cli.models.schema import has_finite_instance, parse, unknown_keywords

REQUIRED = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["a"]},
        {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "items": {"$ref": "#"}, "prefixItems": [{"type": "null"}], "minItems": 1},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}},
        {"const": {"a": 1}, "$defs": {"x": {"$ref": "#/$defs/x"}}},
        {"type": "object", "properties": {"a": True, "b": {}}, "required": ["a", "b", "c"]},
    ],
)
def test_a_schema_with_an_instance_that_ends(schema):
    assert has_finite_instance(schema)


@pytest.mark.parametrize(
    "schema",
    [
        REQUIRED,
        {"$ref": "#"},
        {"allOf": [REQUIRED | {"properties": {"a": {"$ref": "#"}}}]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "array", "prefixItems": [{}, {"$ref": "#"}], "minItems": 2},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "required": ["a"], "$defs": {"b": REQUIRED}},
    ],
)
def test_a_schema_whose_every_instance_holds_another(schema):
    assert not has_finite_instance(schema)


def test_unknown_keywords_are_found_in_every_part_and_names_of_properties_are_none():
    schema = {
        "type": "object",
        "title": "x",
        "x-order": 1,
        "maxLenght": 3,
        "properties": {"colour": {"type": "string", "nullable": True}, "maxLenght": {}},
        "anyOf": [{"nullable": 1}, {"items": {"itmes": {}}}],
        "const": {"frob": 1},
    }
    assert unknown_keywords(schema) == ("maxLenght", "nullable", "itmes")


def test_a_schema_that_is_nested_too_deeply_is_refused_in_words():
    """A request with one was a 500."""
    schema = '{"properties": {"a": ' * 300 + "{}" + "}}" * 300
    with pytest.raises(UsageError, match="the schema cannot be read: something in it is nested too deeply"):
        parse(schema)
