"""Tiny models over bytes whose templates treat calls as Llama 3's, Gemma 3's and gpt-oss's do."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.models import byte_tokenizer, write_tokenizer
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.request import Request
from specdec_cli.models.tokenizer import Tokenizer

# Functions are told before the first words of the user's; one call a turn, and what is said beside it is left out.
LLAMA = """{%- if messages[0].role == 'system' -%}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' + messages[0].content + '<|eot_id|>' -}}
{%- set messages = messages[1:] -%}{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + m.content | tojson + '<|eot_id|>' -}}
{%- elif 'tool_calls' in m -%}
{%- if m.tool_calls | length != 1 -%}{{- raise_exception('This model only supports single tool-calls at once!') -}}
{%- endif -%}{%- set call = m.tool_calls[0].function -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}<|eot_id|>' -}}
{%- else -%}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' -}}
{%- if loop.first and tools -%}
{{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.\n' -}}
{{- tools | tojson + '\n' -}}{%- endif -%}{{- m.content | trim + '<|eot_id|>' -}}
{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%}"""
# Two roles that alternate; instructions go before the first words of the user's.
GEMMA = """{%- set first = messages[0].content + '\n\n' if messages[0].role == 'system' else '' -%}
{%- set messages = messages[1:] if messages[0].role == 'system' else messages -%}
{%- for m in messages -%}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') -}}{%- endif -%}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + (first if loop.first else '') -}}
{{- m.content | trim + '<end_of_turn>\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%}"""
# The first call of a turn alone, and no words beside its thinking; a result belongs to the call before it.
OSS = """{%- set ns = namespace(name=none) -%}
{%- if tools -%}{{- '<|start|>developer<|message|># Tools ' + tools | tojson + '<|end|>' -}}{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' and 'tool_calls' in m -%}{%- set call = m.tool_calls[0].function -%}
{%- if m.content and m.thinking -%}{{- raise_exception('Cannot pass both content and thinking!') -}}
{%- elif m.content or m.thinking -%}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + (m.content or m.thinking) + '<|end|>' -}}{%- endif -%}
{{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' -}}
{{- call.arguments | tojson + '<|call|>' -}}{%- set ns.name = call.name -%}
{%- elif m.role == 'assistant' -%}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' -}}
{%- elif m.role == 'tool' -%}{%- if ns.name is none -%}{{- raise_exception('no call') -}}{%- endif -%}
{{- '<|start|>functions.' + ns.name + ' to=assistant<|channel|>commentary<|message|>' + m.content | tojson -}}
{{- '<|end|>' -}}{%- else -%}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' -}}{%- endif -%}
{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}"""
# What OpenAI's own library writes and reads; the file says how it was made.
RECORDED = json.loads(Path(__file__).with_name("harmony.json").read_text())["answers"]
KINDS = {
    "llama": (LLAMA, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>")),
    "gemma": (GEMMA, ("<start_of_turn>", "<end_of_turn>")),
    "oss": (OSS, ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")),
}


def call_tokenizer(folder, template, special):
    """With the bytes and these special tokens."""
    folder.mkdir(parents=True)
    write_tokenizer(folder, byte_tokenizer(special=special), chat_template=template)
    return Tokenizer.load(folder, "calls", {"eos_token_id": [2]})


def call_model(folder, kind):
    """One of `KINDS`, without weights."""
    tokenizer = call_tokenizer(folder, *KINDS[kind])
    return Model("calls", f"tiny/{kind}", None, tokenizer, tokenizer.size, 65_536, Request(), 1)
