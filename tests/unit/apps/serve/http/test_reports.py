"""Public reports of other tools that failed here, each an input of its thread with the right outcome."""

import gzip
import json
import re

import pytest
from tokenizers import AddedToken

from fakes.models import CHAT_TEMPLATE, byte_tokenizer, write_tokenizer
from fakes.tool_model import LONG, MARKS, THINK, TOOLS_TEMPLATE
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.request import Request
from specdec_cli.models.tokenizer import Tokenizer

CHAT, TEXT, CLAUDE, CODEX = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
USER = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}


def tokenizer_of(folder, template=TOOLS_TEMPLATE, added=(*MARKS, *THINK), special=()):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in added])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    write_tokenizer(folder, tokenizer, chat_template=template)
    return Tokenizer.load(folder, "m", {"eos_token_id": [2, 0]})


@pytest.fixture
def served(tmp_path, scripted):
    """Starts a server whose tokenizer is made so: (a client, its desk, what the last prompt says)."""

    def start(*script, **options):
        tokenizer = tokenizer_of(tmp_path / "t", **options)
        client, desk = scripted(*script, model=Model("m", "tiny/m", None, tokenizer, 300, LONG, Request(), 1))
        return client, desk, lambda: "".join(map(tokenizer.piece, desk.jobs[-1].job.prompt))

    return start


def ok(answer):
    assert answer.status_code == 200, answer.text
    return answer


def call(identity="call_1"):
    return {"type": "function", "id": identity, "function": {"name": "add", "arguments": '{"a": 2}'}}


def turn(one):
    said = {"role": "assistant", "content": "", "tool_calls": [one]}
    return [*USER, said, {"role": "tool", "tool_call_id": one["id"], "content": "5"}]


def before(*parts):
    """A question after an answer of these parts."""
    return {"messages": [*USER, {"role": "assistant", "content": [*parts]}, *USER], "max_tokens": 4}


def text(said):
    return {"type": "text", "text": said}


CONCAT = TOOLS_TEMPLATE.replace("(tool_call.arguments | tojson)", "tool_call.arguments")
NINE = (
    "{%- for m in messages -%}{%- if m.tool_calls -%}[TOOL_CALLS]{%- for c in m.tool_calls -%}"
    "{%- if c.id is not defined or c.id|length != 9 -%}{{ raise_exception('Tool call IDs should be alphanumeric "
    "strings with length 9!') }}{%- endif -%}{{ c.function|tojson }}{{ c.id }}{%- endfor -%}"
    "{%- elif m.role == 'tool' -%}"
    "{%- if m.tool_call_id is not defined or m.tool_call_id|length != 9 -%}{{ raise_exception('Tool call IDs should be "
    "alphanumeric strings with length 9!') }}{%- endif -%}[TOOL_RESULTS]{{ m.content }}{{ m.tool_call_id }}"
    "{%- else -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{%- endif -%}{%- endfor -%}"
)
HARMONY = (
    "{%- if tools -%}{{ 'namespace functions ' + (tools | tojson) }}{%- endif -%}{{ 'Reasoning: ' + (reasoning_effort "
    "| default('medium')) }}{%- for m in messages -%}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"
)
GPT = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
PARTS = (
    "{%- for m in messages -%}<|im_start|>{{ m['role'] }}:{%- for p in m['content'] -%}{%- if p['type'] == 'text' -%}"
    "{{ p['text'] }}{%- endif -%}{%- endfor -%}<|im_end|>{%- endfor -%}"
)
THOUGHT = (
    "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.reasoning_content -%}<think>{{ m.reasoning_content }}</think>{%- endif -%}"
    "{{ m.content + '<|im_end|>' }}{%- endfor -%}"
)
OSS = {"template": HARMONY, "special": GPT, "added": ()}
EARLIER_CALL = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": '{"a": 2}'}}
PATCH = [
    {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin Patch"},
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "Success. Updated a.py"},
]
SEARCHED = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "u", "title": "T", "encrypted_content": "e"}],
    },
]
ANSWERED = {"role": "assistant", "content": "A."}
PICTURE = {"type": "image_url", "image_url": {"url": "https://x/y.jpg"}}
THINKS, SILENT = "<think>\n$", "assistant\n$"
# Thread: the tokenizer, the path, the body, a pattern of the prompt.
REPORTS = {
    # DeepSeek R1, V3, V3.1, also verl#7664, sglang#9898: arguments that a template joins to a text are JSON.
    "r17 mlx-lm#1065": (
        {"template": CONCAT}, CHAT, {"messages": turn(call()), "tools": [ADD]},
        r'<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>',
    ),
    # Ids of calls from elsewhere; also opencode#1680, gptel#1203, vllm#9019: Mistral's templates take nine letters.
    "r18 mlx-lm#1375": (
        {"template": NINE, "added": ("[TOOL_CALLS]", "[TOOL_RESULTS]")}, CHAT,
        {"messages": turn(call("call_PTLP8xhu3uwZk4l3nlnrrJha"))}, r"\[TOOL_CALLS\].*\[TOOL_RESULTS\]",
    ),
    # The role function, which was before tools: SGLang takes it, LiteLLM (3448) translates it.
    "r20 dify#5622": (
        {}, CHAT, {"messages": [*USER, EARLIER_CALL, {"role": "function", "name": "add", "content": "5"}]}, "5",
    ),
    # Mistral's own answers, sent back (vercel/ai#17930): vLLM and Mistral's API take them.
    "r23 opencode#38453": (
        {}, CHAT, before({"type": "thinking", "thinking": [text("17 * 23")], "closed": True}, text("391")), "391",
    ),
    "r24 langchainjs#11175": ({}, CHAT, before({"type": "reasoning", "reasoning": "hm"}, text("391")), "391"),
    # A history with a picture in it shuts its session out; a note is what results of functions get.
    "r25 internvl#726": (
        {}, CHAT, {"messages": [{"role": "user", "content": [text("What?"), PICTURE]}, ANSWERED, *USER]},
        "an image, which this model cannot see",
    ),
    # Codex's apply_patch: the call and what it did belong into the prompt (also ds4#745).
    "r30 unsloth#9121": ({}, CODEX, {"input": [*USER, *PATCH, *USER]}, r"\*\*\* Begin Patch.*Updated a\.py"),
    # What a server's tool found earlier.
    "r33 inspect_ai#2354": ({}, CLAUDE, before(*SEARCHED, text("It is so.")), "It is so."),
    # As Alibaba's API, qwen-code#945, langchain-qwq#47 and tabbyAPI#340 send it.
    "r46 sglang#33155 on": ({}, CHAT, {"messages": USER, "enable_thinking": True}, THINKS),
    "r46 sglang#33155 off": ({}, CHAT, {"messages": USER, "enable_thinking": False}, SILENT),
    # OpenRouter's `reasoning`, which SGLang reads there.
    "r47 sglang#33155 high": ({}, CHAT, {"messages": USER, "reasoning": {"effort": "high"}}, THINKS),
    "r47 sglang#33155 on": ({}, CHAT, {"messages": USER, "reasoning": {"enabled": True}}, THINKS),
    "r47 sglang#33155 none": ({}, CHAT, {"messages": USER, "reasoning": {"effort": "none"}}, SILENT),
    # Codex sends efforts that gpt-oss was not trained for; ollama#17566, CLIProxyAPI#4380: the nearest of the three.
    **{
        f"r49 vllm#50256 {effort}": (
            OSS, CODEX, {"input": "Hi", "reasoning": {"effort": effort}}, "Reasoning: (low|medium|high)<",
        )
        for effort in ("minimal", "none", "xhigh", "max")
    },
    # Templates that take lists of parts alone: Llama-Guard-3-1B, SmolVLM (vllm#56391), LLaVA. All words were left out.
    "r57 vllm#9294": (
        {"template": PARTS}, CHAT, {"messages": [{"role": "system", "content": "Rules"}, *USER]}, "Rules.*Hi",
    ),
    # vLLM, mlx_lm.server and OpenRouter call it `reasoning`; clients send it back so.
    "r88 opencode#30477": (
        {"template": THOUGHT}, CHAT,
        {"messages": [*USER, {"role": "assistant", "content": "A", "reasoning": "because"}, *USER]},
        "<think>because</think>A",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "path", "body", "wanted"), REPORTS.values(), ids=REPORTS)
def test_the_prompt_has_the_words_of_the_body(served, options, path, body, wanted):
    client, _, prompt = served(**options)
    ok(client.post(path, json=body))
    assert re.search(wanted, prompt(), re.S), prompt()


def test_r12_vmlx_99_logprobs_true_in_completions(served):
    """lm-eval and old SDKs send true or 1 there."""
    client, desk, _ = served()
    ok(client.post(TEXT, json={"prompt": "a", "logprobs": True, "max_tokens": 1}))
    assert desk.jobs[0].job.request.logprobs is not None


def test_r39_lmstudio_2403_response_format_in_responses(served):
    """A schema under chat's name is kept."""
    client, desk, _ = served()
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    ok(client.post(CODEX, json={"input": "Hi", "response_format": shape}))
    assert desk.jobs[0].job.request.constraint is not None


def test_r45_brave_56601_a_model_writes_empty_or_null_arguments(served):
    """Also hermes-agent#1170, langchain#34190: a call without arguments, not text."""
    written = ('{"name": "add", "arguments": ""}', '{"name": "add", "arguments": null}', '{"name": "add"}')
    client, _, _ = served(*(f"<tool_call>\n{one}\n</tool_call>" for one in written), added=MARKS)
    for one in written:
        message = ok(client.post(CHAT, json={"messages": USER, "tools": [ADD]})).json()["choices"][0]["message"]
        assert message.get("tool_calls") and message["tool_calls"][0]["function"]["arguments"] == "{}", one


def test_r53_new_api_4913_a_compressed_body(asked):
    """Codex (zstd), also cc-switch#3817, loreai#1049: gzip is read, and a 415 names what is not."""
    headers, data = {"content-type": "application/json"}, gzip.compress(json.dumps({"messages": USER}).encode())
    ok(asked[0].post(CHAT, content=data, headers={**headers, "content-encoding": "gzip"}))
    refused = asked[0].post(CHAT, content=b"\x28\xb5\x2f\xfd\x00X", headers={**headers, "content-encoding": "zstd"})
    assert refused.status_code == 415 and "zstd" in refused.text


def test_r58_ollama_6522_a_list_of_named_templates(served):
    """Hermes 3, Command R: `default`, and `tool_use` where there are tools (transformers)."""
    named = [{"name": "default", "template": CHAT_TEMPLATE}, {"name": "tool_use", "template": TOOLS_TEMPLATE}]
    client, _, prompt = served(template=named)
    ok(client.post(CHAT, json={"messages": USER}))
    assert prompt().endswith("<|im_start|>assistant\n")
    ok(client.post(CHAT, json={"messages": USER, "tools": [ADD]}))
    assert '"name": "add"' in prompt()


def test_r59_rapid_mlx_449_chat_template_json(tmp_path):
    """Mistral Small 3.1 and vision repositories keep it there alone; transformers' processors read it."""
    tokenizer_of(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    values = json.loads(path.read_text())
    del values["chat_template"]
    path.write_text(json.dumps(values))
    assert not Tokenizer.load(tmp_path, "m", {}).has_template
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    assert Tokenizer.load(tmp_path, "m", {}).has_template
