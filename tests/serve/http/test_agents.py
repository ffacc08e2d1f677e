"""What an agent does, with real weights and in three dialects: a call, its result, and the answer to it."""

from __future__ import annotations

import anthropic
import openai
import pytest

import specdec_cli
from fakes.scripted_model import OTHERWISE, Script, scripted_folder
from fakes.server import serving
from specdec_cli.request import Request
from specdec_cli.serve.model import Model
from specdec_cli.serve.scheduler import Scheduler, SchedulerOptions

pytestmark = pytest.mark.slow  # a server that listens

SCRIPT = Script("list_files", {"folder": "src", "hidden": False}, "Two files: main.py and README.md.")
SCHEMA = {"type": "object", "properties": {"folder": {"type": "string"}, "hidden": {"type": "boolean"}}}
LONG_SYSTEM = "".join(f"Rule {i}: keep every answer short. " for i in range(170))  # 6,000 bytes, so 6,000 tokens
RESULT, ASKED = "main.py\nREADME.md", "What is in src?"
FUNCTION = {"name": SCRIPT.function, "description": "Lists a folder.", "parameters": SCHEMA}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = scripted_folder(tmp_path_factory.mktemp("agents") / "scripted", [SCRIPT])
    pair = specdec_cli.load(target=str(folder))
    desk = Scheduler(lambda: pair, SchedulerOptions(idle_seconds=None))
    with serving(Model.of(pair, Request(k=4), 1), desk) as (url, _):
        yield url
    desk.close()


@pytest.fixture
def gpt(url):
    """Closed, or a collection elsewhere would find its socket open."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        yield client


@pytest.fixture
def claude(url):
    with anthropic.Anthropic(base_url=url, api_key="any") as client:
        yield client


def test_without_its_function_the_model_says_so(gpt):
    answer = gpt.chat.completions.create(model="default", messages=[{"role": "user", "content": ASKED}])
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (OTHERWISE, "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_chat_calls_and_goes_on_with_the_result(gpt, stream):
    tools = [{"type": "function", "function": FUNCTION}]
    messages = [{"role": "system", "content": LONG_SYSTEM}, {"role": "user", "content": ASKED}]

    def said():
        asked = {"model": "default", "messages": messages, "tools": tools}
        if not stream:
            return gpt.chat.completions.create(**asked)
        with gpt.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
            return events.get_final_completion()

    first = said()
    call = first.choices[0].message.tool_calls[0]
    assert first.choices[0].finish_reason == "tool_calls" and call.function.name == SCRIPT.function
    assert call.function.arguments == '{"folder": "src", "hidden": false}'
    again = {"id": call.id, "type": "function", "function": call.function.model_dump(include={"name", "arguments"})}
    messages.append({"role": "assistant", "content": None, "tool_calls": [again]})
    messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
    second = said()
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == (SCRIPT.ending, "stop")
    assert first.usage.prompt_tokens > 6000
    read_again = first.usage.prompt_tokens - second.usage.prompt_tokens_details.cached_tokens
    # The template's opener is the first id that changes once the call stands there.
    assert read_again <= 1


def test_responses_call_and_go_on_with_the_result(gpt):
    asked = {"model": "default", "instructions": LONG_SYSTEM, "tools": [{"type": "function", **FUNCTION}]}
    items = [{"role": "user", "content": ASKED}]
    first = gpt.responses.create(input=items, **asked)
    call = next(item for item in first.output if item.type == "function_call")
    assert (call.name, call.arguments) == (SCRIPT.function, '{"folder": "src", "hidden": false}')
    items += [
        call.model_dump(include={"type", "call_id", "name", "arguments"}),
        {"type": "function_call_output", "call_id": call.call_id, "output": RESULT},
    ]
    second = gpt.responses.create(input=items, **asked)
    assert second.output_text == SCRIPT.ending
    assert first.usage.input_tokens - second.usage.input_tokens_details.cached_tokens <= 1


@pytest.mark.parametrize("stream", [False, True])
def test_messages_call_and_go_on_with_the_result(claude, stream):
    tools = [{"name": SCRIPT.function, "description": "Lists a folder.", "input_schema": SCHEMA}]
    messages = [{"role": "user", "content": ASKED}]
    header = "x-anthropic-billing-header: cc_version=2; cch="

    def said(turn):
        # Claude Code's first block is another one in every request.
        system = [{"type": "text", "text": f"{header}{turn};"}, {"type": "text", "text": LONG_SYSTEM}]
        asked = {"model": "default", "max_tokens": 200, "system": system, "messages": messages, "tools": tools}
        if not stream:
            return claude.messages.create(**asked)
        with claude.messages.stream(**asked) as events:
            return events.get_final_message()

    first = said(1)
    call = next(block for block in first.content if block.type == "tool_use")
    assert first.stop_reason == "tool_use" and (call.name, call.input) == (SCRIPT.function, SCRIPT.arguments)
    messages.append({"role": "assistant", "content": [block.model_dump() for block in first.content]})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
    messages.append({"role": "user", "content": [result]})
    second = said(2)
    assert (second.content[0].text, second.stop_reason) == (SCRIPT.ending, "end_turn")
    read = first.usage.input_tokens + (first.usage.cache_read_input_tokens or 0)
    assert read > 6000 and read - second.usage.cache_read_input_tokens <= 1
