"""Fields that clients of other servers send: honoured, refused by name while they are active, or let through."""

import math
import re
from pathlib import Path

import pytest

import specdec_cli
from fakes.desk import ScriptedDesk
from fakes.server import local
from specdec_cli.apps.serve.http.fields import REFUSALS

USER = {"role": "user", "content": "Hi"}
CHAT, TEXT, CODEX, CLAUDE = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
BODIES = {
    CHAT: {"messages": [USER]},
    TEXT: {"prompt": "Hi"},
    CODEX: {"input": "Hi"},
    CLAUDE: {"messages": [USER], "max_tokens": 9},
}
# What text-generation front ends send with every request.
BY_HABIT = {
    "typical_p": 1,
    "typical": 1.0,
    "tfs": 1,
    "xtc_probability": 0,
    "xtc_threshold": 0.1,
    "top_a": 0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["\n"],
    "mirostat": 0,
    "mirostat_mode": 0,
    "mirostat_tau": 5,
    "mirostat_eta": 0.1,
    "top_n_sigma": -1,
    "dynatemp_range": 0,
    "dynatemp_exponent": 1,
    "smoothing_factor": 0,
    "smoothing_curve": 1,
    "eta_cutoff": 0,
    "min_tokens": 0,
    "ignore_eos": False,
    "bad_words": [],
    "stop_token_ids": [],
    "logit_bias": {},
    "guidance_scale": 1,
    "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "add_bos_token": True,
    "ban_eos_token": False,
    "skip_special_tokens": True,
    "samplers": ["top_k"],
    "modalities": ["text"],
}
# What clients send that would need a memory elsewhere, and changes no word here.
HARMLESS = {
    CHAT: {"store": True, "prompt_cache_key": "k", "prompt_cache_retention": "24h", "user": "u", "id_slot": 1},
    CODEX: {
        "store": True,
        "include": ["reasoning.encrypted_content", "file_search_call.results"],
        "context_management": [{"type": "compaction", "compact_threshold": 9000}],
        "input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}, USER],
        "previous_response_id": None,
    },
    CLAUDE: {
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "diagnostics": {"previous_message_id": "msg_1"},
        "cache_control": {"type": "ephemeral"},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"ttl": "1h"}}]}],
        "mcp_servers": [],
    },
    TEXT: {"cache_prompt": False, "id_slot": 1},
}


@pytest.fixture
def asked(tooled):
    """(what asks, what was asked for)."""
    desk = ScriptedDesk(["ok"] * 99)
    with local(tooled, desk) as client:
        yield (lambda path, **fields: client.post(path, json={**BODIES[path], **fields})), desk
    desk.close()


def requested(asked, path, **fields):
    ask, desk = asked
    answer = ask(path, **fields)
    assert answer.status_code == 200, answer.text
    return desk.jobs[-1].job


@pytest.mark.parametrize("path", BODIES)
def test_fields_that_end_or_steer_an_answer_are_honoured(asked, path):
    job = requested(asked, path, stop_token_ids=[5], ignore_eos=True, min_tokens=4, bad_words=["no"], min_p=0.1)
    request = job.request
    assert (request.stop_tokens, request.ignore_eos, request.min_tokens) == ((5,), True, 4)
    assert (request.bad_words, request.sampling["min_p"]) == (("no",), 0.1)


def test_a_bias_is_by_id_or_by_text(asked, tooled):
    ids = tooled.tokenizer.continuation("no")
    for biases in ({"5": 2, "no": -3}, [[5, 2], ["no", -3.0]]):
        assert requested(asked, CHAT, logit_bias=biases).request.logit_bias == ((5, 2), *((one, -3) for one in ids))
    assert requested(asked, CHAT, logit_bias=[[5, False]]).request.logit_bias == ((5, -math.inf),)
    five = tuple((token, 1) for token in tooled.tokenizer.continuation("5"))
    assert requested(asked, CHAT, logit_bias=[["5", 1]]).request.logit_bias == five


@pytest.mark.parametrize("path", BODIES)
def test_what_is_sent_by_habit_changes_nothing(asked, path):
    bare = requested(asked, path)
    assert requested(asked, path, **BY_HABIT).request == bare.request
    assert requested(asked, path, **HARMLESS[path]).prompt == bare.prompt


def test_null_is_absent_whole_numbers_may_have_a_point_and_what_is_unknown_is_ignored(asked):
    odd = {"temperature": None, "stop": None, "max_tokens": 4.0, "top_k": -1, "seed": None, "no_such_field": {"a": 1}}
    request = requested(asked, CHAT, **odd).request
    assert (request.max_tokens, request.sampling, request.seed, request.stop) == (4, {"top_k": 0}, None, ())


def test_whose_words_follow_is_as_vllm_has_it(asked, tooled):
    said = {"messages": [USER, {"role": "assistant", "content": "one"}]}

    def prompt(**fields):
        return tooled.text(requested(asked, CHAT, **said, **fields).prompt)

    assert prompt().endswith("one") and prompt(continue_final_message=True, add_generation_prompt=False) == prompt()
    assert prompt(add_generation_prompt=True).endswith("one<|im_end|>\n<|im_start|>assistant\n")
    assert prompt(add_generation_prompt=False).endswith("one<|im_end|>\n")


def test_only_the_last_tokens_of_a_prompt_are_read(asked):
    whole = requested(asked, TEXT).prompt
    assert requested(asked, TEXT, truncate_prompt_tokens=1).prompt == whole[-1:]
    assert requested(asked, TEXT, truncate_prompt_tokens=-1).prompt == whole


def test_consecutive_messages_of_one_role_are_one_turn_for_anthropics_clients(asked, tooled):
    """22: so Anthropic's reference for `messages` says."""
    messages = [{"role": "user", "content": "first"}, {"role": "user", "content": "second"}]
    text = tooled.text(requested(asked, CLAUDE, messages=messages).prompt)
    assert "<|im_start|>user\nfirst\n\nsecond<|im_end|>" in text


def test_what_the_template_does_not_read_is_said_once(tooled):
    lines = []
    with local(tooled, ScriptedDesk(["ok"] * 9), lines) as client:
        for _ in range(2):
            client.post(CHAT, json={"messages": [USER], "chat_template_kwargs": {"other": 1}})
    assert [line.note for line in lines] == ["other had no effect: the template reads none", ""]


def test_the_document_has_the_rows_of_the_code():
    text = (Path(specdec_cli.__file__).parent / "docs/serve.md").read_text("utf-8")
    rows = [
        (tuple(re.findall("`([^`]+)`", fields)), reason)
        for fields, reason in re.findall(r"^\| (`.*`) \| (.*) \|$", text, re.M)
    ]
    assert [row for row in rows if any(row[0] == one.fields for one in REFUSALS)] == [
        (one.fields, one.reason) for one in REFUSALS
    ]
