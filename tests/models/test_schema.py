"""JSON schemas, as far as their grammar does not tell."""

import pytest

from specdec_cli.errors import UsageError
from specdec_cli.models.schema import parse, unknown_keywords


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
