"""A tiny model over bytes whose template knows functions and thinking, as Qwen's does; scripted or with weights."""

from __future__ import annotations

from fakes.models import TINY, tiny_folder
from specdec_cli.apps.serve.model import Model
from specdec_cli.core.request import Request
from specdec_cli.models.tokenizer import Tokenizer

MARKS = ("<tool_call>", "</tool_call>")
THINK = ("<think>", "</think>")
SAID = (
    "{%- if tools -%}{{ '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif -%}"
    "{%- for m in messages -%}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] }}"
    "{%- for tool_call in m.get('tool_calls', []) -%}{%- set tool_call = tool_call.function -%}"
    '{{ \'<tool_call>\\n{"name": "\' + tool_call.name + \'", "arguments": \' + (tool_call.arguments | tojson) + \'}'
    "\\n</tool_call>' }}{%- endfor -%}{{ '<|im_end|>\\n' }}{%- endfor -%}"
)
TOOLS_TEMPLATE = SAID + (
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking -%}{{ '<think>\\n' }}{%- endif -%}{%- endif -%}"
)
# As Qwen 3's: it thinks unless told otherwise.
THINKS_TEMPLATE = TOOLS_TEMPLATE.replace("is defined and", "is not defined or")
LONG = 65_536


def tool_folder(folder, thinks=False):
    """A loadable folder with random weights."""
    marks, template = ((*MARKS, *THINK), THINKS_TEMPLATE) if thinks else (MARKS, TOOLS_TEMPLATE)
    return tiny_folder(folder, TINY | {"max_position_embeddings": LONG}, seed=3, marks=marks, chat_template=template)


def tool_model(folder, **base):
    """The facts of the model in `folder`, without its weights."""
    tokenizer = Tokenizer.load(folder, "tool", {"eos_token_id": [2, 0]})
    return Model("tool", "tiny/tool", None, tokenizer, 263, LONG, Request(**base), 1)
