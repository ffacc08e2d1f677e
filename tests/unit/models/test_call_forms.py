"""90: calls as Llama 3, Gemma 3 and gpt-oss write them; the texts are their vendors' own examples."""

import json

import pytest
from llguidance import LLMatcher, LLTokenizer

from specdec_cli.models.call_forms import BareCalls, HarmonyCalls, form_of
from specdec_cli.models.tool_calls import Mark, ToolCall

SCHEMA = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
    for name in ("get_current_weather", "get_weather", "trending_songs", "get_product_name_by_PID")
]
BARE, HARMONY = BareCalls(), HarmonyCalls()
# Meta's prompt formats of 3.1 and 3.2, Google's function calling with Gemma, OpenAI's cookbook on harmony.
SAID = {
    "llama json": (
        BARE,
        '{"name": "get_current_weather", "parameters": {"location": "San Francisco, CA"}}',
        [ToolCall("get_current_weather", {"location": "San Francisco, CA"})],
    ),
    "llama with its tag": (
        BARE,
        '<|python_tag|>{"name": "trending_songs", "parameters": {"n": "10", "genre": "all"}}',
        [ToolCall("trending_songs", {"n": "10", "genre": "all"})],
    ),
    "llama several": (
        BARE,
        '{"name": "get_weather", "parameters": {"location": "a"}}; {"name": "get_weather", "parameters": {}}',
        [ToolCall("get_weather", {"location": "a"}), ToolCall("get_weather", {})],
    ),
    "llama as code": (
        BARE,
        "[get_weather(city='San Francisco', metric='celsius'), get_weather(city='Seattle', metric='celsius')]",
        [ToolCall("get_weather", {"city": city, "metric": "celsius"}) for city in ("San Francisco", "Seattle")],
    ),
    "gemma as code": (
        BARE,
        '```tool_code\n[get_product_name_by_PID(PID="807ZPKBL9V")]\n```',
        [ToolCall("get_product_name_by_PID", {"PID": "807ZPKBL9V"})],
    ),
    "gemma json": (
        BARE,
        '```json\n{"name": "get_product_name_by_PID", "parameters": {"PID": "807ZPKBL9V"}}\n```',
        [ToolCall("get_product_name_by_PID", {"PID": "807ZPKBL9V"})],
    ),
    "text": (BARE, "It is sunny [today].", [("text", "It is sunny [today].")]),
    "another object": (
        BARE,
        '{"name": "nobody", "parameters": {}}',
        [("text", '{"name": "nobody", "parameters": {}}')],
    ),
    "a cut call": (BARE, '{"name": "get_weather", "par', [("text", '{"name": "get_weather", "par')]),
    "harmony call": (
        HARMONY,
        "<|channel|>analysis<|message|>Need to use function get_current_weather.<|end|><|start|>assistant<|channel|>"
        'commentary to=functions.get_current_weather <|constrain|>json<|message|>{"location":"San Francisco"}<|call|>',
        [
            ("thinking", "Need to use function get_current_weather."),
            ToolCall("get_current_weather", {"location": "San Francisco"}),
        ],
    ),
    "harmony recipient in the role": (
        HARMONY,
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary "
        'json<|message|>{"location":"a"}',
        [("thinking", "Hm"), ToolCall("get_weather", {"location": "a"})],
    ),
    "harmony answer": (
        HARMONY,
        '<|channel|>analysis<|message|>User asks: "What is 2 + 2?" Simple.<|end|><|start|>assistant<|channel|>final'
        "<|message|>2 + 2 = 4.<|return|>",
        [("thinking", 'User asks: "What is 2 + 2?" Simple.'), ("text", "2 + 2 = 4.")],
    ),
    "harmony preamble": (
        HARMONY,
        "<|channel|>commentary<|message|>**Action plan**: 1. Generate<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.get_weather <|constrain|>json<|message|>{}<|call|>",
        [("text", "**Action plan**: 1. Generate"), ToolCall("get_weather", {})],
    ),
    "harmony cut": (HARMONY, "<|channel|>analysis<|message|>We", [("thinking", "We")]),
    "harmony broken": (
        HARMONY,
        "<|channel|>commentary to=functions.get_weather<|message|>{no<|call|>",
        [("text", "{no")],
    ),
    "harmony continued": (HARMONY, "plain words", [("text", "plain words")]),
}


def read(form, pieces):
    """What a reader makes of these pieces; texts of one kind joined."""
    reader, found = form.reader(TOOLS), []
    for piece in [piece for text in pieces for piece in reader.feed(text)] + [*reader.finish()]:
        if found and isinstance(piece, tuple) and isinstance(found[-1], tuple) and found[-1][0] == piece[0]:
            found[-1] = (piece[0], found[-1][1] + piece[1])
        else:
            found.append(piece)
    return found


@pytest.mark.parametrize(("form", "text", "right"), SAID.values(), ids=list(SAID))
def test_an_answer_is_read_alike_however_it_is_cut(form, text, right):
    assert read(form, [text]) == right
    assert read(form, list(text)) == right
    for at in range(1, len(text)):
        assert read(form, [text[:at], text[at:]]) == right, at


def test_text_is_held_only_while_it_may_be_a_call():
    reader = BARE.reader(TOOLS)
    assert (
        [*reader.feed("{")] == [] and [*reader.feed('"nam')] == [] and [*reader.feed("ing")] == [("text", '{"naming')]
    )
    assert [*reader.feed(" more")] == [("text", " more")]


def follows(grammar, text):
    """Whether the grammar accepts the whole text, byte by byte."""
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, grammar)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting()


FUNCTIONS = [("get_current_weather", json.dumps(SCHEMA)), ("get_weather", json.dumps(SCHEMA))]


@pytest.mark.parametrize("must", [True, False])
@pytest.mark.parametrize("name", ["llama json", "harmony call", "text", "harmony answer"])
def test_a_grammar_takes_the_vendors_example_and_no_other_name(name, must):
    form, text, _ = SAID[name]
    text = text.removesuffix("<|call|>").removesuffix("<|return|>").replace('{"location":"', '{"location": "')
    grammar = form.grammar(FUNCTIONS, lambda mark: Mark(mark).rule, must, False, None)
    assert follows(grammar, text) == (not must or "weather" in name or "call" in name or "json" in name)
    assert not follows(grammar, text.replace("get_current_weather", "get_forecast")) or "weather" not in text


def test_a_form_is_known_by_template_and_vocabulary():
    nothing = lambda text: False  # noqa: E731
    assert form_of("{{ messages }}", False, nothing) == BareCalls(described=True)
    assert form_of('"parameters": dictionary of argument name {{ tools }}', True, nothing) == BareCalls()
    assert form_of("{{ tools }}", True, nothing) is None and form_of("", False, nothing) is None
    assert form_of("{{ tools }}", True, {"<|channel|>", "<|message|>", "<|start|>"}.__contains__) == HarmonyCalls()
