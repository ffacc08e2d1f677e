"""The server's plain lines: figures alone, one line a reply."""

import io

import pytest

from specdec_cli.ui.serve.log import ServerLog, reply_line

FACTS = {
    "path": "/v1/chat/completions",
    "status": 200,
    "seconds": 1.234,
    "prompt_tokens": 57,
    "cached_tokens": 40,
    "emitted_tokens": 120,
    "tokens_per_second": 118.3,
    "draft_n": 96,
    "draft_n_accepted": 60,
    "failure": "",
    "refused": "",
    "note": "",
}


def test_a_reply_is_one_line_of_figures():
    line = reply_line("12:00:00", FACTS)
    assert line == "12:00:00 chat/completions  57 (40 reused) → 120 tokens  118 tok/s  62 % accepted  1.2 s"


@pytest.mark.parametrize(
    "more, words", [({"failure": "no memory"}, "failed: no memory"), ({"refused": "top_p"}, "refused: top_p")]
)
def test_a_failure_is_told_to_the_operator_in_full_and_a_refusal_by_its_field(more, words):
    failed = {"status": 500, "emitted_tokens": 0, "draft_n": 0, "tokens_per_second": None, **more}
    assert reply_line("12:00:00", FACTS | failed) == f"12:00:00 chat/completions 500  1.2 s  {words}"


@pytest.mark.parametrize("key, who", [(False, "this machine only"), (True, "anyone with its key")])
def test_the_first_lines_say_where_the_server_is_and_for_whom(key, who):
    err = io.StringIO()
    ServerLog(err, quiet=False, plain=True).started("demo", "http://127.0.0.1:8040", wants_key=key)
    lines = err.getvalue().splitlines()
    assert lines[0] == f"demo serves {who}. OpenAI clients use http://127.0.0.1:8040/v1;"
    assert lines[1] == "Anthropic, Ollama and llama.cpp clients, and browsers, use http://127.0.0.1:8040"
    assert all(len(line) <= 80 for line in lines)
