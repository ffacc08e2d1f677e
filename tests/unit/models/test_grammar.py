"""Which tokens may come next under a schema, a regular expression or a grammar.

Of schemas the public JSON-Schema-Test-Suite says what is right: its valid documents pass, its invalid ones do not.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import specdec_cli
from conformance.schema_suite import accepts, bytes_vocabulary, counts, groups, keywords, spelled
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.core.request import Constraint
from specdec_cli.models import grammar
from specdec_cli.models.grammar import Vocabulary, require_possible, unenforced
from specdec_cli.models.schema import HINT, unknown_keywords
from tools.schema_table import table

V, STOPS = 2048, frozenset({0, 2})
TOKENIZER = (Path(specdec_cli.__file__).parent / "demo" / "target" / "tokenizer.json").read_text()
PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


@pytest.fixture(scope="module", params=[V + 1, V], ids=["in place", "beside"])
def vocabulary(request):
    """Its masks computed where they are asked for, or in a thread, as those of big vocabularies are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grammar, "LEAST_VOCAB", request.param)
        return Vocabulary.of_model(TOKENIZER, V, STOPS)


@pytest.fixture(scope="module")
def encode():
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(TOKENIZER)
    return lambda text: tokenizer.encode(text).ids


def allowed(rows):
    """bool [K + 1, V]."""
    return np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")[:, :V].astype(bool)


def regex(text):
    return Constraint("regex", text)


def test_what_is_forced_is_legal_and_alone_in_its_rows(vocabulary):
    matcher = vocabulary.matcher(Constraint("schema", PERSON))
    forced = matcher.forced()
    assert matcher.legal(forced) == len(forced) > 2
    rows = allowed(matcher.masks(forced))
    assert all(rows[place][token] for place, token in enumerate(forced))


def test_a_draft_is_legal_up_to_its_first_forbidden_token(vocabulary, encode):
    matcher = vocabulary.matcher(regex("(ab)+"))
    good, bad = encode("ababab"), encode("x")
    assert matcher.legal([*good, *bad, *good]) == len(good)
    assert matcher.legal(bad) == 0


@given(st.lists(st.lists(st.integers(0, V - 1), max_size=4), max_size=5), st.randoms())
@settings(deadline=None, max_examples=12)
def test_rows_do_not_depend_on_what_was_asked_before(vocabulary, encode, drafts, random):
    """Rows are kept from one question to the next: a draft model asks after each of its tokens."""
    text = encode("abc = 12")
    drafts += [text[: random.randint(0, len(text))] for _ in range(6)]
    random.shuffle(drafts)
    matcher = vocabulary.matcher(regex("[a-z]{2,9}( = [0-9]+)?"))
    for place, draft in enumerate(drafts):
        fresh = vocabulary.matcher(regex("[a-z]{2,9}( = [0-9]+)?"))
        if place > 5:
            fresh.advance(text[:2])
        if place == 6:
            matcher.advance(text[:2])
        assert (matcher.masks(draft) == fresh.masks(draft)).all()


def test_a_stop_token_is_legal_where_the_grammar_may_end_and_nowhere_else(vocabulary, encode):
    matcher = vocabulary.matcher(regex("ab?"))
    a, b = encode("a"), encode("b")
    assert not matcher.complete
    assert matcher.legal([2]) == 0
    assert matcher.legal([*a, 2, *b]) == 2
    assert not allowed(matcher.masks([]))[0][[0, 2]].any()
    matcher.advance(a)
    assert matcher.complete and allowed(matcher.masks([]))[0][[0, 2]].all()
    matcher.advance(b)
    assert set(np.flatnonzero(allowed(matcher.masks([]))[0])) == STOPS


def test_after_the_stop_token_nothing_is_judged(vocabulary, encode):
    matcher = vocabulary.matcher(regex("a"))
    rows = allowed(matcher.masks([*encode("a"), 2]))
    assert rows[-1].all() and set(np.flatnonzero(rows[1])) == STOPS
    matcher.advance([*encode("a"), 2])
    assert matcher.forced() == [] and allowed(matcher.masks([])).all()


def wide(branches):
    """A schema of an object that has one of so many keys."""
    keys = [f"k{number}" for number in range(branches)]
    return json.dumps({"anyOf": [{"type": "object", "required": [key], "properties": {key: {}}} for key in keys]})


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("schema", "[1]", "schema"),
        ("schema", '{"type": "foo"}', "Invalid type: foo"),
        ("schema", '{"type": "array", "uniqueItems": true}', "uniqueItems"),
        ("regex", "(?=a)b", "look-around"),
        ("grammar", "start: missing", "missing"),
        (
            "schema",
            '{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}',
            "bytes that are forced",
        ),
        ("regex", r"[^\s\S]", "it allows nothing"),
        ("grammar", 'start: "a" B "c"\nB: /[^\\s\\S]/', "nothing may follow what it forces"),
        ("grammar", 'start: "a" start', "more than 20,000 bytes that are forced"),
        pytest.param(
            *("schema", wide(2100)),
            "at one place 2100 things may follow, by the grammar's count, and 2000 are the most",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.parametrize("known", ["model", "no model"])
def test_what_cannot_be_enforced_is_refused_before_generation_and_before_a_model(vocabulary, known, kind, text, said):
    with pytest.raises(UsageError) as refusal:
        if known == "model":
            vocabulary.matcher(Constraint(kind, text))
        else:
            require_possible(Constraint(kind, text))
    assert said in refusal.value.message and "\n" not in refusal.value.message
    assert refusal.value.hint in ("change it, or leave it out", HINT)


def test_a_stop_string_is_taken_where_no_answer_can_hold_it_and_refused_elsewhere():
    require_possible(Constraint("schema", PERSON), ["\n", "a\x00"])
    for constraint, stop in ((Constraint("schema", PERSON), "}"), (regex("[a-c]+"), "b"), (regex("a"), "\n")):
        with pytest.raises(UsageError):
            require_possible(constraint, [stop])


@pytest.mark.parametrize("text", ["a/b", r"a\/b", "a\\\nb", r"[/\\]x", "é{2}▁"])
def test_a_regular_expression_means_what_python_s_re_says_it_does(vocabulary, encode, text):
    """Slashes and line ends have a meaning of their own where the library reads an expression."""
    found = [
        said
        for said in ("a/b", "a\nb", "/x", "\\x", "\\/", '"a"', "#a//b", "éé▁", "a\\\nb", "ab")
        if re.fullmatch(text, said)
    ]
    assert found
    for said in found:
        matcher = vocabulary.matcher(regex(text))
        assert matcher.legal([*encode(said), 2]) == len(encode(said)) + 1


def test_a_dead_end_further_on_is_an_error_when_it_is_reached(vocabulary, encode):
    matcher = vocabulary.matcher(Constraint("grammar", 'start: ("a" B | "b")\nB: /[^\\s\\S]/'))
    matcher.advance(encode("a"))
    with pytest.raises(SpecdecError, match="cannot be followed any further"):
        matcher.masks([])


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("schema", '{"const": "<|im_start|>"}', '"<|im_start|>"'),
        ("regex", r"a<\|im_start\|>b", "a<|im_start|>b"),
        ("grammar", 'start: "x<|im_start|> y"', "x<|im_start|> y"),
    ],
)
def test_the_text_of_a_special_token_is_spelled_like_any_other(vocabulary, kind, text, said):
    """The library forced the special token, allowed it alone, and then refused it."""
    from tokenizers import Tokenizer

    matcher, tokens = vocabulary.matcher(Constraint(kind, text)), []
    while forced := matcher.forced():
        assert all(allowed(matcher.masks(forced[:1]))[0][forced[0:1]])
        matcher.advance(forced[:1])
        tokens += forced[:1]
    assert matcher.complete and not set(tokens) & {0, 1, 2}
    assert Tokenizer.from_str(TOKENIZER).decode(tokens, skip_special_tokens=False) == said


@pytest.mark.parametrize("special", [True, False])
def test_a_token_that_the_target_has_no_row_for_is_in_no_shape(encode, special):
    """Gemma 3's tokenizer has one token more than its embedding has rows: every shape was refused."""
    values = json.loads(TOKENIZER)
    more = {"id": V, "content": "<image>", "special": special}
    values["added_tokens"].append(values["added_tokens"][0] | more)
    one = Vocabulary.of_model(json.dumps(values), V, STOPS | {V + 5}).matcher(regex("<image>"))
    other = Vocabulary.of_model(TOKENIZER, V, STOPS).matcher(regex("<image>"))
    assert (one.masks(encode("<image>")) == other.masks(encode("<image>"))).all()
    assert one.forced() == other.forced() and max(one.forced()) < V


def test_json_comes_as_json_dumps_writes_it(vocabulary, encode):
    """Where blanks are free, a model that likes them can write nothing else."""
    person = {"name": "ab", "age": 3}
    usual, pretty = encode(json.dumps(person)), encode(json.dumps(person, indent=2))
    matcher = vocabulary.matcher(Constraint("schema", PERSON))
    assert matcher.legal(usual) == len(usual)
    assert matcher.legal(pretty) < 3 and matcher.legal(encode("{ ")) < 2


# The suite


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


@pytest.mark.parametrize("names", [True, {}, {"type": "string"}])
def test_a_schema_of_keys_that_every_key_keeps_is_no_reason_to_refuse(names):
    """zod writes it for each record, and the whole schema was refused."""
    record = {"type": "object", "propertyNames": names, "additionalProperties": {"type": "number"}}
    constraint = Constraint("schema", json.dumps({"properties": {"of": record}}))
    assert accepts(constraint, {"of": {"a": 1.5}}) and not accepts(constraint, {"of": {"a": "b"}})
    with pytest.raises(UsageError, match="propertyNames"):
        bytes_vocabulary().matcher(Constraint("schema", json.dumps({**record, "propertyNames": {"maxLength": 3}})))


DEFINED = {"a": {"type": "string"}, "named": {"type": "null", "$anchor": "here"}}
TOLD_APART = [
    [{"minimum": 1}, {"maximum": 3}],
    [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}],
    [{"$ref": "#/$defs/named"}, {"type": "string"}],
]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        *(({"oneOf": branches, "$defs": DEFINED}, "may fit one document") for branches in TOLD_APART),
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


UNION = {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]}
BIRD = {"type": "object", "properties": {"kind": {"const": "bird"}}, "required": ["kind"]}
OWNER = {"type": "object", "properties": {"kind": {"const": "owner"}, "pet": UNION}, "required": ["kind", "pet"]}


@pytest.mark.parametrize(
    "branches", [[UNION, BIRD], [OWNER, BIRD], [{"$ref": "#/$defs/owner"}, BIRD]], ids=["union", "field", "reference"]
)
def test_a_union_inside_a_branch_of_another_is_enforced_as_one_alone(branches):
    schema = {"oneOf": branches, "$defs": {**TAGGED["$defs"], "owner": OWNER}}
    for document in ({"kind": "cat"}, {"kind": "bird"}, {"kind": "owner", "pet": {"kind": "cat"}}, {"kind": "owner"}):
        valid = Draft202012Validator(schema).is_valid(document)
        assert accepts(Constraint("schema", json.dumps(schema)), document) is valid


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
