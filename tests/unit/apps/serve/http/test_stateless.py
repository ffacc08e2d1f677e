"""Nothing is kept between requests: a field that would need it is refused by name, or it changes no word."""

import json

import anthropic
import pytest
from anthropic import beta_tool

from fakes.desk import ScriptedDesk
from fakes.server import local, serving

CHAT, TEXT, CODEX, CLAUDE, COUNT = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
)
USER = {"role": "user", "content": "Hi"}
ASKED = {
    CHAT: {"messages": [USER]},
    TEXT: {"prompt": "Hi"},
    CODEX: {"input": "Hi"},
    CLAUDE: {"messages": [USER], "max_tokens": 4},
    COUNT: {"messages": [USER]},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
}
CREATE, CONTINUE = {"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}
# Of every dialect, whoever's they are.
EVERYWHERE = {
    "thread": CREATE,
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "session_params": {"id": "s"},
    "background": True,
    "mcp_servers": [{"type": "url", "name": "m", "url": "http://x"}],
    "container": {"skills": []},
    "compaction": {"type": "summarize"},
    "use_beam_search": True,
    "allowed_token_ids": [5],
    "typical_p": 0.9,
    "xtc_probability": 0.5,
    "dry_multiplier": 0.8,
    "mirostat": 2,
}
REFERENCE = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
FILE = {"type": "file", "file": {"file_id": "file_1"}}
# (path, fields, the name in the message)
ITS_OWN = [
    (CODEX, {"prompt": {"id": "pmpt_1"}}, "prompt"),
    (CODEX, {"conversation": {"id": "conv_1"}}, "conversation"),
    (CODEX, {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}, "include"),
    (CODEX, {"top_logprobs": 2}, "top_logprobs"),
    (CODEX, {"input": [USER, {"type": "item_reference", "id": "msg_1"}]}, "input[1].type"),
    (CODEX, {"input": [{"id": "msg_1"}, USER]}, "input[0].type"),
    (CODEX, {"input": [{"type": "compaction", "encrypted_content": "x"}, USER]}, "input[0].type"),
    (CODEX, {"input": [USER, {"type": "compaction_trigger"}]}, "input[1].type"),
    (
        CODEX,
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        "input[0].content[0].type",
    ),
    (CODEX, {"tools": [{"type": "mcp", "server_label": "m"}]}, "tools[0].type"),
    (CODEX, {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "tools[0].type"),
    (CHAT, {"messages": [USER, {"role": "assistant", "audio": {"id": "audio_1"}}, USER]}, "messages[1].audio"),
    (CHAT, {"messages": [{"role": "user", "content": [FILE]}]}, "messages[0].content[0].type"),
    (CLAUDE, {"thread": CONTINUE}, "thread"),
    (CLAUDE, {"container": "container_1"}, "container"),
    (CLAUDE, {"messages": [{"role": "user", "content": [REFERENCE]}]}, "messages[0].content[0].type"),
    *(
        (CLAUDE, {"messages": [{"role": "user", "content": [{"type": kind}]}]}, "messages[0].content[0].type")
        for kind in ("container_upload", "compaction", "mcp_tool_use", "tool_addition")
    ),
    (CLAUDE, {"tools": [{"type": "mcp_toolset", "mcp_server_name": "m"}]}, "tools[0].type"),
]
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
    TEXT: {
        "cache_prompt": False,
        "id_slot": 1,
        "min_tokens": 0,
        "ignore_eos": False,
        "bad_words": [],
        "typical_p": 1.0,
    },
}


@pytest.fixture
def asked(tooled):
    """(a client, its desk)."""
    desk = ScriptedDesk(["ok"] * 9)
    with local(tooled, desk) as client:
        yield client, desk
    desk.close()


@pytest.mark.parametrize("path", ASKED)
def test_no_dialect_takes_a_field_that_would_need_a_memory_or_change_the_answer_unseen(asked, path):
    """`thread` was ignored: the second request was answered without question, tools and system."""
    client, desk = asked
    for name, value in EVERYWHERE.items():
        refused = client.post(path, json={**ASKED[path], name: value})
        assert refused.status_code == 400, (name, refused.text)
        assert refused.json()["error"]["message"].startswith(f"{name}: "), refused.text
    assert not desk.jobs


@pytest.mark.parametrize("path, fields, name", ITS_OWN, ids=lambda value: value if isinstance(value, str) else "")
def test_what_names_words_that_are_not_here_is_refused_where_it_stands(asked, path, fields, name):
    client, desk = asked
    refused = client.post(path, json={**ASKED[path], **fields})
    assert refused.status_code == 400 and refused.json()["error"]["message"].startswith(f"{name}: "), refused.text
    assert not desk.jobs


@pytest.mark.parametrize("path", HARMLESS)
def test_what_changes_no_word_is_taken_and_the_prompt_is_the_same(asked, path):
    client, desk = asked
    bare, more = (client.post(path, json={**ASKED[path], **fields}) for fields in ({}, HARMLESS[path]))
    assert (bare.status_code, more.status_code) == (200, 200), more.text
    prompts = [ticket.job.prompt for ticket in desk.jobs]
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize("path", [CLAUDE, "/messages", COUNT])
@pytest.mark.parametrize("thread", [CREATE, CONTINUE])
def test_a_thread_is_refused_by_the_code_that_anthropic_s_clients_act_upon(asked, path, thread):
    refused = asked[0].post(path, json={"thread": thread, "max_tokens": 4, "stream": True, "messages": []}).json()
    assert refused["type"] == "error" and refused["error"]["type"] == "invalid_request_error"
    assert refused["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_what_openai_s_clients_would_fetch_again_is_nowhere(asked):
    for path in ("/v1/responses/resp_1", "/v1/conversations/conv_1", "/v1/files/file_1", "/v1/threads/thread_1"):
        assert asked[0].get(path).status_code == 404


CALL = '<tool_call>\n{"name": "look", "arguments": {"path": "a.py"}}\n</tool_call>'


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_s_tool_runner_ends_with_the_answer_to_the_whole_conversation(tooled, stream):
    """It begins with a thread. The second request came without question, tools and system, and was answered."""
    seen = []

    @beta_tool
    def look(path: str) -> str:
        """Looks into a file."""
        seen.append(path)
        return "forty-two lines"

    desk = ScriptedDesk([CALL, CALL, "It has 42."])
    with serving(tooled, desk) as (url, _):
        claude = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        question = {"role": "user", "content": "How long is a.py?"}
        asked = {"model": "tool", "max_tokens": 50, "system": "Be terse.", "messages": [question], "tools": [look]}
        runner = claude.beta.messages.tool_runner(**asked, stream=stream)
        last = runner.until_done()
        claude.close()
    desk.close()
    assert [block.text for block in last.content] == ["It has 42."] and seen == ["a.py"] * 2
    prompts = [tooled.text(ticket.job.prompt) for ticket in desk.jobs]
    assert len(prompts) == 3
    for number, prompt in enumerate(prompts):
        assert all(words in prompt for words in ("Be terse.", "How long is a.py?", json.dumps("look")))
        assert prompt.count("forty-two lines") == number
