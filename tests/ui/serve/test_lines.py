"""The server's plain lines: figures alone, one line a reply."""

from specdec_cli.ui.serve.log import reply_line, started_lines

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
}


def test_a_reply_is_one_line_of_figures():
    line = reply_line("12:00:00", FACTS)
    assert line == "12:00:00 chat/completions  57 (40 reused) → 120 tokens  118 tok/s  62 % accepted  1.2 s"


def test_a_narrow_terminal_gets_the_same_figures_with_fewer_words():
    assert reply_line("12:00:00", FACTS, 90) == reply_line("12:00:00", FACTS)
    assert reply_line("12:00:00", FACTS, 80).endswith("57 (40 reused) → 120  118 tok/s  62 % accepted  1.2 s")
    assert reply_line("12:00:00", FACTS, 40).endswith("57 (40 reused) → 120  118 tok/s  62 %  1.2 s")


def test_a_failure_is_told_to_the_operator_in_full():
    failed = {"status": 500, "emitted_tokens": 0, "draft_n": 0, "tokens_per_second": None, "failure": "no memory"}
    assert reply_line("12:00:00", FACTS | failed) == "12:00:00 chat/completions 500  1.2 s  failed: no memory"


def test_a_refusal_names_the_field():
    refused = {"status": 400, "emitted_tokens": 0, "draft_n": 0, "tokens_per_second": None, "refused": "top_p"}
    assert reply_line("12:00:00", FACTS | refused) == "12:00:00 chat/completions 400  1.2 s  refused: top_p"


def test_the_first_lines_say_where_the_server_is_and_for_whom():
    lines = started_lines("demo", "http://127.0.0.1:8040", wants_key=False)
    assert lines[0] == "demo serves this machine only. OpenAI's clients take http://127.0.0.1:8040/v1,"
    assert lines[1] == "Anthropic's, llama.cpp's and any browser (for a chat) http://127.0.0.1:8040"
    assert all(len(line) <= 80 for line in lines)
    assert "whoever has its key" in started_lines("demo", "http://127.0.0.1:8040", wants_key=True)[0]
