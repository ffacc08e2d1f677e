"""Tools with the forms of Llama 3, Gemma 3 and gpt-oss: the same request in each dialect, streamed or not, and back."""

import json

import anthropic
import openai
import pytest

import specdec_cli
from fakes.call_models import KINDS, call_model, weigh
from fakes.desk import ScriptedDesk, SequentialDesk
from fakes.server import LOCAL, local
from fakes.serving import model_of

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "read", "description": "Reads a file.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
ASKED = [{"role": "user", "content": "Read both."}]
CHAT = "/v1/chat/completions"
A, B = ("read", {"path": "a.py"}), ("read", {"path": "b.py"})
CHANNEL, ARGUMENTS = "<|start|>assistant<|channel|>", " to=functions.read <|constrain|>json<|message|>"
# (what the model says, thinking, text, calls); gpt-oss ends its turn with a call.
SAID = {
    "llama": (
        'I look.\n{"name": "read", "parameters": {"path": "a.py"}}; {"name": "read", "parameters": {"path": "b.py"}}',
        *("", "I look.", [A, B]),
    ),
    "gemma": (
        'I look.\n```json\n[{"name": "read", "parameters": {"path": "a.py"}},\n'
        '{"name": "read", "parameters": {"path": "b.py"}}]\n```',
        *("", "I look.", [A, B]),
    ),
    "oss": (
        f"<|channel|>analysis<|message|>Hm.<|end|>{CHANNEL}commentary<|message|>I look.<|end|>{CHANNEL}commentary"
        f'{ARGUMENTS}{{"path": "a.py"}}',
        *("Hm.", "I look.", [A]),
    ),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {kind: call_model(tmp_path_factory.mktemp("calls") / kind, kind) for kind in KINDS}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def scripted(models):
    """Starts a server whose model says a script, some letters at a time."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(kind, *script):
            desk = ScriptedDesk(script, steps=lambda text: [text[at : at + 3] for at in range(0, len(text), 3)])
            stack.callback(desk.close)
            return stack.enter_context(local(models[kind], desk)), desk

        yield start


def test_chat_completions_tell_thinking_text_and_calls_and_take_them_back(scripted, kind):
    said, thinking, text, calls = SAID[kind]
    client, desk = scripted(kind, said, said, "Done.")
    gpt = openai.OpenAI(base_url=f"{LOCAL}/v1", api_key="none", http_client=client)
    asked = {"model": "calls", "tools": TOOLS}
    whole = gpt.chat.completions.create(messages=ASKED, **asked).choices[0]
    with gpt.chat.completions.stream(messages=ASKED, **asked) as stream:
        thought = [getattr(e.chunk.choices[0].delta, "reasoning_content", "") for e in stream if e.type == "chunk"]
        last = stream.get_final_completion().choices[0]
    for choice in (whole, last):
        found = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]
        assert (choice.message.content, found, choice.finish_reason) == (text, calls, "tool_calls")
    assert getattr(whole.message, "reasoning_content", "") == thinking == "".join(filter(None, thought))
    results = [{"role": "tool", "tool_call_id": one.id, "content": "text"} for one in whole.message.tool_calls]
    gpt.chat.completions.create(messages=[*ASKED, whole.message.model_dump(exclude_none=True), *results], **asked)
    assert desk.jobs[-1].job.prompt[:40] == desk.jobs[0].job.prompt[:40]
    gpt.close()


def test_responses_carry_them_as_items_and_take_them_back(scripted, kind):
    said, thinking, text, calls = SAID[kind]
    client, _ = scripted(kind, said, said, "Done.")
    gpt = openai.OpenAI(base_url=f"{LOCAL}/v1", api_key="none", http_client=client)
    asked = {"model": "calls", "tools": [{"type": "function", **FUNCTION}]}
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
    gpt.close()


def test_messages_carry_them_as_blocks_and_take_them_back(scripted, kind):
    said, thinking, text, calls = SAID[kind]
    client, _ = scripted(kind, said, said, "Done.")
    claude = anthropic.Anthropic(base_url=LOCAL, api_key="none", http_client=client)
    tools = [{"name": "read", "description": "Reads a file.", "input_schema": PARAMETERS}]
    asked = {"model": "calls", "max_tokens": 50, "tools": tools}
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
    claude.close()


def test_a_call_is_forced_in_the_form_that_is_read(scripted, kind):
    client, desk = scripted(kind, *["Done."] * 3)
    for choice in ("required", {"type": "function", "function": {"name": "read"}}):
        asked = {"messages": ASKED, "tools": TOOLS, "tool_choice": choice}
        assert client.post(CHAT, json=asked).status_code == 200
    assert client.post(CHAT, json={"messages": ASKED, "tools": TOOLS}).status_code == 200
    (first, second), free = [ticket.job.request.constraint for ticket in desk.jobs[:2]], desk.jobs[2].job.request
    assert first == second and "read" in first.text and first.whole == (kind == "oss") and free.constraint is None


@pytest.mark.parametrize("broken", ['{"path": "a', '{"path": NaN}', '["a.py"]'])
def test_a_call_that_cannot_be_read_is_text(scripted, kind, broken):
    head, tail = SAID[kind][0].split('{"path": "a.py"}')[0].split("I look.")
    client, _ = scripted(kind, "I look." + tail + broken if kind != "oss" else head + "I look." + tail + broken)
    choice = client.post(CHAT, json={"messages": ASKED, "tools": TOOLS}).json()["choices"][0]
    assert broken in choice["message"]["content"] and choice["finish_reason"] == "stop"
    assert not choice["message"].get("tool_calls")


def test_thinking_is_counted_until_its_channel_ends(scripted):
    """A turn that ended with a call was all thinking."""
    client, _ = scripted("oss", SAID["oss"][0])
    usage = client.post(CHAT, json={"messages": ASKED, "tools": TOOLS}).json()["usage"]
    thought = len("<|channel|>analysis<|message|>Hm.<|end|>")
    assert usage["completion_tokens_details"]["reasoning_tokens"] == -(-thought // 3)  # a token is three letters here


def test_gpt_oss_answers_without_channels_where_no_tools_are_offered(scripted):
    client, _ = scripted("oss", f"<|channel|>analysis<|message|>Hm.<|end|>{CHANNEL}final<|message|>Yes.")
    message = client.post(CHAT, json={"messages": ASKED}).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")


@pytest.mark.slow
def test_a_model_of_random_weights_calls_what_it_must_and_with_arguments_of_the_schema(tmp_path, kind):
    tokenizer = call_model(tmp_path / kind, kind).tokenizer
    weigh(tmp_path / kind, tokenizer)
    pair = specdec_cli.load(target=str(tmp_path / kind), drafter="none")
    desk = SequentialDesk(pair)
    schema = {**PARAMETERS, "properties": {"path": {"enum": ["a.py", "b.py"]}}, "additionalProperties": False}
    tools = [{"type": "function", "function": {**FUNCTION, "parameters": schema}}]
    asked = {"messages": ASKED, "tools": tools, "tool_choice": "required", "temperature": 1, "max_tokens": 500}
    if kind == "oss":  # it would think for ever
        asked["logit_bias"] = {str(tokenizer.token_of("<|end|>")): 6}
    with local(model_of(pair, specdec_cli.Request(k=0, drafter="none", max_context=4096), 1), desk) as client:
        for seed in range(3):
            reply = client.post(CHAT, json={**asked, "seed": seed, "parallel_tool_calls": False}).json()
            message = reply["choices"][0]["message"]
            (call,) = message["tool_calls"]
            assert json.loads(call["function"]["arguments"])["path"] in ("a.py", "b.py")
            assert kind == "oss" or not message["content"]
    desk.close()
