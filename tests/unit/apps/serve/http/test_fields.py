"""Fields of a body: honoured, under all of their names, or let through where they change nothing."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import specdec_cli
from fakes.models import TINY
from fakes.tool_model import tool_model
from specdec_cli.apps.serve.http import completions
from specdec_cli.apps.serve.http.dialect import usage
from specdec_cli.apps.serve.http.reading import USUAL_TOKENS
from specdec_cli.apps.serve.http.schema import REFUSALS
from specdec_cli.core.events import TokenLogprob
from specdec_cli.core.request import Constraint, Request
from specdec_cli.models.tokenizer import Tokenizer

USER = {"role": "user", "content": "Hi"}
CHAT, TEXT, CODEX, CLAUDE = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
BODIES = {
    CHAT: {"messages": [USER]},
    TEXT: {"prompt": "Hi"},
    CODEX: {"input": "Hi"},
    CLAUDE: {"messages": [USER], "max_tokens": 9},
}
# What text-generation front ends send with every request.
HABITS = (
    (1, "typical_p typical tfs guidance_scale encoder_repetition_penalty dynatemp_exponent smoothing_curve"),
    (0, "xtc_probability top_a dry_multiplier mirostat mirostat_mode dynatemp_range smoothing_factor eta_cutoff"),
    (0, "min_tokens no_repeat_ngram_size"),
    (-1, "top_n_sigma dry_penalty_last_n"),
    (False, "ignore_eos ban_eos_token"),
    (True, "add_bos_token skip_special_tokens"),
    ([], "bad_words stop_token_ids"),
    (0.1, "xtc_threshold mirostat_eta"),
)
BY_HABIT = {name: value for value, names in HABITS for name in names.split()}
BY_HABIT |= {"logit_bias": {}, "modalities": ["text"], "samplers": ["top_k"], "dry_sequence_breakers": ["\n"]}
BY_HABIT |= {"dry_base": 1.75, "dry_allowed_length": 2, "mirostat_tau": 5}
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


def job_of(asked, path, **fields):
    """The last job of a body with these fields."""
    client, desk = asked
    answer = client.post(path, json={**BODIES[path], **fields})
    assert answer.status_code == 200, answer.text
    return desk.jobs[-1].job


def test_the_model_is_the_pair_s_name_its_target_s_default_or_nothing(asked, tooled):
    client, desk = asked
    for name in (tooled.name, tooled.target, "default", "", None):
        assert job_of(asked, CHAT, model=name)
    for name in ("gpt-5", "/etc/passwd", "file:///etc", "~/models/a", "https://x.example/m", "../tool"):
        assert client.post(CHAT, json={"messages": [USER], "model": name}).status_code == 404, name
    assert len(desk.jobs) == 5


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"])
def test_the_length_has_four_names_and_is_usual_without_any(asked, name):
    given = ({name: 7}, {name: 0}, {name: -1}, {})
    assert [job_of(asked, CHAT, **one).request.max_tokens for one in given] == [7, 0, USUAL_TOKENS, USUAL_TOKENS]


@pytest.mark.parametrize("path", BODIES)
def test_fields_that_end_or_steer_an_answer_are_honoured(asked, path):
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "presence_penalty": 0.2}
    sampling |= {"frequency_penalty": 0.3, "repetition_penalty": 1.1}
    ends = {"stop_token_ids": [5], "ignore_eos": True, "min_tokens": 4, "bad_words": ["no"]}
    request = job_of(asked, path, **sampling, **ends, seed=9, logit_bias={"5": -2}, stop=["a"]).request
    assert (request.sampling, request.seed, request.logit_bias) == (sampling, 9, ((5, -2.0),))
    assert (request.stop_tokens, request.ignore_eos, request.min_tokens) == ((5,), True, 4)
    assert (request.bad_words, request.stop) == (("no",), ("a",))
    other = job_of(asked, path, stop_sequences=["b"], repeat_penalty=1.2).request
    assert (other.stop, other.sampling) == (("b",), {"repetition_penalty": 1.2})


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_json_object_may_have_a_schema_as_llama_cpp_s_clients_write_it(asked, path):
    """Any object was let through."""
    asks = {"type": "json_object", "schema": {"type": "object", "required": ["a"]}}
    assert job_of(asked, path, response_format=asks).request.constraint == Constraint(
        "schema", json.dumps(asks["schema"])
    )
    any_object = job_of(asked, path, response_format={"type": "json_object"}).request.constraint
    assert any_object == Constraint("schema", '{"type": "object"}')


def test_further_answers_are_further_attempts_of_one_request(asked):
    job_of(asked, CHAT, n=2)
    assert [handle.job.request.attempt for handle in asked[1].jobs] == [0, 1]


def test_a_bias_is_by_id_or_by_text(asked, tooled):
    ids = tooled.tokenizer.continuation("no")
    for biases in ({"5": 2, "no": -3}, [[5, 2], ["no", -3.0]]):
        assert job_of(asked, CHAT, logit_bias=biases).request.logit_bias == ((5, 2), *((one, -3) for one in ids))
    assert job_of(asked, CHAT, logit_bias=[[5, False]]).request.logit_bias == ((5, -math.inf),)
    five = tuple((token, 1) for token in tooled.tokenizer.continuation("5"))
    assert job_of(asked, CHAT, logit_bias=[["5", 1]]).request.logit_bias == five


@pytest.mark.parametrize("path", BODIES)
def test_what_is_sent_by_habit_changes_nothing(asked, path):
    bare = job_of(asked, path)
    assert job_of(asked, path, **BY_HABIT).request == bare.request
    assert job_of(asked, path, **HARMLESS[path]).prompt == bare.prompt
    template = {"chat_template": "{{ 7 * 191 }}", "chat_template_kwargs": {"bos_token": "1337"}}
    assert job_of(asked, path, **template).prompt == bare.prompt  # a client's is never used


def test_null_is_absent_whole_numbers_may_have_a_point_and_what_is_unknown_is_ignored(asked):
    odd = {"temperature": None, "stop": None, "max_tokens": 4.0, "top_k": -1, "seed": None, "no_such_field": {"a": 1}}
    request = job_of(asked, CHAT, **odd).request
    assert (request.max_tokens, request.sampling, request.seed, request.stop) == (4, {"top_k": 0}, None, ())


def test_whose_words_follow_is_as_vllm_has_it(asked, tooled):
    said = {"messages": [USER, {"role": "assistant", "content": "one"}]}

    def prompt(**fields):
        return tooled.text(job_of(asked, CHAT, **said, **fields).prompt)

    assert prompt().endswith("one") and prompt(continue_final_message=True, add_generation_prompt=False) == prompt()
    assert prompt(add_generation_prompt=True).endswith("one<|im_end|>\n<|im_start|>assistant\n")
    assert prompt(add_generation_prompt=False).endswith("one<|im_end|>\n")


def test_only_the_last_tokens_of_a_prompt_are_read(asked):
    whole = job_of(asked, TEXT).prompt
    assert job_of(asked, TEXT, truncate_prompt_tokens=1).prompt == whole[-1:]
    assert job_of(asked, TEXT, truncate_prompt_tokens=-1).prompt == whole


def test_consecutive_messages_of_one_role_are_one_turn_for_anthropics_clients(asked, tooled):
    """22: so Anthropic's reference for `messages` says."""
    messages = [{"role": "user", "content": "first"}, {"role": "user", "content": "second"}]
    text = tooled.text(job_of(asked, CLAUDE, messages=messages).prompt)
    assert "<|im_start|>user\nfirst\n\nsecond<|im_end|>" in text


def test_what_the_template_does_not_read_is_said_once(scripted):
    lines = []
    client, _ = scripted(records=lines)
    for _ in range(2):
        client.post(CHAT, json={"messages": [USER], "chat_template_kwargs": {"other": 1}})
    assert [line.note for line in lines] == ["other had no effect: the template reads none", ""]


@pytest.mark.parametrize(
    "drafter, k",
    [("model", "auto"), ("model", 4), ("mtp", "auto"), ("none", 0), ("model", 0), ("ngram", 4), ("auto", 4)],
)
def test_a_prediction_is_of_use_or_counts_as_nothing_whatever_the_operator_chose(tool_folders, scripted, drafter, k):
    """It was a 400 with words about --drafter, of which no client knows."""
    client, desk = scripted(model=tool_model(tool_folders[0], drafter=drafter, k=k))
    asked = {"messages": [USER], "prediction": {"type": "content", "content": "It is so."}}
    details = client.post(CHAT, json=asked).json()["usage"]["completion_tokens_details"]
    assert (details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]) == (0, 0)
    assert bool(desk.jobs[0].job.request.predict) == (drafter != "mtp" and (drafter != "model" or k == 0))


def test_rejected_prediction_tokens_are_those_that_were_drafted_and_not_accepted():
    ask = SimpleNamespace(choices=1, request=Request(predict="It is so."))
    counts = {"drafted_by": {"prediction": 9, "model": 5}, "accepted_by": {"prediction": 4, "model": 5}}
    answer = SimpleNamespace(ask=ask, prompt=[1, 2], emitted=9, cached=0, from_disk=0, thought=None, stats=counts)
    found = usage([answer])["completion_tokens_details"]
    assert found == {"accepted_prediction_tokens": 4, "rejected_prediction_tokens": 5}


@pytest.mark.parametrize("dialect", [completions.ChatDialect, completions.TextDialect])
def test_a_logprob_of_nothing_is_a_number_of_json(dialect, tiny_pair):
    """Beside a bias of minus infinity; JSON has no infinity, and clients fail at the word."""
    tokenizer = Tokenizer.load(tiny_pair[0], "tiny", TINY)
    score = TokenLogprob(5, -math.inf, ((5, -math.inf), (6, -0.5)))
    made = dialect(SimpleNamespace(request=Request(logprobs=0)))
    text = json.dumps(made.table(0, tokenizer, [score]), allow_nan=False)
    assert text.count("-9999.0") == 2 and "-0.5" in text


def test_a_stream_s_offsets_go_on_for_each_choice_and_are_those_of_the_whole(tooled):
    """They began at 0 in every chunk."""
    scores = [TokenLogprob(token, -1.0, ()) for token in tooled.tokenizer.encode("It is so.")]
    answer = SimpleNamespace(model=tooled)

    def offsets(*parts):
        dialect = completions.TextDialect(SimpleNamespace(request=Request(logprobs=0)))
        told = [dialect.choice(n, {}, answer, part, None)["logprobs"] for part in parts for n in (0, 1)]
        return [[at for one in told[n::2] for at in one["text_offset"]] for n in (0, 1)]

    whole = offsets(scores)
    assert whole[0] == whole[1] == sorted(set(whole[0])) and len(scores) > 3
    assert offsets(scores[:1], (), scores[1:3], scores[3:]) == whole


def test_the_document_has_the_rows_of_the_code():
    text = (Path(specdec_cli.__file__).parent / "docs/serve.md").read_text("utf-8")
    cells = re.findall(r"^\| (`.*`) \| (.*) \|$", text, re.M)
    rows = [(tuple(re.findall("`([^`]+)`", fields)), reason) for fields, reason in cells]
    known = [(one.fields, one.reason) for one in REFUSALS]
    assert [row for row in rows if row[0] in dict(known)] == known
