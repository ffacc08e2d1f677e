"""Our masks before the public JSON-Schema-Test-Suite: its valid documents pass, its invalid ones do not."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import specdec_cli
from fakes.schema_suite import accepts, bytes_vocabulary, counts, groups, keywords, spelled
from specdec_cli.core.errors import UsageError
from specdec_cli.core.request import Constraint
from specdec_cli.models.grammar import unenforced
from specdec_cli.models.schema import parse, unknown_keywords
from tools.schema_table import table


@pytest.mark.full
@pytest.mark.parametrize("keyword", keywords())
def test_every_document_of_an_enforced_schema_is_judged_as_the_suite_does(keyword):
    """For the suite a format is a remark, which anything may contradict. Here it is enforced."""
    wrong = counts(keyword).wrong
    if keyword == "format":
        assert len(wrong) == 10 and all(one.endswith("is only an annotation by default") for one in wrong)
    else:
        assert wrong == []


@pytest.mark.full
def test_the_document_has_the_counts_of_today():
    page = (Path(specdec_cli.__file__).parent / "docs" / "sampling.md").read_text("utf-8")
    assert table() in page, "python tests/tools/schema_table.py prints the table"


@pytest.mark.parametrize(
    ("schema", "document", "other"),
    [
        ({"properties": {"a": {"type": "integer"}}}, '{"a": 1}', '{"\\u0061": "x"}'),
        ({"patternProperties": {"^é$": {"type": "integer"}}}, '{"é": 1}', '{"\\u00e9": "x"}'),
    ],
)
def test_a_property_cannot_come_under_another_spelling_of_its_name(schema, document, other):
    """llguidance 1.9.1 compares keys as they are spelled, and keys of no declared property may hold anything."""
    constraint = Constraint("schema", json.dumps(schema))
    assert spelled(constraint, document) and not spelled(constraint, other)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"const": "a\x00b"}, r"control character \u0000"),
        ({"properties": {"\x7f": {}}}, r"control character \u007f"),
        ({"minProperties": 2}, "minProperties 2"),
        ({"properties": {"a": {"minProperties": 3}}, "required": ["a"]}, "minProperties 3"),
    ],
)
def test_what_the_library_would_let_through_is_refused(schema, said):
    """It writes `const` without the control character, and takes {"b": 1, "b": 2} for two properties."""
    with pytest.raises(UsageError) as refusal:
        bytes_vocabulary().matcher(Constraint("schema", json.dumps(schema)))
    assert said in refusal.value.message


TAGGED = {
    "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
    "discriminator": {"propertyName": "kind"},
    "$defs": {
        "cat": {
            "type": "object",
            "properties": {"kind": {"const": "cat"}, "kitten": {"anyOf": [{"$ref": "#/$defs/cat"}, {"type": "null"}]}},
            "required": ["kind"],
            "additionalProperties": False,
        },
        "dog": {
            "type": "object",
            "properties": {"kind": {"const": "dog"}, "friend": {"$ref": "#"}},
            "required": ["kind"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "cat"},
        {"kind": "cat", "kitten": {"kind": "cat", "kitten": None}},
        {"kind": "dog", "kitten": None},
        {},
        {"kind": "cat", "kitten": {"kind": "dog"}},
    ],
)
def test_one_of_several_tagged_definitions_is_enforced_as_pydantic_writes_it(document):
    """The library tells branches apart by type, const and enum, and not through references."""
    valid = Draft202012Validator(TAGGED).is_valid(document)
    assert accepts(Constraint("schema", json.dumps(TAGGED)), document) is valid
    assert unenforced(Constraint("schema", json.dumps(TAGGED))) == ()


@pytest.mark.parametrize(
    ("branches", "said"),
    [
        ([{"minimum": 1}, {"maximum": 3}], "may fit one document"),
        ([{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "may fit one document"),
        ([{"$ref": "#/$defs/named"}, {"type": "string"}], "may fit one document"),
    ],
)
def test_branches_that_cannot_be_told_apart_are_refused(branches, said):
    definitions = {"a": {"type": "string"}, "named": {"type": "null", "$anchor": "here"}}
    with pytest.raises(UsageError) as refusal:
        bytes_vocabulary().matcher(Constraint("schema", json.dumps({"oneOf": branches, "$defs": definitions})))
    assert said in refusal.value.message


@pytest.mark.full
@pytest.mark.parametrize("change", [{"maxLength": 0, "maxItems": 0}, {"type": ["object", "null"]}])
def test_control_a_mask_that_is_too_narrow_or_too_wide_is_found(monkeypatch, change):
    def judged(alter):
        wrong = 0
        for group in groups("type") + groups("properties"):
            constraint = Constraint("schema", json.dumps(alter(group["schema"])))
            wrong += sum(accepts(constraint, test["data"]) is not test["valid"] for test in group["tests"])
        return wrong

    assert judged(dict) == 0
    assert judged(lambda schema: schema | change) > 0
    assert judged(lambda schema: {}) > 0


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
