"""The bundled prompts and a user's own."""

import json

import pytest

from specdec_cli.core.errors import UsageError
from specdec_cli.measure.prompts import KINDS, OWN_KIND, SamplePrompt, from_file, load


def test_every_kind_has_at_least_eight_prompts_and_no_two_are_alike():
    prompts = load()
    assert {prompt.kind for prompt in prompts} == set(KINDS)
    assert all(sum(prompt.kind == kind for prompt in prompts) >= 8 for kind in KINDS)
    assert len({prompt.id for prompt in prompts}) == len({prompt.text for prompt in prompts}) == len(prompts)
    for prompt in load(["summary", "json", "edit"]):  # a text to work on, short enough for a small context
        assert 80 <= len(prompt.text.split()) <= 260, prompt.name


def test_kinds_come_once_and_in_the_order_asked_for_and_an_unknown_one_names_the_nearest():
    assert [prompt.kind for prompt in load(["prose", "code", "prose"])] == ["prose"] * 8 + ["code"] * 8
    with pytest.raises(UsageError) as caught:
        load(["code", "reasonning"])
    assert "--kinds reasonning is none of code, chat" in caught.value.message
    assert caught.value.hint == "the nearest: --kinds reasoning"


def test_a_file_gives_a_prompt_a_line_or_json_lines_with_line_breaks_and_kinds(tmp_path):
    file = tmp_path / "prompts"
    file.write_bytes(b"\xef\xbb\xbfdef add(a, b):\r\n\r\n  Tell me a story. \n")
    assert from_file(file) == (
        SamplePrompt(OWN_KIND, "line 1", "def add(a, b):"),
        SamplePrompt(OWN_KIND, "line 3", "Tell me a story."),
    )
    file.write_text("\n" + json.dumps({"prompt": "one\ntwo", "kind": "mail"}) + "\n" + json.dumps({"prompt": "three"}))
    assert from_file(file) == (SamplePrompt("mail", "line 2", "one\ntwo"), SamplePrompt(OWN_KIND, "line 3", "three"))
