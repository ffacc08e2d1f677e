"""The server's plain lines: figures alone, one line a reply."""

import io
import os
import re
from dataclasses import dataclass

import pytest

from specdec_cli.apps.serve.build import ServerLog, reply_line
from specdec_cli.system import servers

FACTS = {
    "path": "/v1/chat/completions",
    "status": 200,
    "seconds": 1.234,
    "prompt_tokens": 57,
    "cached_tokens": 40,
    "disk_tokens": 0,
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


@dataclass(frozen=True)
class Line:
    facts: dict
    words: dict


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_what_may_be_read_on_another_day_has_its_date():
    """A log went on over months of starts and replies that had only the time of day."""
    for err, stamp in ((io.StringIO(), r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "), (Screen(), r"\d\d:\d\d:\d\d ")):
        log = ServerLog(err, quiet=False, plain=True)
        log.started("demo", "http://127.0.0.1:8040", wants_key=False)
        log.reply(Line(FACTS, {}))
        said = err.getvalue()
        assert re.search(rf"^{stamp}chat/completions ", said, re.M)
        assert bool(re.search(rf"^{stamp}started$", said, re.M)) == (not err.isatty())


def test_a_server_s_own_log_begins_anew_once_it_is_long_and_no_other_file_does(tmp_path):
    """It grew for ever; what the user redirects is the user's."""
    own, foreign = servers.new_log(8040), tmp_path / "8040.log"
    for path in (own, foreign):
        path.write_text("x" * servers.LOG_BYTES + "\n")
        path.chmod(0o600)
        with path.open("a") as err:
            for _ in range(3):
                ServerLog(err, quiet=False, plain=True).reply(Line(FACTS, {}))
    older = own.with_suffix(servers.OLDER)
    assert foreign.stat().st_size > servers.LOG_BYTES and not foreign.with_suffix(servers.OLDER).exists()
    assert own.read_text().count("\n") == 2 and older.read_text().count("\n") == 2
    assert older.stat().st_mode & 0o777 == 0o600
    ServerLog(io.StringIO(), quiet=False, plain=True).reply(Line(FACTS, {}))  # no file at all


def test_of_the_logs_of_many_ports_the_newest_stay():
    for port in range(1, 40):
        path = servers.new_log(port)
        path.write_text("")
        path.with_suffix(servers.OLDER).write_text("")
        os.utime(path, (port, port))
    kept = {path.name for path in servers.servers_folder().iterdir()}
    ports = range(40 - servers.MOST_LOGS, 40)
    assert kept == {f"{port}{end}" for port in ports for end in (".log", servers.OLDER)}


@pytest.mark.parametrize("key, who", [(False, "this machine only"), (True, "anyone with its key")])
def test_the_first_lines_say_where_the_server_is_and_for_whom(key, who):
    err = io.StringIO()
    ServerLog(err, quiet=False, plain=True).started("demo", "http://127.0.0.1:8040", wants_key=key)
    lines = err.getvalue().splitlines()
    assert lines[0] == f"demo serves {who}. OpenAI clients use http://127.0.0.1:8040/v1;"
    assert lines[1] == "Anthropic, Ollama and llama.cpp clients, and browsers, use http://127.0.0.1:8040"
    assert all(len(line) <= 80 for line in lines)
