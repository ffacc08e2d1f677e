"""Public reports of other tools that failed here, each an input of its thread with the right outcome."""

import gzip
import json

import pytest
from tokenizers import AddedToken

from fakes.desk import ScriptedDesk
from fakes.models import CHAT_TEMPLATE, byte_tokenizer, write_tokenizer
from fakes.server import local
from fakes.tool_model import LONG, MARKS, THINK, TOOLS_TEMPLATE
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.request import Request
from specdec_cli.models.tokenizer import Tokenizer

CHAT, TEXT, CLAUDE, CODEX = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
USER = [{"role": "user", "content": "Hi"}]
ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


def tokenizer_of(folder, template=TOOLS_TEMPLATE, added=(*MARKS, *THINK), special=(), ends=None, **extra):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in added])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    write_tokenizer(folder, tokenizer, **({} if template is None else {"chat_template": template}), **extra)
    if template is None:
        path = folder / "tokenizer_config.json"
        values = json.loads(path.read_text())
        del values["chat_template"]
        path.write_text(json.dumps(values))
    return Tokenizer.load(folder, "m", ends or {"eos_token_id": [2, 0]})


class Served:
    """A scripted server whose jobs are looked at."""

    def __init__(self, tokenizer, says="ok", context=LONG, **policy):
        self.desk = ScriptedDesk([says] * 40)
        self.model = Model("m", "tiny/m", None, tokenizer, 300, context, Request(), 1)
        self.policy = policy

    def post(self, path, body, headers=None, **more):
        with local(self.model, self.desk, **self.policy) as client:
            if isinstance(body, bytes):
                return client.post(path, content=body, headers={"content-type": "application/json", **(headers or {})})
            return client.post(path, json=body, headers=headers, **more)

    @property
    def request(self):
        return self.desk.jobs[-1].job.request

    @property
    def prompt(self):
        return "".join(map(self.model.tokenizer.piece, self.desk.jobs[-1].job.prompt))


@pytest.fixture
def served(tmp_path):
    made = []

    def make(template=TOOLS_TEMPLATE, says="ok", policy=None, context=LONG, **options):
        made.append(
            Served(tokenizer_of(tmp_path / f"t{len(made)}", template, **options), says, context, **(policy or {}))
        )
        return made[-1]

    yield make
    for one in made:
        one.desk.close()


def ok(answer):
    assert answer.status_code == 200, answer.text
    return answer


def test_r12_vmlx_99_logprobs_true_in_completions(served):
    """lm-eval and old SDKs send true or 1 there."""
    s = served()
    ok(s.post(TEXT, {"prompt": "a", "logprobs": True, "max_tokens": 1}))
    assert s.request.logprobs is not None


def call(arguments, identity="call_1", name="add"):
    return {"type": "function", "id": identity, "function": {"name": name, "arguments": arguments}}


def turn(one, result="5", **said):
    return [
        *USER,
        {"role": "assistant", **said, "tool_calls": [one]},
        {"role": "tool", "tool_call_id": one["id"], "content": result},
    ]


CONCAT = TOOLS_TEMPLATE.replace("(tool_call.arguments | tojson)", "tool_call.arguments")


def test_r17_mlx_lm_1065_a_template_that_joins_arguments_to_a_text(served):
    """DeepSeek R1, V3, V3.1, also verl#7664, sglang#9898: the argument's JSON in the template's own form of a call."""
    s = served(CONCAT)
    ok(s.post(CHAT, {"messages": turn(call('{"a": 2}'), content=""), "tools": [ADD]}))
    assert '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>' in s.prompt, s.prompt


NINE = (
    "{%- for m in messages -%}{%- if m.tool_calls -%}[TOOL_CALLS]{%- for c in m.tool_calls -%}"
    "{%- if c.id is not defined or c.id|length != 9 -%}{{ raise_exception('Tool call IDs should be alphanumeric "
    "strings with length 9!') }}{%- endif -%}{{ c.function|tojson }}{{ c.id }}{%- endfor -%}"
    "{%- elif m.role == 'tool' -%}"
    "{%- if m.tool_call_id is not defined or m.tool_call_id|length != 9 -%}{{ raise_exception('Tool call IDs should be "
    "alphanumeric strings with length 9!') }}{%- endif -%}[TOOL_RESULTS]{{ m.content }}{{ m.tool_call_id }}"
    "{%- else -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{%- endif -%}{%- endfor -%}"
)


def test_r18_mlx_lm_1375_ids_of_calls_from_elsewhere(served):
    """Also opencode#1680, gptel#1203, vllm#9019: Mistral's templates take nine letters; langchain#24668 translates."""
    s = served(NINE, added=("[TOOL_CALLS]", "[TOOL_RESULTS]"))
    ok(s.post(CHAT, {"messages": turn(call('{"a": 2}', "call_PTLP8xhu3uwZk4l3nlnrrJha"), content="")}))
    assert "[TOOL_CALLS]" in s.prompt and "[TOOL_RESULTS]" in s.prompt, s.prompt


def test_r20_dify_5622_the_role_function(served):
    """What functions returned before tools: SGLang takes the role, LiteLLM (3448) translates it."""
    s = served()
    said = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": '{"a": 2}'}}
    answer = s.post(CHAT, {"messages": [*USER, said, {"role": "function", "name": "add", "content": "5"}]})
    assert ok(answer) and "5" in s.prompt


def test_r23_opencode_38453_thinking_in_parts(served):
    """Mistral's own answers, sent back (vercel/ai#17930): vLLM and Mistral's API take them."""
    s = served()
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "17 * 23"}], "closed": True}
    said = {"role": "assistant", "content": [thought, {"type": "text", "text": "391"}]}
    ok(s.post(CHAT, {"messages": [*USER, said, *USER]}))
    assert "391" in s.prompt


def test_r24_langchainjs_11175_a_part_of_kind_reasoning(served):
    s = served()
    said = {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "391"}]}
    ok(s.post(CHAT, {"messages": [*USER, said, *USER]}))


def test_r25_internvl_726_a_picture_to_a_text_model(served):
    """A history with a picture in it shuts its session out; a note is what results of functions get."""
    picture = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": "https://x/y.jpg"}}]
    s = served()
    ok(
        s.post(
            CHAT, {"messages": [{"role": "user", "content": picture}, {"role": "assistant", "content": "A."}, *USER]}
        )
    )


def test_r30_unsloth_9121_calls_of_custom_tools_in_the_history(served):
    """Codex's apply_patch: the call and what it did belong into the prompt (also ds4#745)."""
    s = served()
    items = [*USER, {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin Patch"}]
    items += [
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Success. Updated a.py"},
        {"role": "user", "content": "go on"},
    ]
    ok(s.post(CODEX, {"input": items}))
    assert "*** Begin Patch" in s.prompt and "Updated a.py" in s.prompt, s.prompt


def test_r33_inspect_ai_2354_what_a_server_tool_found_earlier(served):
    s = served()
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "u", "title": "T", "encrypted_content": "e"}],
    }
    said = {"role": "assistant", "content": [use, found, {"type": "text", "text": "It is so."}]}
    ok(s.post(CLAUDE, {"messages": [*USER, said, *USER], "max_tokens": 4}))


def test_r39_lmstudio_2403_response_format_in_responses(served):
    """A schema under chat's name is kept."""
    s = served()
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    ok(s.post(CODEX, {"input": "Hi", "response_format": shape}))
    assert s.request.constraint is not None


HARMONY = (
    "{%- if tools -%}{{ 'namespace functions ' + (tools | tojson) }}{%- endif -%}{{ 'Reasoning: ' + (reasoning_effort "
    "| default('medium')) }}{%- for m in messages -%}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"
)
GPT = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")


def test_r45_brave_56601_a_model_writes_empty_or_null_arguments(served):
    """Also hermes-agent#1170, langchain#34190: a call without arguments, not text."""
    for written in ('{"name": "add", "arguments": ""}', '{"name": "add", "arguments": null}', '{"name": "add"}'):
        s = served(says=f"<tool_call>\n{written}\n</tool_call>", added=MARKS)
        message = ok(s.post(CHAT, {"messages": USER, "tools": [ADD]})).json()["choices"][0]["message"]
        assert message.get("tool_calls") and message["tool_calls"][0]["function"]["arguments"] == "{}", (
            written,
            message,
        )


def test_r46_sglang_33155_enable_thinking_at_the_top(served):
    """As Alibaba's API, qwen-code#945, langchain-qwq#47 and tabbyAPI#340 send it."""
    s = served()
    for value in (True, False):
        ok(s.post(CHAT, {"messages": USER, "enable_thinking": value}))
        assert s.prompt.endswith("<think>\n") == value, s.prompt


def test_r47_sglang_33155_reasoning_in_chat_completions(served):
    """OpenRouter's `reasoning: {effort}` and `{enabled}`, which SGLang reads there."""
    s = served()
    for value, thinks in (({"effort": "high"}, True), ({"enabled": True}, True), ({"effort": "none"}, False)):
        ok(s.post(CHAT, {"messages": USER, "reasoning": value}))
        assert s.prompt.endswith("<think>\n") == thinks, (value, s.prompt)


def test_r49_vllm_50256_an_effort_that_gpt_oss_was_not_trained_for(served):
    """Codex sends xhigh and minimal. vLLM: 400; ollama#17566 and CLIProxyAPI#4380: the nearest of the three."""
    s = served(HARMONY, special=GPT, added=())
    for effort in ("minimal", "none", "xhigh", "max"):
        ok(s.post(CODEX, {"input": "Hi", "reasoning": {"effort": effort}}))
        assert any(f"Reasoning: {one}<" in s.prompt for one in ("low", "medium", "high")), (effort, s.prompt)


def test_r53_new_api_4913_a_compressed_body(served):
    """Codex (zstd), also cc-switch#3817, loreai#1049: gzip is read, and a 415 names what is not."""
    data = gzip.compress(json.dumps({"messages": USER}).encode())
    ok(served().post(CHAT, data, {"content-encoding": "gzip"}))
    refused = served().post(CHAT, b"\x28\xb5\x2f\xfd\x00X", {"content-encoding": "zstd"})
    assert refused.status_code == 415 and "zstd" in refused.text


def test_r56_lmstudio_392_a_private_network_preflight(served):
    asked = {
        "origin": "https://example.com",
        "access-control-request-method": "POST",
        "access-control-request-private-network": "true",
    }
    s = served(policy={"origins": ("https://example.com",)})
    with local(s.model, s.desk, **s.policy) as client:
        answer = client.options(CHAT, headers=asked)
    assert answer.status_code == 200 and answer.headers.get("access-control-allow-private-network") == "true", (
        answer.headers
    )


PARTS = (
    "{%- for m in messages -%}<|im_start|>{{ m['role'] }}:{%- for p in m['content'] -%}{%- if p['type'] == 'text' -%}"
    "{{ p['text'] }}{%- endif -%}{%- endfor -%}<|im_end|>{%- endfor -%}"
)


def test_r57_vllm_9294_a_template_that_takes_lists_of_parts_alone(served):
    """Llama-Guard-3-1B (a text model), SmolVLM (vllm#56391), LLaVA: all words were left out, and nothing said so."""
    s = served(PARTS)
    answer = s.post(CHAT, {"messages": [{"role": "system", "content": "Rules"}, *USER]})
    assert ok(answer) and "Rules" in s.prompt and "Hi" in s.prompt, s.prompt


def test_r58_ollama_6522_a_list_of_named_templates(tmp_path):
    """Hermes 3, Command R: `default`, and `tool_use` where there are tools (transformers)."""
    named = [{"name": "default", "template": CHAT_TEMPLATE}, {"name": "tool_use", "template": TOOLS_TEMPLATE}]
    s = Served(tokenizer_of(tmp_path / "t", named))
    try:
        ok(s.post(CHAT, {"messages": USER}))
        assert s.prompt.endswith("<|im_start|>assistant\n")
        answer = s.post(CHAT, {"messages": USER, "tools": [ADD]})
        assert ok(answer) and '"name": "add"' in s.prompt
    finally:
        s.desk.close()


def test_r59_rapid_mlx_449_chat_template_json(tmp_path):
    """Mistral Small 3.1 and vision repositories keep it there alone; transformers' processors read it."""
    folder = tmp_path / "t"
    tokenizer_of(folder, None)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    tokenizer = Tokenizer.load(folder, "m", {})
    assert tokenizer.has_template


THOUGHT = (
    "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.reasoning_content -%}<think>{{ m.reasoning_content }}</think>{%- endif -%}"
    "{{ m.content + '<|im_end|>' }}{%- endfor -%}"
)


def test_r88_opencode_30477_reasoning_by_its_newer_name(served):
    """vLLM, mlx_lm.server and OpenRouter call it `reasoning`; clients send it back so."""
    s = served(THOUGHT)
    ok(s.post(CHAT, {"messages": [*USER, {"role": "assistant", "content": "A", "reasoning": "because"}, *USER]}))
    assert "<think>because</think>A" in s.prompt, s.prompt
