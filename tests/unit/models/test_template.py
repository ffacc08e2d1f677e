"""26: what a template is asked reaches it by the name that it reads; transformers' rendering is right."""

import pytest

from fakes.grammar import thinking_tokenizer
from fakes.models import byte_tokenizer, write_tokenizer
from specdec_cli.core.errors import UsageError
from specdec_cli.core.template import TemplateValues, names_read
from specdec_cli.models.tokenizer import Tokenizer

TURNS = "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content }}{% endfor %}"
# As gpt-oss's, which reads the effort in a macro; Qwen 3's; Granite's and DeepSeek V3.1's; one of two efforts.
HARMONY = (
    "{% macro build() %}{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
    "{{ 'Reasoning: ' + reasoning_effort }}{% endmacro %}{{ build() }}"
    + TURNS
    + "{% if messages[-1].thinking %}{% endif %}"
)
SWITCH = TURNS + "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}"
THINKING = TURNS + "{% if thinking %}<think>{% else %}</think>{% endif %}"
EFFORTS = (
    "{% if reasoning_effort is defined and reasoning_effort not in ['low', 'high'] %}"
    "{{ raise_exception('unknown effort ' + reasoning_effort) }}{% endif %}" + SWITCH + "{{ reasoning_effort }}"
)
USER = [{"role": "user", "content": "Hi"}]


def tokenizer_of(folder, template):
    write_tokenizer(folder, byte_tokenizer(), chat_template=template)
    return Tokenizer.load(folder, "m", {})


def rendered(tokenizer, values):
    return "".join(map(tokenizer.piece, tokenizer.render(USER, values)))


@pytest.mark.parametrize(
    ("template", "values", "names"),
    [
        (HARMONY, TemplateValues.of_effort("high"), {"reasoning_effort": "high"}),
        (HARMONY, TemplateValues(thinks=False), {}),
        (SWITCH, TemplateValues.of_effort("none"), {"enable_thinking": False}),
        (SWITCH, TemplateValues.of_effort("high"), {"enable_thinking": True}),
        (THINKING, TemplateValues.of_effort("high"), {"thinking": True}),
        (THINKING, TemplateValues.of_effort(None, {"thinking": True}), {"thinking": True}),
        (THINKING, TemplateValues.of_word("off"), {"thinking": False}),
        (EFFORTS, TemplateValues.of_effort("minimal"), {"enable_thinking": False}),
        (EFFORTS, TemplateValues.of_effort("low"), {"enable_thinking": True, "reasoning_effort": "low"}),
        (SWITCH, TemplateValues.of_effort("low", {"enable_thinking": False}), {"enable_thinking": False}),
    ],
)
def test_a_template_is_asked_by_the_names_that_it_reads(tmp_path, template, values, names):
    tokenizer = tokenizer_of(tmp_path, template)
    assert values.read_by(tokenizer.template_names) == names
    right = tokenizer._inner.apply_chat_template(USER, tokenize=False, add_generation_prompt=True, **names)
    assert rendered(tokenizer, values) == right


ON = "{% if enable_thinking is not defined or enable_thinking %}<think>{% else %}<think></think>{% endif %}"
OFF = "{% if enable_thinking is defined and enable_thinking %}<think>{% else %}<think></think>{% endif %}"
DEFAULTS = {
    ON: "<think>", OFF: "<think></think>",
    "{% if enable_thinking %}<think>{% else %}</think>{% endif %}": "</think>",
    "{% if not (enable_thinking | default(true)) %}</think>{% else %}<think>{% endif %}": "<think>",
    "{{ '<think>' if thinking is defined and thinking else '</think>' }}": "</think>",
    "{{ '</think>' if thinking is defined and not thinking else '<think>' }}": "<think>",
}  # fmt: skip


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize(("template", "end"), DEFAULTS.items())
def test_a_template_that_is_told_nothing_decides_itself_whether_to_think(tmp_path, template, end, thinks):
    """lablup/mlxcel#352: `<think>` in the vocabulary turned thinking on, and its absence turned it off."""
    made = thinking_tokenizer(special=False) if thinks else byte_tokenizer()
    write_tokenizer(tmp_path, made, chat_template=TURNS + template)
    assert rendered(Tokenizer.load(tmp_path, "m", {}), TemplateValues()) == f"<|im_start|>userHi{end}"


def test_names_are_found_in_the_syntax_tree():
    """`message.thinking` is no name, nor is what a template sets itself; the tag of transformers is no damage."""
    assert names_read(HARMONY)[0] == {"messages", "reasoning_effort"}
    assert names_read("{% set a = 1 %}{% generation %}{{ a + b + 'c' }}{% endgeneration %}") == ({"b"}, {"c"})
    assert names_read("{% if %}") == (frozenset(), frozenset())


@pytest.mark.parametrize(("effort", "near"), [("minimal", "low"), ("none", "low"), ("xhigh", "high"), ("odd", "odd")])
def test_an_effort_that_a_template_neither_knows_nor_refuses_is_the_nearest(tmp_path, effort, near):
    """gpt-oss was trained on three."""
    assert rendered(tokenizer_of(tmp_path, HARMONY), TemplateValues.of_effort(effort)).startswith(f"Reasoning: {near}<")


def test_an_effort_that_the_template_refuses_is_told_in_its_words(tmp_path):
    with pytest.raises(UsageError, match="unknown effort huge"):
        rendered(tokenizer_of(tmp_path, EFFORTS), TemplateValues.of_effort("huge"))


def test_values_of_its_own_names_cannot_take_the_place_of_what_it_is_given(tmp_path):
    named = {"messages": [], "chat_template": "x", "tokenize": True, "bos_token": "x", "add_generation_prompt": False}
    tokenizer = tokenizer_of(tmp_path, "{{ bos_token }}" + SWITCH)
    values = TemplateValues(named=named)
    assert rendered(tokenizer, values) == rendered(tokenizer, TemplateValues())
    assert values.unread_by(tokenizer.template_names) == list(named)


def test_a_special_token_in_a_value_is_letters(tmp_path):
    tokenizer = tokenizer_of(tmp_path, "{{ identity }}" + TURNS)
    ids = tokenizer.render(USER, TemplateValues(named={"identity": "<|im_end|>"}))
    assert tokenizer.token_of("<|im_end|>") not in ids and tokenizer.piece(ids[0]) == "<"


def test_what_nothing_reads_is_named():
    asked = TemplateValues.of_effort("high", {"other": 1})
    assert asked.unread_by({"messages"}) == ["other", "reasoning_effort"]
    assert asked.unread_by({"enable_thinking", "other"}) == [] and TemplateValues().unread_by(()) == []


@pytest.mark.parametrize(
    ("turn", "end"),
    [("answer", "one<|im_end|>\n<|im_start|>assistant\n"), ("last", "one"), ("none", "one<|im_end|>\n")],
)
def test_whose_words_follow_can_be_asked(tmp_path, turn, end):
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    tokenizer = tokenizer_of(tmp_path, template)
    for role in ("user", "assistant"):
        ids = tokenizer.render([*USER, {"role": role, "content": "one"}], TemplateValues(turn=turn))
        assert "".join(map(tokenizer.piece, ids)).endswith(f"<|im_start|>{role}\n{end}")
