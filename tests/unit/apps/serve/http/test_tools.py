"""Calls of functions in every form of models: told as they come, and taken back."""

import json
from dataclasses import replace

import anthropic
import openai
import pytest
from llguidance import LLMatcher, LLTokenizer

import specdec_cli
from fakes.call_models import KINDS, call_model
from fakes.desk import by_letters
from fakes.models import TINY, byte_tokenizer, tiny_folder
from fakes.server import LOCAL
from fakes.serving import model_of
from specdec_cli.apps.serve.http.answer import ChatRequest, ServedAnswer
from specdec_cli.apps.serve.http.tools import arguments_schema
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.core.events import Finish, Round, RoundDone
from specdec_cli.core.request import Request

PARAMETERS = {
    "type": "object",
    "properties": {"path": {"enum": ["a.py", "b.py"]}, "deep": {"type": "boolean"}},
    "required": ["path", "deep"],
    "additionalProperties": False,
}
FUNCTION = {"name": "read", "description": "Reads a file.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
ASKED = [{"role": "user", "content": "Read a.py."}]
ANTHROPIC = [{"name": "read", "description": "Reads a file.", "input_schema": PARAMETERS}]
CHAT = "/v1/chat/completions"


def written(path, deep=True, name="read"):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': {'path': path, 'deep': deep}})}\n</tool_call>"


A, B = ("read", {"path": "a.py", "deep": True}), ("read", {"path": "b.py", "deep": False})
END = "</tool_call>"


CHANNEL, ARGUMENTS = "<|start|>assistant<|channel|>", " to=functions.read <|constrain|>json<|message|>"
# (what the model says, thinking, text, calls); gpt-oss ends its turn with a call.
DONE = {"qwen": "</think>Done.", "llama": "Done.", "gemma": "Done.", "oss": "Done."}
SAID = {
    "qwen": (
        f"Hm.\n</think>\n\nI look.\n{written('a.py')}\n{written('b.py', False)}",
        *("Hm.", "I look.", [A, B]),
    ),
    "llama": (
        'I look.\n{"name": "read", "parameters": {"path": "a.py", "deep": true}}; '
        '{"name": "read", "parameters": {"path": "b.py", "deep": false}}',
        *("", "I look.", [A, B]),
    ),
    "gemma": (
        'I look.\n```json\n[{"name": "read", "parameters": {"path": "a.py", "deep": true}},\n'
        '{"name": "read", "parameters": {"path": "b.py", "deep": false}}]\n```',
        *("", "I look.", [A, B]),
    ),
    "oss": (
        f"<|channel|>analysis<|message|>Hm.<|end|>{CHANNEL}commentary<|message|>I look.<|end|>{CHANNEL}commentary"
        f'{ARGUMENTS}{{"path": "a.py", "deep": true}}',
        *("Hm.", "I look.", [A]),
    ),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory, thinking):
    """A model without weights of every kind."""
    root = tmp_path_factory.mktemp("calls")
    return {"qwen": thinking, **{kind: call_model(root / kind, kind) for kind in KINDS}}


@pytest.fixture(params=SAID)
def kind(request):
    return request.param


@pytest.fixture
def saying(models, scripted):
    """Starts a server whose model says these texts, some letters at a time: (a client, its desk)."""
    return lambda kind, *script: scripted(*script, steps=by_letters, model=models[kind])


@pytest.fixture
def clients():
    """Makes OpenAI's and Anthropic's clients of a server's client."""
    made = []

    def make(client):
        made.append(openai.OpenAI(base_url=f"{LOCAL}/v1", api_key="none", http_client=client))
        made.append(anthropic.Anthropic(base_url=LOCAL, api_key="none", http_client=client))
        return made[-2:]

    yield make
    for one in made:
        one.close()


def test_chat_completions_tell_thinking_text_and_calls_and_take_them_back(saying, clients, kind):
    said, thinking, text, calls = SAID[kind]
    client, desk = saying(kind, said, said, DONE[kind])
    gpt, _ = clients(client)
    asked = {"model": "default", "tools": TOOLS}
    whole = gpt.chat.completions.create(messages=ASKED, **asked).choices[0]
    with gpt.chat.completions.stream(messages=ASKED, **asked) as stream:
        thought = [getattr(e.chunk.choices[0].delta, "reasoning_content", None) for e in stream if e.type == "chunk"]
        last = stream.get_final_completion().choices[0]
    for choice in (whole, last):
        found = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]
        assert (choice.message.content, found, choice.finish_reason) == (text, calls, "tool_calls")
    assert getattr(whole.message, "reasoning_content", "") == thinking == "".join(filter(None, thought))
    assert "" not in thought
    results = [{"role": "tool", "tool_call_id": one.id, "content": "text"} for one in whole.message.tool_calls]
    gpt.chat.completions.create(messages=[*ASKED, whole.message.model_dump(exclude_none=True), *results], **asked)
    assert desk.jobs[-1].job.prompt[:40] == desk.jobs[0].job.prompt[:40]


def test_responses_carry_them_as_items_and_take_them_back(saying, clients, kind):
    said, thinking, text, calls = SAID[kind]
    client, _ = saying(kind, said, said, DONE[kind])
    gpt, _ = clients(client)
    asked = {"model": "default", "tools": [{"type": "function", **FUNCTION}]}
    whole = gpt.responses.create(input=ASKED, **asked)
    with gpt.responses.stream(input=ASKED, **asked) as stream:
        for _ in stream:
            pass
        last = stream.get_final_response()
    kinds = [*(["reasoning"] if thinking else []), "message", *["function_call"] * len(calls)]
    for response in (whole, last):
        assert [item.type for item in response.output] == kinds and response.output_text == text
        items = [item for item in response.output if item.type == "function_call"]
        assert [(item.name, json.loads(item.arguments)) for item in items] == calls
    results = [{"type": "function_call_output", "call_id": one.call_id, "output": "text"} for one in items]
    assert gpt.responses.create(input=[*ASKED, *last.output, *results], **asked).output_text == "Done."


def test_messages_carry_them_as_blocks_and_take_them_back(saying, clients, kind):
    said, thinking, text, calls = SAID[kind]
    client, _ = saying(kind, said, said, DONE[kind])
    _, claude = clients(client)
    asked = {"model": "default", "max_tokens": 50, "tools": ANTHROPIC}
    asked |= {"thinking": {"type": "adaptive"}} if thinking else {}
    whole = claude.messages.create(messages=ASKED, **asked)
    with claude.messages.stream(messages=ASKED, **asked) as stream:
        last = stream.get_final_message()
    for message in (whole, last):
        blocks = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
        words = {block.type: getattr(block, block.type) for block in message.content if block.type != "tool_use"}
        assert (blocks, message.stop_reason) == (calls, "tool_use")
        assert words == {**({"thinking": thinking} if thinking else {}), "text": text}
    used = [block.id for block in whole.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": one, "content": "text"} for one in used]
    turns = [*ASKED, {"role": "assistant", "content": whole.content}, {"role": "user", "content": results}]
    assert claude.messages.create(messages=turns, **asked).content[0].text == "Done."


def test_a_call_is_forced_in_the_form_that_is_read(saying, kind):
    client, desk = saying(kind, *["Done."] * 3)
    for choice in ("required", {"type": "function", "function": {"name": "read"}}):
        asked = {"messages": ASKED, "tools": TOOLS, "tool_choice": choice}
        assert client.post(CHAT, json=asked).status_code == 200
    assert client.post(CHAT, json={"messages": ASKED, "tools": TOOLS}).status_code == 200
    first, second, free = [handle.job.request.constraint for handle in desk.jobs]
    assert first == second and "read" in first.text and first.whole == (kind == "oss") and free is None


@pytest.mark.parametrize("reason", ["length", "repetition"])
def test_a_call_that_is_cut_is_no_call(scripted, models, reason):
    """Behind the mark of its arguments it was a call without any, and the reason to stop was a call."""
    said, _, _ = SAID["oss"][0].rpartition('{"path"')
    client, _ = scripted(said, steps=by_letters, model=models["oss"], reason=reason)
    reply = client.post(CHAT, json={"messages": ASKED, "tools": TOOLS}).json()
    choice, thought = reply["choices"][0], len("<|channel|>analysis<|message|>Hm.<|end|>")
    # A token is three letters here. A turn that ended with a call was all thinking.
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == -(-thought // 3)
    assert choice["finish_reason"] == ("length" if reason == "length" else "stop")
    assert choice["message"]["content"] == "I look." and not choice["message"].get("tool_calls")


def test_a_call_that_a_stop_of_the_client_s_cuts_is_no_call(models):
    """A token of `stop_token_ids` was taken for the model's own end."""
    said, _, _ = SAID["oss"][0].rpartition('{"path"')
    tokenizer = models["oss"].tokenizer
    tokens, (brace,), own = tuple(tokenizer.continuation(said)), tokenizer.continuation("{"), min(tokenizer.stop_tokens)
    for end, calls in ((brace, []), (own, [("read", "{}")])):
        answer = ServedAnswer(models["oss"], ChatRequest(Request(stop_tokens=(brace, own)), tools=tuple(TOOLS)), ())
        answer.feed(RoundDone(Round(0, "none", (), 0, end, (*tokens, end), 0.0, 0.1), (), "", said))
        answer.feed(Finish("stop", said, tokens, "", {"emitted_tokens": len(tokens) + 1}))
        assert [(call.name, call.arguments) for call in answer.calls] == calls
    for stop, calls in (('{"', []), ("no", [("read", "{}")])):
        answer = ServedAnswer(models["oss"], ChatRequest(Request(stop=(stop,)), tools=tuple(TOOLS)), ())
        tokens = tuple(models["oss"].tokenizer.continuation(said + '{"'))
        answer.feed(Finish("stop", said, tokens, said, {"emitted_tokens": len(tokens) + len(calls)}))
        assert [(call.name, call.arguments) for call in answer.calls] == calls


QUOTED = f"So {written('a.py')} or a <tool_call>?"
LEFT_OPEN = f"I read it.\n{written('a.py')}\n{written('b.py', False)}"


@pytest.mark.parametrize(
    ("said", "thought", "text", "calls"),
    [
        (LEFT_OPEN, "I read it.", "", [A, B]),
        (LEFT_OPEN.removesuffix(END), "I read it.", "", [A, B]),
        (f"{QUOTED}</think>Done.", QUOTED, "Done.", []),
    ],
)
def test_a_call_in_thinking_counts_where_the_answer_ends_with_it_and_is_a_thought_elsewhere(
    saying, said, thought, text, calls
):
    """It was a thought in any case: without `</think>` before its call, an agent stood still."""
    client, _ = saying("qwen", said)
    reply = client.post(CHAT, json={"messages": ASKED, "tools": TOOLS}).json()
    message = reply["choices"][0]["message"]
    functions = [call["function"] for call in message.get("tool_calls", [])]
    found = [(one["name"], json.loads(one["arguments"])) for one in functions]
    assert (message["reasoning_content"], message["content"] or "", found) == (thought, text, calls)
    counted = f"{thought}</think>" if text else f"{thought}\n<tool_call"
    tokens = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert abs(tokens - len(counted) / 3) < 1  # a token is three letters here


def test_gpt_oss_answers_without_channels_where_no_tools_are_offered(saying):
    client, _ = saying("oss", f"<|channel|>analysis<|message|>Hm.<|end|>{CHANNEL}final<|message|>Yes.")
    message = client.post(CHAT, json={"messages": ASKED}).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")


@pytest.fixture
def weighed(tmp_path, start, tool_folders):
    """Starts a server with a model of random weights, which says what has a shape only where that is forced on it."""

    def begin(kind, k):
        folder = tool_folders[0]
        if kind != "qwen":
            template, special = KINDS[kind]
            config = TINY | {"max_position_embeddings": 65_536}
            folder = tiny_folder(tmp_path / kind, config, seed=3, special=special, chat_template=template)
        pair = specdec_cli.load(target=str(folder), drafter="ngram")
        base = specdec_cli.Request(k=k, drafter="ngram" if k else "none", max_context=4096)
        return start(Scheduler(lambda name: pair, SchedulerOptions(idle_seconds=None)), model_of(pair, base, 1))

    return begin


@pytest.mark.parametrize("k", [0, 4])
def test_a_model_of_random_weights_calls_what_it_must_and_with_arguments_of_the_schema(weighed, models, kind, k):
    """The grammar of each form over the real loop, plain and drafted; unless it must it calls nothing."""
    client = weighed(kind, k)
    asked = {"messages": ASKED, "tools": TOOLS, "temperature": 1, "max_tokens": 400, "parallel_tool_calls": False}
    if kind == "oss":  # it would think for ever
        asked["logit_bias"] = {str(models[kind].tokenizer.token_of("<|end|>")): 6}
    free = client.post(CHAT, json={**asked, "seed": 3, "max_tokens": 20}).json()["choices"][0]["message"]
    assert "tool_calls" not in free
    named = {"type": "function", "function": {"name": "read"}}
    for seed, choice in enumerate((named, "any") if k else ("required",)):
        reply = client.post(CHAT, json={**asked, "seed": seed, "tool_choice": choice})
        (found,) = reply.json()["choices"]
        (call,) = found["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        assert {*arguments} == {"path", "deep"} and arguments["path"] in ("a.py", "b.py")
        assert found["finish_reason"] == "tool_calls" and (kind == "oss" or not found["message"]["content"])


def test_a_shape_beside_functions_is_kept_unless_one_is_called(weighed):
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, 2, 3]}}}
    asked = {"messages": ASKED, "tools": TOOLS, "seed": 1, "temperature": 1, "response_format": shape}
    message = weighed("qwen", 0).post(CHAT, json=asked).json()["choices"][0]["message"]
    assert message.get("tool_calls") or json.loads(message["content"]) in (1, 2, 3)


def test_a_function_of_a_namespace_is_called_by_both_names_as_codex_groups_those_of_a_server(tooled, scripted, clients):
    """Its servers' functions were dropped, and those of its own agents."""
    said = written("a.py", name="mcp__files.read")
    client, desk = scripted(said, said, "Done.")
    gpt, _ = clients(client)
    space = {"type": "namespace", "name": "mcp__files", "description": "d", "tools": [{"type": "function", **FUNCTION}]}
    asked = {"model": "tool", "tools": [space]}
    (item,) = gpt.responses.create(input="Read.", **asked).output
    with gpt.responses.stream(input="Read.", **asked) as stream:
        told = [event.item for event in stream if event.type == "response.output_item.done"]
    assert [(one.namespace, one.name, json.loads(one.arguments)) for one in (item, *told)] == [("mcp__files", *A)] * 2
    result = {"type": "function_call_output", "call_id": item.call_id, "output": "text"}
    gpt.responses.create(input=[{"role": "user", "content": "Read."}, item, result], **asked)
    assert '<tool_call>\n{"name": "mcp__files.read"' in tooled.text(desk.jobs[-1].job.prompt)


def test_a_namespace_in_another_keeps_all_its_functions_and_one_may_be_empty(tooled, scripted):
    """All but the first of the inner one's were dropped, and an empty inner one was a 500."""
    client, desk = scripted("Done.")
    empty, both = {"type": "namespace", "name": "e"}, [{"type": "function", "name": name} for name in "ab"]
    space = {"type": "namespace", "name": "n", "tools": [empty, {"type": "namespace", "name": "m", "tools": both}]}
    assert client.post("/v1/responses", json={"input": "Hi", "tools": [space, empty]}).status_code == 200
    prompt = tooled.text(desk.jobs[-1].job.prompt)
    assert [prompt.count(f'"n.m.{name}"') for name in "ab"] == [1, 1]


NO_TYPE = [{}, {"description": "none"}, {"properties": {"a": {"type": "string"}}}, {"type": ["object", "null"]},
           {"anyOf": [{"type": "object", "properties": {"a": {}}}, {"type": "number"}]},
           {"$ref": "#/$defs/a", "$defs": {"a": {"minProperties": 0}}}]  # fmt: skip


@pytest.mark.parametrize("parameters", NO_TYPE)
def test_arguments_are_an_object_whatever_their_schema_leaves_open(parameters):
    """With `"parameters": {}` a required call had the arguments `6e9`, so that it stayed text."""
    schema = arguments_schema({"name": "f", "parameters": parameters}, set())
    tokenizer = LLTokenizer(byte_tokenizer().to_str(), n_vocab=259, eos_token=[2])
    for begin, may in {"{": 1, "6": 0, "n": 0, '"': 0, "[": 0}.items():
        matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema), log_level=0)
        assert matcher.validate_tokens(byte_tokenizer().encode(begin).ids) == may


def test_one_call_is_enough_where_the_client_says_so(scripted):
    client, desk = scripted(SAID["qwen"][0] + "x" * 3000, steps=by_letters)
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
    posted = {
        "chat": {"messages": chat, "tools": TOOLS},
        "messages": {"system": [checksum, brief], "messages": messages, "tools": ANTHROPIC, "max_tokens": 9},
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
    one, two = (handle.job for handle in desk.jobs)
    assert one.prompt[: one.reusable_prefixes[-1]] == two.prompt[: one.reusable_prefixes[-1]]
    first = one.reusable_prefixes[0]
    assert tooled.text(one.prompt[:first]) == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"


def test_thinking_is_decided_by_the_prompt_that_the_template_made(thinking, scripted):
    said = "Hm.</think>Yes."
    client, desk = scripted(said, said, said, model=thinking)
    bodies = [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}, {}]
    texts = []
    for body in bodies:
        reply = client.post("/v1/chat/completions", json={"messages": ASKED, **body}).json()
        texts.append(reply["choices"][0]["message"]["content"])
    assert texts == [said, said, "Yes."]
    ends = [thinking.text(handle.job.prompt).endswith("<think>\n") for handle in desk.jobs]
    assert ends == [False, False, True]


@pytest.mark.slow  # grammars of a thousand rules
@pytest.mark.parametrize("choice, strict, most", [("required", False, 1999), ("auto", True, 999)])
def test_more_functions_than_a_grammar_can_hold_are_refused_by_name_before_the_prompt_is_read(
    tooled, scripted, choice, strict, most
):
    """It was a 500 after the prompt was read."""
    client, desk = scripted(model=replace(tooled, context_limit=None))
    for count, status in ((most + 1, 400), (most, 200)):
        tools = [{"type": "function", "function": {"name": f"f{one}", "strict": strict}} for one in range(count)]
        reply = client.post(CHAT, json={"messages": ASKED, "tools": tools, "tool_choice": choice})
        assert (reply.status_code, len(desk.jobs)) == (status, status == 200), reply.text
        if status == 400:
            error = reply.json()["error"]
            assert error["param"] == "tools"
            assert error["message"].startswith(f"tools: {count} functions together: "), error
