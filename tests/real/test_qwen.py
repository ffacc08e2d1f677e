"""Qwen2.5-Coder-1.5B-Instruct, a released model of 151,936 entries: chat, shapes, calls of tools, gaps in code."""

from __future__ import annotations

import json

import anthropic
import httpx
import openai
import pytest

import specdec_cli as specdec
from fakes.server import serving
from fakes.serving import model_of
from real import released
from real.answers import spoken
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
TOKENS, IM_END = 32, 151_645
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
ABOUT = "The weather in a city now."
ASKED = "What is the weather in Paris, in celsius? Use the function."
GAP = {"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n\nprint(add(1, 2))\n", "n_predict": 16}


def test_a_schema_holds_with_drafts_and_without_and_takes_fewer_passes(qwen_pair):
    shape = specdec.Constraint("schema", json.dumps(SCHEMA))
    ids = qwen_pair.message_tokens([{"role": "user", "content": ASKED}])
    plain, _ = spoken(qwen_pair, ids, TOKENS, temperature=0, k=0, constraint=shape)
    said, finish = spoken(qwen_pair, ids, TOKENS, temperature=0, k=4, constraint=shape)
    assert said == plain and finish.stats["target_passes"] < len(said)
    assert json.loads(finish.text)["unit"] in ("celsius", "fahrenheit")


@pytest.fixture(scope="module")
def small(qwen):
    """The model in 4 bits, in this thread."""
    return specdec.load(target=str(released.four_bits(qwen)))


def test_a_turns_end_written_by_a_user_stays_text(small):
    ids = small.message_tokens([{"role": "user", "content": "Say <|im_end|> twice."}])
    assert ids.count(IM_END) == 2  # the system's turn, which the template adds, and the user's


def test_a_chat_ends_by_itself_and_says_its_model_s_sampling_values(small):
    events = list(small.session().reply("Answer with one word: is the sky blue?", max_tokens=24, temperature=0))
    assert events[-1].reason == "stop" and "yes" in events[-1].text.lower()
    assert "<|im_end|>" not in events[-1].text


@pytest.fixture(scope="module")
def url(small, qwen):
    folder = str(qwen)  # a processor reads a long prompt several times faster in float32 than in 4 bits
    desk = Scheduler(lambda name: specdec.load(target=folder), SchedulerOptions(idle_seconds=None))
    with serving(model_of(small, specdec.Request(), 1), desk) as (url, _):
        yield url
    desk.close()


def asked_of_openai(url, strict):
    function = {"name": "get_weather", "description": ABOUT, "parameters": SCHEMA, "strict": strict}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", timeout=900) as client:
        answer = client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": ASKED}], temperature=0, max_tokens=80,
            tools=[{"type": "function", "function": function}], tool_choice="required" if strict else "auto",
        )  # fmt: skip
    return answer.choices[0]


def test_a_tool_is_called_through_openai_s_client(url):
    choice = asked_of_openai(url, strict=True)
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "get_weather")
    assert json.loads(call.function.arguments)["city"] == "Paris"


def test_a_call_that_is_not_between_its_marks_stays_text(url):
    """Its template shows calls in double braces by mistake, and the model writes objects without the marks."""
    choice = asked_of_openai(url, strict=False)
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert '"name": "get_weather"' in choice.message.content


def test_a_tool_is_called_through_anthropic_s_client(url):
    with anthropic.Anthropic(base_url=url, api_key="any", timeout=900) as client:
        answer = client.messages.create(
            model="default", messages=[{"role": "user", "content": ASKED}], max_tokens=80,
            extra_body={"temperature": 0},
            tools=[{"name": "get_weather", "description": ABOUT, "input_schema": SCHEMA}],
            tool_choice={"type": "any"},
        )  # fmt: skip
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and call.input["city"] == "Paris"


def test_a_gap_in_code_is_filled(url):
    with httpx.Client(base_url=url, timeout=900) as client:
        answer = client.post("/infill", json={**GAP, "temperature": 0})
    assert answer.status_code == 200, answer.text
    assert answer.json()["content"].strip() in ("a + b", "a+b")
