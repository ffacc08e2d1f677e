"""Real clients, unmodified: what they read is what `Session.reply` says to the same ids."""

import itertools

import anthropic
import openai
import pytest
from pydantic import BaseModel

from fakes.server import LOCAL
from specdec_cli.core.request import Request

pytestmark = pytest.mark.slow  # a model's own answers
ASKED = [{"role": "user", "content": "Return the lines of a file."}]


@pytest.fixture(scope="module")
def gpt(client):
    return openai.OpenAI(base_url=f"{LOCAL}/v1", api_key="none", max_retries=0, http_client=client)


@pytest.fixture(scope="module")
def claude(client):
    return anthropic.Anthropic(base_url=LOCAL, api_key="none", max_retries=0, http_client=client)


def plainly(pair, prompt, raw=False, max_tokens=24, **sampling):
    """What a fresh session says."""
    request = Request(k=4, max_tokens=max_tokens, sampling=sampling)
    return list(pair.session().reply(prompt, request, raw=raw))[-1]


def read_of(message):
    """Tokens of the prompt, reused or not."""
    return message.usage.input_tokens + message.usage.cache_read_input_tokens


def chat_ids(pair, messages=ASKED):
    return pair.message_tokens(messages)


def test_the_token_that_ends_an_answer_counts(pair, gpt, claude):
    """Each of these answers is nothing but its end."""
    biased = {"logit_bias": {str(min(pair.tokenizer.stop_tokens)): 100}}
    whole = gpt.chat.completions.create(model="demo", messages=ASKED, temperature=0, **biased)
    said = claude.messages.create(model="demo", messages=ASKED, max_tokens=24, extra_body=biased | {"temperature": 0})
    assert (whole.choices[0].message.content, whole.usage.completion_tokens) == ("", 1)
    assert said.usage.output_tokens == 1


def test_log_probabilities_are_one_a_token_streamed_or_not(gpt):
    asked = {"model": "demo", "messages": ASKED, "max_tokens": 8, "temperature": 0, "logprobs": True}
    whole = gpt.chat.completions.create(**asked, top_logprobs=3).choices[0].logprobs.content
    chunks = gpt.chat.completions.create(**asked, top_logprobs=3, stream=True)
    streamed = [chunk.choices[0].logprobs.content for chunk in chunks if chunk.choices[0].logprobs]
    streamed = list(itertools.chain.from_iterable(streamed))
    assert [entry.token for entry in whole] == [entry.token for entry in streamed] and len(whole) == 8
    assert all(len(entry.top_logprobs) == 3 and entry.top_logprobs[0].logprob == entry.logprob for entry in whole)
    assert all(bytes(entry.bytes).decode() == entry.token for entry in whole)


def test_a_stop_string_ends_an_answer_and_anthropic_hears_which(pair, claude, gpt):
    before, stop, _ = plainly(pair, chat_ids(pair), temperature=0, max_tokens=40).text.partition("number")
    assert stop, "the answer has no stop string: nothing is tested here"
    asked = {"model": "demo", "messages": ASKED, "max_tokens": 40}
    message = claude.messages.create(**asked, stop_sequences=["zzz", "number"])
    choice = gpt.chat.completions.create(**asked, stop=["number"]).choices[0]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "number")
    assert message.content[0].text == choice.message.content == before and choice.finish_reason == "stop"


def test_a_schema_given_as_a_class_comes_back_as_an_object_of_it(gpt):
    class Found(BaseModel):
        kind: bool
        size: int

    asked = {"model": "demo", "input": ASKED, "temperature": 0, "max_output_tokens": 60, "text_format": Found}
    assert isinstance(gpt.responses.parse(**asked).output_parsed, Found)


SHAPES = {
    "json_schema": {"enum": [1, 2]},
    "guided_json": '{"enum": [1, 2]}',
    "guided_regex": "[12]",
    "guided_choice": ["1", "2"],
    "structured_outputs": {"choice": ["1", "2"]},
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_by_the_names_of_llama_cpp_and_vllm_are_kept(gpt, name):
    """They were ignored: 200, and any text."""
    asked = {"model": "demo", "max_tokens": 8, "temperature": 1, "seed": 1, "extra_body": {name: SHAPES[name]}}
    assert gpt.chat.completions.create(messages=ASKED, **asked).choices[0].message.content in ("1", "2")
    assert gpt.completions.create(prompt="x = ", **asked).choices[0].text in ("1", "2")


def test_a_beginning_of_an_answer_is_continued_by_both_clients(pair, gpt, claude):
    """One went on with a new turn, the other refused."""
    begun = [*ASKED, {"role": "assistant", "content": "with open("}]
    ids = chat_ids(pair, begun)
    assert ids[: len(chat_ids(pair))] == chat_ids(pair) and ids[-1] == pair.text_tokens("open(")[-1]
    wanted = plainly(pair, ids, raw=True, temperature=0).text
    asked = {"model": "demo", "max_tokens": 24, "temperature": 0}
    said = [gpt.chat.completions.create(messages=begun, **asked).choices[0].message.content]
    del asked["temperature"]
    said.append(claude.messages.create(messages=begun, **asked, extra_body={"temperature": 0}).content[0].text)
    said.append(gpt.responses.create(model="demo", input=begun, max_output_tokens=24, temperature=0).output_text)
    assert said == [wanted] * 3
    with pytest.raises(openai.BadRequestError) as refused:
        gpt.chat.completions.create(model="demo", messages=begun, response_format={"type": "json_object"})
    assert refused.value.param == "response_format"


def test_a_list_of_prompts_is_a_list_of_answers_streamed_or_not(pair, gpt):
    prompts = ["def read(", "class A:", "x = "]
    wanted = [plainly(pair, pair.text_tokens(one), raw=True, temperature=0, max_tokens=8).text for one in prompts]
    asked = {"model": "demo", "max_tokens": 8, "temperature": 0}
    whole = gpt.completions.create(prompt=prompts, **asked)
    ids = gpt.completions.create(prompt=[pair.text_tokens(one) for one in prompts], **asked, n=2)
    assert [(one.index, one.text) for one in whole.choices] == list(enumerate(wanted))
    assert [one.text for one in ids.choices] == [text for text in wanted for _ in range(2)]
    texts = [""] * 3
    for chunk in gpt.completions.create(prompt=prompts, **asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == wanted
    lengths = [len(pair.text_tokens(one)) for one in prompts]
    assert whole.usage.prompt_tokens == ids.usage.prompt_tokens == sum(lengths)


def test_what_a_function_returned_is_read_as_far_as_it_is_text(pair, gpt, claude):
    """An agent that read a picture was refused then and in every later turn; a call that failed was told as any."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    note = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
    hit = {"type": "search_result", "title": "S", "source": "u", "content": [{"type": "text", "text": "found"}]}
    use = {"type": "tool_use", "id": "t", "name": "see", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [picture, note, hit]}
    secret = {"type": "redacted_thinking", "data": "x"}
    said = [*ASKED, {"role": "assistant", "content": [secret, use]}, {"role": "user", "content": [result]}]
    read = "[an image, which this model cannot see]\nT\nwords\nS\nu\nfound"
    asked = {"model": "demo", "max_tokens": 2}
    turns = [*ASKED, {"role": "assistant", "content": ""}, {"role": "tool", "content": read}]
    assert read_of(claude.messages.create(messages=said, **asked)) == len(chat_ids(pair, turns))
    result["is_error"], turns[-1]["content"] = True, f"[The call failed]\n{read}"
    assert read_of(claude.messages.create(messages=said, **asked)) == len(chat_ids(pair, turns))
    document = [{"role": "user", "content": [note, {"type": "text", "text": "What?"}]}]
    turns = [{"role": "user", "content": "T\nwords\nWhat?"}]
    assert read_of(claude.messages.create(messages=document, **asked)) == len(chat_ids(pair, turns))
    output = [{"type": "input_image", "image_url": "data:,"}]
    call = {"type": "function_call", "call_id": "c", "name": "see", "arguments": "{}"}
    items = [*ASKED, call, {"type": "function_call_output", "call_id": "c", "output": output}]
    turns = [*ASKED, {"role": "assistant", "content": ""}, {"role": "tool", "content": read.partition("\n")[0]}]
    found = gpt.responses.create(model="demo", input=items, max_output_tokens=2)
    assert found.usage.input_tokens == len(chat_ids(pair, turns))


def test_errors_arrive_as_the_clients_own_kinds(gpt, claude):
    with pytest.raises(openai.BadRequestError, match="it is 300: Input should be less than or equal to 100") as bad:
        gpt.chat.completions.create(model="demo", messages=ASKED, temperature=300)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError, match="what is: demo"):
        gpt.chat.completions.create(model="gpt-9", messages=ASKED)
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: [0-9]+ tokens > 1023 maximum") as long:
        claude.messages.create(model="demo", max_tokens=9, messages=[{"role": "user", "content": "word " * 2000}])
    assert long.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as long:
        gpt.chat.completions.create(model="demo", messages=[{"role": "user", "content": "word " * 2000}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as long:
        gpt.responses.create(model="demo", input="word " * 2000)
    assert long.value.param == "input"  # it was prompt, whatever its name in the body
