"""Any order of messages that a protocol allows is rendered: by templates that refuse most orders, and by released ones.

The templates are short forms of released ones: Qwen 3.5's refusal of later system messages, Gemma 2's of any, Mistral's
alternation, which does not count calls and their results, and one that leaves out what it does not expect.
"""

from itertools import product

import pytest

from fakes.models import byte_tokenizer, write_tokenizer
from specdec_cli.core.errors import UsageError
from specdec_cli.core.template import TemplateValues
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.models.turns import HEADING, acceptable

TURN = "{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}"
START = "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
ALTERNATES = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'user' or m.role == 'assistant' and not "
    "m.tool_calls %}{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('roles must alternate') }}"
    "{% endif %}{% set ns.n = ns.n + 1 %}{% endif %}"
)
TEMPLATES = {
    "system first": "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system "
    "message must be first') }}{% endif %}" + TURN + "{% endfor %}" + START,
    "no system": "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must "
    "alternate') }}{% endif %}" + TURN + "{% endfor %}" + START,
    "alternating": ALTERNATES.replace("messages %}", "messages[(1 if messages[0].role == 'system' else 0):] %}", 1)
    .replace("{% set", "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% set", 1)
    + "{% if m.role == 'system' %}{{ raise_exception('only user and assistant roles') }}{% endif %}"
    + TURN + "{% endfor %}" + START,
    "leaves out": "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% for m in messages %}"
    "{% if m.role in ('user', 'assistant') %}" + TURN + "{% endif %}{% endfor %}" + START,
    "takes all": "{% for m in messages %}" + TURN + "{% endfor %}" + START,
}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    found = {}
    for name, template in TEMPLATES.items():
        folder = tmp_path_factory.mktemp("t")
        write_tokenizer(folder, byte_tokenizer(), chat_template=template)
        found[name] = Tokenizer.load(folder, name, {})
    return found


def conversation(roles):
    """A message of each role, with words of its own; a result follows the call that it answers."""
    found = []
    for place, role in enumerate(roles):
        if role == "tool":
            call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": {"n": place}}}
            found.append({"role": "assistant", "content": "", "tool_calls": [call]})
        found.append({"role": role, "content": f"words{place}."})
    return found


def rendered(tokenizer, messages):
    return "".join(map(tokenizer.piece, tokenizer.render(messages, TemplateValues(turn="answer"))))


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_order_is_rendered_and_no_word_is_lost_or_said_twice(tokenizers, name):
    roles = ("system", "user", "assistant", "tool")
    for order in (order for length in range(1, 4) for order in product(roles, repeat=length)):
        text = rendered(tokenizers[name], conversation(order))
        assert all(text.count(f"words{place}.") == 1 for place in range(len(order))), (order, text)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_next_turn_begins_with_what_was_rendered_before(tokenizers, name):
    """So caches stay reusable."""
    so_far, tokenizer = [], tokenizers[name]
    for roles in (("system", "user"), ("system", "user"), ("user", "tool"), ("user", "user"), ("system", "user")):
        so_far = [*so_far, *({**one, "content": f"{len(so_far)}{one['content']}"} for one in conversation(roles))]
        before = rendered(tokenizer, so_far)
        so_far = [*so_far, {"role": "assistant", "content": f"answer{len(so_far)}"}]
        assert rendered(tokenizer, [*so_far, {"role": "user", "content": "next"}]).startswith(before), roles


def test_a_template_that_takes_an_order_gets_it_as_it_is(tokenizers):
    messages = conversation(("assistant", "system", "user", "user"))
    said = "".join(f"<|{message['role']}|>{message['content']}<|end|>" for message in messages)
    assert rendered(tokenizers["takes all"], messages) == said + "<|assistant|>"


def test_later_instructions_stay_where_they_are_under_a_heading(tokenizers):
    text = rendered(tokenizers["system first"], conversation(("system", "user", "assistant", "system", "user")))
    assert f"<|assistant|>words2.<|end|><|user|>{HEADING}\nwords3.<|end|><|user|>words4." in text
    text = rendered(tokenizers["alternating"], conversation(("system", "user", "assistant", "system", "user")))
    assert f"<|user|>{HEADING}\nwords3.\n\nwords4.<|end|>" in text


def test_without_a_system_role_instructions_begin_the_users_first_words(tokenizers):
    assert rendered(tokenizers["no system"], conversation(("system", "user"))).startswith("<|user|>words0.\n\nwords1.")


def test_what_no_order_mends_is_told_in_the_templates_words(tmp_path):
    write_tokenizer(tmp_path, byte_tokenizer(), chat_template="{{ raise_exception('never on a ' + messages[0].role) }}")
    with pytest.raises(UsageError, match="refuses the messages system, user: never on a system"):
        Tokenizer.load(tmp_path, "m", {}).render(conversation(("system", "user")))


def test_orders_are_tried_once_each():
    messages = conversation(("user", "assistant", "user"))
    as_it_is, in_parts = acceptable(messages)
    assert as_it_is == messages and [one["content"][0]["text"] for one in in_parts] == ["words0.", "words1.", "words2."]
