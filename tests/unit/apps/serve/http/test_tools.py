"""Calls of functions: split out of the stream wherever its pieces end, and carried in all three dialects."""

import json
import random
from dataclasses import replace

import anthropic
import openai
import pytest
from anthropic import beta_tool
from llguidance import LLMatcher, LLTokenizer

import specdec_cli
from fakes.desk import ScriptedDesk, SequentialDesk
from fakes.models import byte_tokenizer
from fakes.server import LOCAL, local, serving
from fakes.serving import model_of
from fakes.tool_model import LONG
from specdec_cli.apps.serve.http.answer import Call, CallStream
from specdec_cli.apps.serve.http.tools import _arguments

PARAMETERS = {
    "type": "object",
    "properties": {"path": {"enum": ["a.py", "b.py"]}, "deep": {"type": "boolean"}},
    "required": ["path", "deep"],
    "additionalProperties": False,
}
FUNCTION = {"name": "read", "description": "Reads a file.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
ASKED = [{"role": "user", "content": "Read a.py."}]
CHAT = "/v1/chat/completions"


def written(path, deep=True, name="read"):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': {'path': path, 'deep': deep}})}\n</tool_call>"


def split(model, text, sizes):
    """(text, [(name, arguments)]) as a CallStream gives them for `text` in pieces of these sizes."""
    stream, said, calls = CallStream(model.tokenizer, TOOLS), "", []
    at = 0
    pieces = []
    while at < len(text):
        size = next(sizes)
        pieces += stream.feed(text[at : at + size])
        at += size
    for piece in [*pieces, *stream.finish()]:
        if isinstance(piece, Call):
            calls.append((piece.name, json.loads(piece.arguments)))
        else:
            assert piece.text
            said += piece.text
    return said, calls


A, B = ("read", {"path": "a.py", "deep": True}), ("read", {"path": "b.py", "deep": False})
CASES = [
    ("no call <tool> at all\n", ("no call <tool> at all\n", [])),
    (written("a.py"), ("", [A])),
    ("I look.\n\n" + written("a.py") + "\n" + written("b.py", False), ("I look.", [A, B])),
    (written("a.py") + "\nDone. ", ("Done. ", [A])),
    ("<tool_call>\nnot json\n</tool_call> so", ("<tool_call>\nnot json\n</tool_call> so", [])),
    ("<tool_call>\n[1]\n</tool_call>", ("<tool_call>\n[1]\n</tool_call>", [])),
    ('<tool_call>{"name": 3}</tool_call>', ('<tool_call>{"name": 3}</tool_call>', [])),
    ('Look:\n<tool_call>\n{"name": "re', ('Look:\n<tool_call>\n{"name": "re', [])),
    ("a <tool_call", ("a <tool_call", [])),
    ("<tool_call>{broken</tool_call>\n" + written("a.py"), ("<tool_call>{broken</tool_call>", [A])),
]


@pytest.mark.parametrize("text, wanted", CASES, ids=range(len(CASES)))
def test_what_is_text_and_what_is_a_call_does_not_depend_on_where_pieces_end(tooled, text, wanted):
    luck = random.Random(text)
    assert split(tooled, text, iter(lambda: 1, None)) == wanted
    assert split(tooled, text, iter(lambda: 10_000, None)) == wanted
    for _ in range(20):
        assert split(tooled, text, iter(lambda: luck.randint(1, 9), None)) == wanted


def by_letters(text):
    return [text[at : at + 3] for at in range(0, len(text), 3)]


SAID = "I look.\n" + written("a.py") + "\n" + written("b.py", False)


@pytest.fixture
def scripted(tooled):
    """Starts a server whose model says a script."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(*script, model=tooled, **more):
            desk = ScriptedDesk(script, steps=by_letters, **more)
            stack.callback(desk.close)
            return stack.enter_context(local(model, desk)), desk

        yield start


def test_a_function_of_a_namespace_is_called_by_both_names_as_codex_groups_those_of_a_server(tooled, scripted):
    """Its servers' functions were dropped, and those of its own agents."""
    said = written("a.py", name="mcp__files.read")
    client, desk = scripted(said, said, "Done.")
    gpt = openai.OpenAI(base_url=f"{LOCAL}/v1", api_key="none", http_client=client)
    space = {"type": "namespace", "name": "mcp__files", "description": "d", "tools": [{"type": "function", **FUNCTION}]}
    asked = {"model": "tool", "tools": [space]}
    (item,) = gpt.responses.create(input="Read.", **asked).output
    with gpt.responses.stream(input="Read.", **asked) as stream:
        told = [event.item for event in stream if event.type == "response.output_item.done"]
    assert [(one.namespace, one.name, json.loads(one.arguments)) for one in (item, *told)] == [("mcp__files", *A)] * 2
    result = {"type": "function_call_output", "call_id": item.call_id, "output": "text"}
    gpt.responses.create(input=[{"role": "user", "content": "Read."}, item, result], **asked)
    assert '<tool_call>\n{"name": "mcp__files.read"' in tooled.text(desk.jobs[-1].job.prompt)
    gpt.close()


NO_TYPE = [{}, {"description": "none"}, {"properties": {"a": {"type": "string"}}}, {"type": ["object", "null"]},
           {"anyOf": [{"type": "object", "properties": {"a": {}}}, {"type": "number"}]},
           {"$ref": "#/$defs/a", "$defs": {"a": {"minProperties": 0}}}]  # fmt: skip


@pytest.mark.parametrize("parameters", NO_TYPE)
def test_arguments_are_an_object_whatever_their_schema_leaves_open(parameters):
    """With `"parameters": {}` a required call had the arguments `6e9`, so that it stayed text."""
    schema = _arguments({"name": "f", "parameters": parameters}, set())
    tokenizer = LLTokenizer(byte_tokenizer().to_str(), n_vocab=259, eos_token=[2])
    for begin, may in {"{": 1, "6": 0, "n": 0, '"': 0, "[": 0}.items():
        matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema), log_level=0)
        assert matcher.validate_tokens(byte_tokenizer().encode(begin).ids) == may


def test_one_call_is_enough_where_the_client_says_so(scripted):
    client, desk = scripted(SAID + "x" * 3000)
    asked = {"messages": ASKED, "tools": TOOLS, "parallel_tool_calls": False}
    (call,) = client.post("/v1/chat/completions", json=asked).json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == A[1] and desk.jobs[0].cancelled


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_calls_and_results_go_back_into_the_prompt_as_they_were(tooled, scripted, dialect):
    """The three round trips of one conversation are one and the same prompt."""
    client, desk = scripted("ok")
    called = {"name": "read", "arguments": json.dumps(A[1])}
    brief, text = {"type": "text", "text": "Be brief."}, {"type": "text", "text": "text"}
    chat = [
        {"role": "developer", "content": [brief]},
        *ASKED,
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": called}]},
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
    ]
    messages = [
        *ASKED,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": A[1]}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [text]}]},
    ]
    items = [
        *ASKED,
        {"type": "function_call", "call_id": "c1", **called},
        {"type": "function_call_output", "call_id": "c1", "output": "text"},
    ]
    checksum = {"type": "text", "text": "x-anthropic-billing-header: cch=1"}
    tools = [{"name": "read", "description": "Reads a file.", "input_schema": PARAMETERS}]
    posted = {
        "chat": {"messages": chat, "tools": TOOLS},
        "messages": {"system": [checksum, brief], "messages": messages, "tools": tools, "max_tokens": 9},
        "responses": {"instructions": "Be brief.", "input": items, "tools": [{"type": "function", **FUNCTION}]},
    }[dialect]
    path = {"chat": "chat/completions"}.get(dialect, dialect)
    assert client.post(f"/v1/{path}", json=posted).status_code == 200
    prompt = tooled.text(desk.jobs[0].job.prompt)
    call = '<tool_call>\n{"name": "read", "arguments": {"path": "a.py", "deep": true}}\n</tool_call>'
    assert prompt == (
        f"<|im_start|>tools\n{json.dumps(TOOLS)}<|im_end|>\n<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\nRead a.py.<|im_end|>\n<|im_start|>assistant\n{call}<|im_end|>\n"
        "<|im_start|>tool\ntext<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_prefixes_that_other_prompts_share_are_named(tooled, scripted):
    client, desk = scripted("ok", "ok")
    first = [{"role": "system", "content": "Be brief."}, *ASKED]
    second = [*first, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "More."}]
    for messages in (first, second):
        client.post("/v1/chat/completions", json={"messages": messages}).raise_for_status()
    one, two = (ticket.job for ticket in desk.jobs)
    assert one.prompt[: one.reusable_prefixes[-1]] == two.prompt[: one.reusable_prefixes[-1]]
    first = one.reusable_prefixes[0]
    assert tooled.text(one.prompt[:first]) == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"


def test_thinking_is_apart_from_the_answer_in_every_dialect(thinking, scripted):
    client, _ = scripted(*["Hm, a.\n</think>\n\nYes."] * 5, model=thinking)
    gpt = openai.OpenAI(base_url=f"{LOCAL}/v1", api_key="none", http_client=client)
    claude = anthropic.Anthropic(base_url=LOCAL, api_key="none", http_client=client)
    message = gpt.chat.completions.create(model="tool", messages=ASKED).choices[0].message
    assert (message.reasoning_content, message.content) == ("Hm, a.", "Yes.")
    deltas = [
        chunk.choices[0].delta for chunk in gpt.chat.completions.create(model="tool", messages=ASKED, stream=True)
    ]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Hm, a."
    assert "".join(delta.content or "" for delta in deltas) == "Yes."
    assert not any(getattr(delta, "reasoning_content", None) == "" for delta in deltas)
    thought = {"type": "enabled", "budget_tokens": 1024}
    with claude.messages.stream(model="tool", max_tokens=2000, messages=ASKED, thinking=thought) as stream:
        blocks = stream.get_final_message().content
    assert [(block.type, getattr(block, block.type)) for block in blocks] == [("thinking", "Hm, a."), ("text", "Yes.")]
    response = gpt.responses.create(model="tool", input="Read.")
    assert [item.type for item in response.output] == ["reasoning", "message"] and response.output_text == "Yes."
    gpt.close(), claude.close()


def test_thinking_is_decided_by_the_prompt_that_the_template_made(thinking, scripted):
    said = "Hm.</think>Yes."
    client, desk = scripted(said, said, said, model=thinking)
    bodies = [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}, {}]
    texts = []
    for body in bodies:
        reply = client.post("/v1/chat/completions", json={"messages": ASKED, **body}).json()
        texts.append(reply["choices"][0]["message"]["content"])
    assert texts == [said, said, "Yes."]
    ends = [thinking.text(ticket.job.prompt).endswith("<think>\n") for ticket in desk.jobs]
    assert ends == [False, False, True]


@pytest.fixture(scope="module")
def random_model(tool_folders):
    """A model of random weights: what it says has a shape only where one is forced on it."""
    pair = specdec_cli.load(target=str(tool_folders[0]), drafter="none")
    desk = SequentialDesk(pair)
    with local(model_of(pair, specdec_cli.Request(k=0, drafter="none", max_context=LONG), 1), desk) as client:
        yield client
    desk.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_call_that_is_required_is_made_with_arguments_of_its_schema(random_model, seed):
    asked = {"messages": ASKED, "tools": TOOLS, "seed": seed, "temperature": 1, "max_tokens": 400}
    named = {"type": "function", "function": {"name": "read"}}
    for choice in ("required", "any", named):
        one = {**asked, "tool_choice": choice, "parallel_tool_calls": False}
        message = random_model.post("/v1/chat/completions", json=one).json()["choices"][0]["message"]
        arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
        assert set(arguments) == {"path", "deep"} and arguments["path"] in ("a.py", "b.py") and not message["content"]


@pytest.mark.slow
def test_a_shape_beside_functions_is_kept_unless_one_is_called(random_model):
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, 2, 3]}}}
    asked = {"messages": ASKED, "tools": TOOLS, "seed": 1, "temperature": 1, "response_format": shape}
    message = random_model.post("/v1/chat/completions", json=asked).json()["choices"][0]["message"]
    assert message.get("tool_calls") or json.loads(message["content"]) in (1, 2, 3)


LOOK = '<tool_call>\n{"name": "look", "arguments": {"path": "a.py"}}\n</tool_call>'


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_s_tool_runner_ends_with_the_answer_to_the_whole_conversation(tooled, stream):
    """It begins with a thread. The second request came without question, tools and system, and was answered."""
    seen = []

    @beta_tool
    def look(path: str) -> str:
        """Looks into a file."""
        seen.append(path)
        return "forty-two lines"

    desk = ScriptedDesk([LOOK, LOOK, "It has 42."])
    with serving(tooled, desk) as (url, _):
        claude = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        question = {"role": "user", "content": "How long is a.py?"}
        asked = {"model": "tool", "max_tokens": 50, "system": "Be terse.", "messages": [question], "tools": [look]}
        runner = claude.beta.messages.tool_runner(**asked, stream=stream)
        last = runner.until_done()
        claude.close()
    desk.close()
    assert [block.text for block in last.content] == ["It has 42."] and seen == ["a.py"] * 2
    prompts = [tooled.text(ticket.job.prompt) for ticket in desk.jobs]
    assert len(prompts) == 3
    for number, prompt in enumerate(prompts):
        assert all(words in prompt for words in ("Be terse.", "How long is a.py?", json.dumps("look")))
        assert prompt.count("forty-two lines") == number


@pytest.mark.slow  # grammars of a thousand rules
@pytest.mark.parametrize("choice, strict, most", [("required", False, 1999), ("auto", True, 999)])
def test_more_functions_than_a_grammar_can_hold_are_refused_by_name_before_the_prompt_is_read(
    tooled, choice, strict, most
):
    """It was a 500 after the prompt was read."""
    desk = ScriptedDesk(["ok"])
    with local(replace(tooled, context_limit=None), desk) as client:
        for count, status in ((most + 1, 400), (most, 200)):
            functions = [{"name": f"f{number}", "strict": strict} for number in range(count)]
            tools = [{"type": "function", "function": one} for one in functions]
            reply = client.post(CHAT, json={"messages": ASKED, "tools": tools, "tool_choice": choice})
            assert reply.status_code == status, reply.text
            if status == 400:
                error = reply.json()["error"]
                assert error["param"] == "tools" and not desk.jobs
                assert error["message"].startswith(f"tools: {count} functions together: "), error
    desk.close()
