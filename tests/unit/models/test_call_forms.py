"""90: calls as Llama 3, Gemma 3 and gpt-oss write them; the texts are their vendors' own examples."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from mlx_lm.tool_parsers import (
    function_gemma,
    gemma4,
    glm47,
    json_tools,
    longcat,
    minicpm5,
    minimax_m2,
    muse_spark,
    pythonic,
    qwen3_coder,
)

from fakes.call_models import KINDS, RECORDED, call_tokenizer
from specdec_cli.core.request import Constraint
from specdec_cli.models.call_forms import BareCalls, HarmonyCalls, form_of
from specdec_cli.models.grammar import Vocabulary
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.tool_calls import ARGUMENTS, GEMMA_QUOTES, Mark, MarkedCalls, ToolCall
from specdec_cli.models.turns import one_call_a_turn

SCHEMA = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
    for name in ("get_current_weather", "get_weather", "trending_songs", "get_product_name_by_PID")
]
BARE, HARMONY = BareCalls(), HarmonyCalls()


def call(name, **arguments):
    return ToolCall(name, arguments)


def text(said):
    return ("text", said)


def thought(said):
    return ("thinking", said)


PID = call("get_product_name_by_PID", PID="807ZPKBL9V")
WEATHER = call("get_weather")
THINKS = "<|channel|>analysis<|message|>"
# Meta's prompt formats of 3.1 and 3.2, Google's function calling with Gemma, OpenAI's cookbook on harmony.
BARE_SAID = {
    "llama json": (
        '{"name": "get_current_weather", "parameters": {"location": "San Francisco, CA"}}',
        [call("get_current_weather", location="San Francisco, CA")],
    ),
    "llama with its tag": (
        '<|python_tag|>{"name": "trending_songs", "parameters": {"n": "10", "genre": "all"}}',
        [call("trending_songs", n="10", genre="all")],
    ),
    "llama several": (
        '{"name": "get_weather", "parameters": {"location": "a"}}; {"name": "get_weather", "parameters": {}}',
        [call("get_weather", location="a"), WEATHER],
    ),
    "llama as code": (
        "[get_weather(city='San Francisco', metric='celsius'), get_weather(city='Seattle', metric='celsius')]",
        [call("get_weather", city=city, metric="celsius") for city in ("San Francisco", "Seattle")],
    ),
    "gemma as code": ('```tool_code\n[get_product_name_by_PID(PID="807ZPKBL9V")]\n```', [PID]),
    "gemma json": ('```json\n{"name": "get_product_name_by_PID", "parameters": {"PID": "807ZPKBL9V"}}\n```', [PID]),
    "text before": ('I look. \n\n{"name": "get_weather", "parameters": {}}', [text("I look."), WEATHER]),
    "text behind": ('{"name": "get_weather", "parameters": {}}\nDone. ', [WEATHER, text("Done. ")]),
    "llama with the type of a function": (
        '{"type": "function", "name": "get_weather", "parameters": {"location": "a"}}',
        [call("get_weather", location="a")],
    ),
    "a tag behind text": (
        'I look.<|python_tag|>{"name": "get_weather", "parameters": {"a": "}"}}<|python_tag|>get_weather(a=true)',
        [text("I look."), call("get_weather", a="}"), call("get_weather", a=True)],
    ),
    "gemma in two fences": (
        'Both:\n```json\n{"name": "get_weather", "parameters": {}}\n```\n\n```json\n'
        '{"name": "trending_songs", "arguments": {"n": 1}}\n```',
        [text("Both:"), WEATHER, call("trending_songs", n=1)],
    ),
    "gemma as a list": (
        '```json\n[\n  {"name": "get_weather", "parameters": {}},\n {"name": "get_weather", "parameters": {}}]\n```\n',
        [WEATHER] * 2,
    ),
    "gemma as code alone": (
        '```tool_code\nget_weather(city="Seattle", days=[1, 2], where=None)\n```',
        [call("get_weather", city="Seattle", days=[1, 2], where=None)],
    ),
    "blanks in words": (
        '```j son\n{"na me": "get_weather"}\n{"name": "get_weather"}',
        [text('```j son\n{"na me": "get_weather"}'), WEATHER],
    ),
    "a broken call before one": (
        '{"name": "get_weather", "parameters": {oops}}\n{"name": "get_weather", "parameters": {}}',
        [text('{"name": "get_weather", "parameters": {oops}}'), WEATHER],
    ),
}
NO_CALLS = {
    "text": "It is sunny [today].",
    "a word like a call": "get_weather (as above) is one",
    "code with variables": "[get_weather(city=here)]",
    "code of another": "[get_weather(), nobody()]",
    "code with a set": "[get_weather(city={1, 2})]",
    "code by place": "[get_weather('a')]",
    "no object": '{"name": "get_weather", "parameters": [1]} and more',
    "no number": '{"name": "get_weather", "parameters": {"a": NaN}}',
    "two names": '{"name": "get_weather", "name": ["x"]}',
    "a control character": '\x1c{"name": "get_weather", "parameters": {}}',
    "another object": '{"name": "nobody", "parameters": {}}',
    "a cut call": '{"name": "get_weather", "par',
}
BARE_SAID |= {name: (said, [text(said)]) for name, said in NO_CALLS.items()}
HARMONY_SAID = {
    "harmony call": (
        f"{THINKS}Need to use function get_current_weather.<|end|><|start|>assistant<|channel|>"
        'commentary to=functions.get_current_weather <|constrain|>json<|message|>{"location":"San Francisco"}<|call|>',
        [
            thought("Need to use function get_current_weather."),
            call("get_current_weather", location="San Francisco"),
        ],
    ),
    "harmony answer": (
        f'{THINKS}User asks: "What is 2 + 2?" Simple.<|end|><|start|>assistant<|channel|>final'
        "<|message|>2 + 2 = 4.<|return|>",
        [thought('User asks: "What is 2 + 2?" Simple.'), text("2 + 2 = 4.")],
    ),
    "harmony broken": ("<|channel|>commentary to=functions.get_weather<|message|>{no<|call|>", [text("{no")]),
    "harmony no number": (
        '<|channel|>commentary to=functions.get_weather<|message|>{"a": NaN}<|call|>',
        [text('{"a": NaN}')],
    ),
    "harmony no object": ('<|channel|>commentary to=functions.get_weather<|message|>["a"]<|call|>', [text('["a"]')]),
    "harmony continued": ("plain words", [text("plain words")]),
}


def by_the_vendors_parser(answer):
    """What OpenAI's own library reads. A first call, whose recipient stands in the role, was text."""
    right = []
    for channel, recipient, content in answer["messages"]:
        if recipient:
            right.append(ToolCall(recipient.removeprefix("functions."), json.loads(content)))
        elif content and right and right[-1][0] == "thinking" and channel == "analysis":
            right[-1] = thought(right[-1][1] + content)
        elif content:
            right.append((thought if channel == "analysis" else text)(content))
    return right


# A call as the templates of their models write it; `?` is an argument.
WRITTEN = {
    glm47: "<tool_call>run\n<arg_key>cmd</arg_key>\n<arg_value>?</arg_value>\n<arg_key>n</arg_key>\n<arg_value>1"
    "</arg_value>\n</tool_call>",
    minicpm5: '<function name="run"><param name="cmd">?</param><param name="n">1</param></function>',
    muse_spark: '<atem:function_calls>\n<atem:invoke name="run">\n<atem:parameter name="cmd">?</atem:parameter>\n'
    '<atem:parameter name="n">1</atem:parameter>\n</atem:invoke>\n</atem:function_calls>',
    minimax_m2: '<minimax:tool_call>\n<invoke name="run">\n<parameter name="cmd">?</parameter>\n'
    '<parameter name="n">1</parameter>\n</invoke>\n</minimax:tool_call>',
    qwen3_coder: "<tool_call>\n<function=run>\n<parameter=cmd>\n?\n</parameter>\n<parameter=n>\n1\n</parameter>\n"
    "</function>\n</tool_call>",
    json_tools: '<tool_call>\n{"name": "run", "arguments": {"cmd": "?", "n": 1}}\n</tool_call>',
    gemma4: '<|tool_call>call:run{cmd:<|"|>?<|"|>,n:1}<tool_call|>',
}
WRITTEN[function_gemma] = "<start_function_call>call:run{cmd:<escape>?<escape>,n:1}<end_function_call>"
WRITTEN[longcat] = WRITTEN[glm47].replace("tool_call>", "longcat_tool_call>").replace("arg_", "longcat_arg_")
FORMS = {one: MarkedCalls((one.tool_call_start, one.tool_call_end), one.parse_tool_call) for one in WRITTEN}
# `n` is declared as schemars declares what may be anything.
RUN = {"properties": {"cmd": {"type": "string"}, "n": True}}
TOOLS += [{"type": "function", "function": {"name": "run", "parameters": RUN}}]
PYTHON = MarkedCalls((pythonic.tool_call_start, pythonic.tool_call_end), pythonic.parse_tool_call)
OPEN = "<|tool_call_start|>[run(cmd='l)]<|tool_call_end|>"
QUOTING = "use <|tool_call_start|>[rm(path='/')]<|tool_call_end|> so\n\"twice\""
MARKED_SAID = {
    "pythonic": (PYTHON, "<|tool_call_start|>[run(cmd='ls', n=1)]<|tool_call_end|>", [call("run", cmd="ls", n=1)]),
    "pythonic quoted": (
        PYTHON,
        f"""<|tool_call_start|>[run(cmd="{QUOTING.replace('"', chr(92) + '"')}", n=1)]<|tool_call_end|> So.""",
        [call("run", cmd=QUOTING, n=1), text("So.")],
    ),
    "pythonic open": (PYTHON, OPEN, [text(OPEN)]),
}
# What the code of a call says, and its arguments; None: mlx-lm's parser would drop some, or give them to another call.
CODE_SAID = {
    "a bare word": ('[run(cmd="a\nb", mode=append)]', {"cmd": "a\nb", "mode": "append"}),
    "both ends of a line": ('[run(cmd="a\r\nb")]', {"cmd": "a\r\nb"}),
    "a line that goes on": ('[run(cmd="docker run \\\n -it x\nls")]', {"cmd": "docker run  -it x\nls"}),
    "three quotes": ('[run(cmd="""it\'s 5" wide\nb""")]', {"cmd": "it's 5\" wide\nb"}),
    "an apostrophe": ("[run(cmd=What's up)]", {"cmd": "What's up"}),
    "a number in quotes": ('[run(cmd="12")]', {"cmd": "12"}),
    "by place": ('[run("ls")]', None),
    "another call's": ("[run(cmd=1), run(n=foo)]", None),
    "words with a comma": ('[run(cmd="a", n=hello, world)]', None),
}
for name, (code, arguments) in CODE_SAID.items():
    said = f"<|tool_call_start|>{code}<|tool_call_end|>"
    MARKED_SAID[f"pythonic {name}"] = PYTHON, said, [text(said) if arguments is None else call("run", **arguments)]
NO_MARKED = {
    "list": "<tool_call>\n[1]\n</tool_call>",
    "name": '<tool_call>{"name": 3}</tool_call>',
    "number": '<tool_call>{"name": "run", "arguments": {"n": NaN}}</tool_call>',
    "end": "a <tool_call",
    "more": 'Look:\n<tool_call>\n{"name": "re',
}
MARKED_SAID |= {f"marked no {name}": (FORMS[json_tools], said, [text(said)]) for name, said in NO_MARKED.items()}
for module, form in FORMS.items():
    name, end, broken = form.name, form.marks[1], f"{form.marks[0]}no{form.marks[1]}"
    run = call("run", cmd="ls", n="1" if module in (qwen3_coder, minimax_m2, minicpm5) else 1)
    written = WRITTEN[module].replace("?", "ls")
    MARKED_SAID[f"{name} two"] = form, f"I look.\n{written}\n{written} So.", [text("I look."), run, run, text(" So.")]
    if module is not minicpm5:  # its parser ends a function at the first end mark in any case
        quoted = call("run", **run.arguments | {"cmd": f"a {end} b {end}"})
        more = WRITTEN[module].replace("?", quoted.arguments["cmd"])
        MARKED_SAID[f"{name} quoted"] = form, f"{more}\n{written}", [quoted, run]
        MARKED_SAID[f"{name} open"] = form, more.removesuffix(end), [quoted]
        pairs = call("run", **run.arguments | {"cmd": f"a {form.marks[0]}b{end} c {form.marks[0]}run{end} d"})
        MARKED_SAID[f"{name} quoted pairs"] = form, WRITTEN[module].replace("?", pairs.arguments["cmd"]), [pairs]
    if name in ARGUMENTS:
        begin, close = ARGUMENTS[name]
        lost = f"{end}run".join(WRITTEN[module].rsplit(close, 1))
        MARKED_SAID[f"{name} lost end"] = form, lost, [text(lost)]
        # The call went out without its first argument, or with one that held the second.
        open_first = WRITTEN[module].replace(close, "", 1)
        MARKED_SAID[f"{name} open argument"] = form, f"{open_first}\nSo.", [text(f"{open_first}\nSo.")]
        # A file that quotes a call was written as far as its first argument.
        quotes = WRITTEN[module].replace("?", f"a {written} b")
        MARKED_SAID[f"{name} quoted call"] = form, quotes, [text(quotes)]
    if form.enforced or module in (
        qwen3_coder,
        minimax_m2,
        gemma4,
        function_gemma,
    ):  # for the others, anything is a call
        MARKED_SAID[f"{name} broken"] = form, f"{broken} a {end} b\n{written}", [text(f"{broken} a {end} b"), run]
        MARKED_SAID[f"{name} none"] = form, f"{broken} a {end} b", [text(f"{broken} a {end} b")]
# Gemma's: what stands between the marks, with ' for its quotes, and the call; without one it is text. An object ended
# the call, and a text that is not closed let what it quotes be called.
for inner, right in (
    ("call:rm{path:'a}b',opts:{a:[1,{}]},dry_run:true}", call("rm", path="a}b", opts={"a": [1, {}]}, dry_run=True)),
    ("call:run{cmd:'as call:run{n:1} says'}", call("run", cmd="as call:run{n:1} says")),
    ("call:run{cmd:'as call:run{n:1} says}", None),
    ("call:run{n:1 call:run{n:2}", None),
    ("call:run{cmd:'a''b',n:1}", None),
    ("call:run{cmd:'a'b,n:1}", None),
    ("call:run{cmd:a, b,n:1}", None),
    ("call:run{cmd:[a,b],n:1}", None),
    ("call:run{cmd:{a:b},n:1}", None),
):
    for module in (gemma4, function_gemma):
        form, quote = FORMS[module], GEMMA_QUOTES[FORMS[module].name]
        written = inner.replace("'", quote).join(form.marks)
        MARKED_SAID[f"{form.name} {inner}"] = form, written, [right or text(written)]
WORDS = "call:run{cmd:http://a b,n:1}".join(FORMS[function_gemma].marks)
MARKED_SAID["function_gemma words"] = FORMS[function_gemma], WORDS, [call("run", cmd="http://a b", n=1)]
DATA = "<![CDATA[see <param name='x'>{} ok]]>"
MARKED_SAID["minicpm5 quoted mark"] = (
    FORMS[minicpm5],
    WRITTEN[minicpm5].replace("?", DATA.format("")),
    [call("run", cmd="see <param name='x'> ok", n="1")],
)
MARKED_SAID["minicpm5 quoted argument"] = (
    FORMS[minicpm5],
    (said := WRITTEN[minicpm5].replace("?", DATA.format("a</param>"))),
    [text(said)],
)
MARKED_SAID["function_gemma quotes"] = (
    FORMS[function_gemma],
    '<start_function_call>call:run{cmd:the "best" one}<end_function_call>',
    [call("run", cmd='the "best" one')],
)
SAID = {name: (BARE, *row) for name, row in BARE_SAID.items()}
SAID |= {name: (HARMONY, *row) for name, row in HARMONY_SAID.items()}
SAID |= MARKED_SAID
SAID |= {answer["name"]: (HARMONY, answer["text"], by_the_vendors_parser(answer)) for answer in RECORDED}


def read(form, pieces, cut=False):
    """What a reader makes of these pieces; texts of one kind joined."""
    reader, found = form.reader(TOOLS), []
    for piece in [piece for part in pieces for piece in reader.feed(part)] + [*reader.finish(cut)]:
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


@pytest.mark.parametrize("module", WRITTEN, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_call_that_is_cut_is_text_wherever_the_cut_is(module):
    """It was a call without its last arguments: `rm -r build`, and no `dry_run`."""
    form, said = FORMS[module], f"So: {WRITTEN[module]}"
    whole = said.rindex("}") + 1 if form.enforced else len(said)
    for at in range(len("So:"), whole):
        assert read(form, [said[:at]], cut=True) == [text(said[:at])], at
    for at in {whole, len(said)}:
        assert [type(piece) for piece in read(form, [said[:at]], cut=True)] == [tuple, ToolCall]
    assert read(form, [said.removesuffix(form.marks[1])]) == read(form, [said])


def test_a_call_of_harmony_s_that_is_cut_is_text():
    said = HARMONY_SAID["harmony call"][0].removesuffix("<|call|>")
    body = said.rindex("<|message|>") + len("<|message|>")
    for at in range(said.index("<|end|>") + len("<|end|>"), len(said)):
        pieces = read(HARMONY, [said[:at]], cut=True)
        assert pieces[1:] == ([text(said[body:at])] if at > body else [])
    assert read(HARMONY, [said], cut=True) == HARMONY_SAID["harmony call"][1]
    assert read(HARMONY, [said[:body]])[1:] == [call("get_current_weather")]  # as of a function without arguments


@pytest.mark.parametrize("module", [qwen3_coder, minimax_m2])
def test_what_cannot_be_read_is_no_longer_held(module):
    """All that followed came at the end of the answer."""
    reader = FORMS[module].reader(TOOLS)
    said = "".join(FORMS[module].marks)
    assert [*reader.feed(f"Use {said} so. "), *reader.feed("Then")][-1] == ("text", " Then")


def test_a_tool_without_its_wrapping_is_read_by_its_name():
    form = FORMS[json_tools]
    assert [*form.reader([{"name": "run", "parameters": {}}]).feed(WRITTEN[json_tools])] == [call("run", cmd="?", n=1)]


def test_text_is_held_only_while_it_may_be_a_call():
    reader = BARE.reader(TOOLS)
    told = [[*reader.feed(text)] for text in ("{", '"nam', "ing", " more", '\n{"name": "get_w', 'ind"}')]
    assert told == [
        *([], [], [("text", '{"naming')], [("text", " more")]),
        *([], [("text", '\n{"name": "get_wind"}')]),
    ]


def test_many_lines_cost_no_more_than_their_length():
    reader, began = BARE.reader(TOOLS), time.thread_time()
    for _ in range(2000):
        assert not [*reader.feed("\n")]
    for _ in range(2000):
        [*reader.feed("}\n word")]
    assert time.thread_time() - began < 0.5


def follows(grammar, text):
    """Whether the grammar accepts the whole text, byte by byte."""
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, grammar)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting()


FUNCTIONS = [("get_current_weather", json.dumps(SCHEMA)), ("get_weather", json.dumps(SCHEMA))]


def calls_in(pieces):
    return [piece for piece in pieces if isinstance(piece, ToolCall)]


@pytest.mark.parametrize("must", [True, False])
@pytest.mark.parametrize("name", ["llama json", "harmony call", "text", "harmony answer"])
def test_a_grammar_takes_the_vendors_example_and_no_other_arguments(name, must):
    form, text, _ = SAID[name]
    text = text.removesuffix("<|call|>").removesuffix("<|return|>").replace('{"location":"', '{"location": "')
    grammar = form.grammar(FUNCTIONS, Mark, must, False, None)
    assert follows(grammar, text) == (not must or "call" in name or "json" in name)
    if "call" in name or "json" in name:
        assert not follows(grammar, text.replace('"San', '3, "San')) and not follows(grammar, text.replace("loc", "x"))
        other = text.replace("get_current_weather", "get_forecast")
        assert not follows(grammar, other) or (
            not must and not any(isinstance(one, ToolCall) for one in read(form, [other]))
        )


def test_a_call_may_name_its_function_in_either_place_of_harmony_s_and_come_after_words():
    grammar = HARMONY.grammar(FUNCTIONS, Mark, True, False, None)
    call = '<|channel|>commentary <|constrain|>json<|message|>{"location": "a"}'
    thought, told = (
        "<|channel|>" + one + "<|message|>Hm.<|end|><|start|>assistant" for one in ("analysis", "commentary")
    )
    assert follows(grammar, f" to=functions.get_weather{call}")
    assert follows(grammar, f"{thought}{told} to=functions.get_weather{call}")
    assert not follows(grammar, f"{thought}{thought}{told} to=functions.get_weather{call}")  # it might never call
    assert not follows(grammar, f" to=functions.get_wind{call}") and not follows(grammar, told)
    free = HARMONY.grammar(FUNCTIONS, Mark, False, False, None)
    for begin in (thought, "<|channel|>analysis<|message|>Hm", "<|channel|>final<|message|>So:"):
        for mark in ("<|start|>", "<|call|>", "<|end|><|start|>"):  # as letters they would be read, too
            said = f'{begin}{mark}assistant to=functions.get_weather<|channel|>commentary json<|message|>{{"x": 1}}'
            assert calls_in(read(HARMONY, [said])) and not follows(free, said)
    assert follows(free, f"{thought}<|channel|>final<|message|>So <|cal and <|end|")
    shaped = HARMONY.grammar(FUNCTIONS, Mark, False, False, '"yes"')
    assert follows(shaped, f"{thought}<|channel|>final<|message|>yes")
    assert not follows(shaped, f"{told}<|channel|>final<|message|>yes")


WORDS = [
    *("get_weather", "get_wind", '{"name": "', '"', "(", ")", "[", "]", "{", "}", ", ", "\n", " ", "```", "json", "x"),
    *("tool_code", "<|python_tag|>", '"parameters": ', '"location"', ": ", '"type": "function", ', "; ", "3"),
    *(said for said, _ in BARE_SAID.values()),
    '{"name": "get_weather", "parameters": {"x": 3}}',
]
STRICT = BARE.grammar([(tool["function"]["name"], json.dumps(SCHEMA)) for tool in TOOLS], Mark, False, False, None)


def wrong_calls(text):
    return [call for call in calls_in(read(BARE, [text])) if set(call.arguments) != {"location"}]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(WORDS), max_size=12).map("".join))
def test_no_call_is_read_where_arguments_are_strict_but_one_that_keeps_its_schema(text):
    assert not (wrong_calls(text) and follows(STRICT, text))


def test_strict_arguments_hold_wherever_a_call_is_read():
    """In a fence, behind text, and as code they did not."""
    texts = [said for said, _ in BARE_SAID.values()]
    assert sum(bool(wrong_calls(text)) for text in texts) > 8
    for text in texts:
        assert not (wrong_calls(text) and follows(STRICT, text)), text
        assert calls_in(read(BARE, [text])) or follows(STRICT, text) or "get_weather" in text, text


GOOD = '{"name": "get_weather", "parameters": {"location": "a"}}'


@pytest.mark.parametrize(
    ("before", "call", "behind"),
    [
        ("", GOOD, ""),
        ("I look.\n\n```json\n", GOOD, "\n```"),
        ("```tool_code\n[", f"{GOOD}, {GOOD}", "]\n```\n"),
        ("", f"{GOOD}; {GOOD}", ""),
        ("So:\n", GOOD.replace("{", "{\n  ", 1).replace(', "par', ',\n  "par').replace('"}}', '"}\n}'), ""),
        ("", GOOD.replace("{", '{"type": "function", ', 1), ""),
    ],
)
def test_a_text_may_go_over_to_calls_with_strict_arguments(before, call, behind):
    """In a fence, behind words and over lines, as models write them; it could not be finished there."""
    text = f"{before}{call}{behind}"
    assert follows(STRICT, text) and len(calls_in(read(BARE, [text]))) == call.count("get_weather")
    assert not follows(STRICT, text.replace('"a"', "3")) and not follows(STRICT, text.replace("location", "city"))
    assert not follows(STRICT, text.replace('"a"}}', '"a"}').replace('"a"}\n}', '"a"}'))


def test_other_names_in_text_are_data_where_arguments_are_strict():
    for text in (
        '{"name": "Bob", "parameters": {"x": 3}}',
        'So:\n[{"name": "get_weather_", "age": 3},\n{"name": "b"}]',
    ):
        assert follows(STRICT, text) and not calls_in(read(BARE, [text]))
        assert not follows(STRICT, f'{text}\n{{"name": "get_weather", "parameters": {{"x": 3}}}}')


@pytest.mark.parametrize("kind", ["oss", "llama"])
def test_a_grammar_asks_for_the_special_tokens_by_their_ids(tmp_path, kind):
    tokenizer = call_tokenizer(tmp_path / kind, *KINDS[kind])
    vocabulary = Vocabulary.of_model(tokenizer.to_json(), tokenizer.size, tokenizer.stop_tokens)
    form, text, _ = SAID["harmony call" if kind == "oss" else "llama json"]
    text = text.removesuffix("<|call|>").replace('{"location":"', '{"location": "')
    spell = lambda mark: Mark(mark, tokenizer.token_of(mark))  # noqa: E731
    for must in (True, False):
        matcher = vocabulary.matcher(Constraint("grammar", form.grammar(FUNCTIONS, spell, must, True, None)))
        ids = tokenizer.continuation(text)
        assert kind == "llama" or set(tokenizer.added_tokens()) & set(ids)
        assert matcher.legal(ids) == len(ids)
        matcher.advance(ids)
        assert matcher.complete and not matcher.legal(tokenizer.continuation("x"))


@pytest.mark.slow
def test_a_thousand_functions_are_looked_for_in_text_at_once():
    functions = [(f"function_{place}", '{"type": "object"}') for place in range(900)]
    grammar, began = BARE.grammar(functions, Mark, False, True, None), time.thread_time()
    assert follows(grammar, "word\n" * 100 + '{"name": "other"}') and time.thread_time() - began < 0.9


def test_a_form_is_known_by_template_and_vocabulary():
    nothing = lambda text: False  # noqa: E731
    assert form_of("{{ messages }}", False, nothing) == BareCalls(described=True)
    assert form_of('"parameters": dictionary of argument name {{ tools }}', True, nothing) == BareCalls()
    assert form_of("{{ tools }}", True, nothing) is None and form_of("", False, nothing) is None
    assert form_of("{{ tools }}", True, {"<|channel|>", "<|message|>", "<|start|>"}.__contains__) == HarmonyCalls()


U, DEEP = {"role": "user", "content": "Read both."}, {"path": "a"}


def called(identity, name, arguments=DEEP):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def results(*names):
    return [{"role": "tool", "tool_call_id": name, "name": name, "content": name.upper()} for name in names]


def rendered(tokenizer: Tokenizer, messages):
    stream = tokenizer.stream()
    ids = tokenizer.render(messages, tools=TOOLS)
    return "".join([*map(stream.step, ids), stream.finish()])


HEAD = "<|start_header_id|>assistant<|end_header_id|>\n\n"
TWO = {"role": "assistant", "content": "I look.", "thinking": "Hm."}
TWO |= {"tool_calls": [called("r", "r"), called("l", "l", {})]}
HISTORY = {
    "llama": f'{HEAD}I look.<|eot_id|>{HEAD}{{"name": "r", "parameters": {{"path": "a"}}}}<|eot_id|>'
    f'<|start_header_id|>ipython<|end_header_id|>\n\n"R"<|eot_id|>{HEAD}{{"name": "l", "parameters": {{}}}}<|eot_id|>'
    f'<|start_header_id|>ipython<|end_header_id|>\n\n"L"<|eot_id|>{HEAD}',
    "gemma": '<start_of_turn>model\nI look.\n\n{"name": "r", "parameters": {"path": "a"}}\n'
    '{"name": "l", "parameters": {}}<end_of_turn>\n<start_of_turn>user\n[Result of r]\nR\n\n[Result of l]\nL'
    "<end_of_turn>\n<start_of_turn>model\n",
    "oss": "<|start|>assistant<|channel|>analysis<|message|>Hm.\n\nI look.<|end|><|start|>assistant to=functions.r"
    '<|channel|>commentary json<|message|>{"path": "a"}<|call|><|start|>functions.r to=assistant<|channel|>commentary'
    '<|message|>"R"<|end|><|start|>assistant to=functions.l<|channel|>commentary json<|message|>{}<|call|>'
    "<|start|>functions.l "
    'to=assistant<|channel|>commentary<|message|>"L"<|end|><|start|>assistant',
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_of_two_calls_goes_back_in_the_order_and_with_all_words(tmp_path, kind):
    """Llama's left out the words, and gpt-oss's took no call that had both words and thinking."""
    tokenizer = call_tokenizer(tmp_path / kind, *KINDS[kind])
    text = rendered(tokenizer, [U, TWO, *results("r", "l")])
    assert text.endswith(HISTORY[kind]) and text.count("get_current_weather") == 1
    assert rendered(tokenizer, [U, TWO, *results("l", "r")]) == text or kind == "gemma"


@pytest.mark.parametrize("second", ["22", "11"])
def test_calls_of_one_id_take_a_result_each(second):
    """Ollama's protocol has no ids, so that the name is one; the first call took both results."""
    calls = [called("w", "w", {"city": city}) for city in ("Paris", "Rome")]
    said = [{"role": "tool", "tool_call_id": "w", "content": words} for words in ("11", second)]
    turns = one_call_a_turn([U, {"role": "assistant", "content": "", "tool_calls": calls}, *said])
    assert turns[2::2] == said and [one["tool_calls"] for one in turns[1::2]] == [calls[:1], calls[1:]]


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_that_are_no_json_stay_in_the_prompt(tmp_path, kind):
    tokenizer = call_tokenizer(tmp_path / kind, *KINDS[kind])
    cut = {"role": "assistant", "content": "", "tool_calls": [called("r", "r", '{"path": "a')]}
    assert '\\"path\\": \\"a' in rendered(tokenizer, [U, cut, *results("r")])


def test_arguments_that_are_no_json_are_an_object_for_a_template_that_iterates_them(tmp_path):
    """As Qwen3-Coder's does. The whole conversation's calls became words."""
    each = "{%- for name, value in m.tool_calls[0].function.arguments | items -%}{{ name }}={{ value }};{%- endfor -%}"
    template = "{%- for m in messages -%}{%- if m.tool_calls -%}" + each + "{%- else -%}{{ m.content }}|{%- endif -%}"
    tokenizer = call_tokenizer(tmp_path / "t", template + "{%- endfor -%}{{ tools }}", ())
    cut = {"role": "assistant", "content": "", "tool_calls": [called("r", "r", '{"path": "a')]}
    whole = {**cut, "tool_calls": [called("s", "s")]}
    text = rendered(tokenizer, [U, cut, *results("r"), whole, *results("s")])
    assert text.startswith('Read both.|arguments={"path": "a;R|path=a;S|')


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_a_whole_answer_are_read_from_python_too(tmp_path, kind):
    """It said that the template supports no tools."""
    tokenizer = call_tokenizer(tmp_path / kind, *KINDS[kind])
    _, text, right = SAID["harmony call" if kind == "oss" else "text before"]
    calls = [one for one in right if isinstance(one, ToolCall)]
    assert tokenizer.tool_calls(text, TOOLS) == ("" if kind == "oss" else "I look.", calls)


@pytest.mark.parametrize(
    ("kind", "ends"), [("oss", {"<|im_end|>", "<|return|>", "<|call|>"}), ("llama", {"<|im_end|>"})]
)
def test_a_call_of_harmony_s_ends_the_answer_whatever_the_files_say(tmp_path, kind, ends):
    """Without its generation configuration a model went on with a result of its own."""
    tokenizer = call_tokenizer(tmp_path / kind, *KINDS[kind])
    assert {tokenizer.piece(token) for token in tokenizer.stop_tokens} == ends
