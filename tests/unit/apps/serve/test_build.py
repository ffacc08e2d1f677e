"""What a server knows of its pairs, which others `--switch` may load, and what it says while it runs."""

import io
import json
import os
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import specdec_cli
from fakes.models import tiny_folder
from fakes.serving import model_of
from fakes.tool_model import tool_folder
from specdec_cli.apps.serve.build import ServerLog, pairs_here, reply_line, spec_here, words_file
from specdec_cli.apps.serve.http import llama
from specdec_cli.apps.serve.http.errors import HttpError
from specdec_cli.apps.serve.http.service import settled
from specdec_cli.apps.serve.job import SchedulerStatus
from specdec_cli.apps.serve.model import Switch, public_name
from specdec_cli.core.errors import NotAvailable, UsageError
from specdec_cli.core.request import Request
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


LINE = SimpleNamespace(facts=FACTS, words={})


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_what_may_be_read_on_another_day_has_its_date():
    """A log went on over months of starts and replies that had only the time of day."""
    for err, stamp in ((io.StringIO(), r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "), (Screen(), r"\d\d:\d\d:\d\d ")):
        log = ServerLog(err, quiet=False, plain=True)
        log.started("demo", "http://127.0.0.1:8040", wants_key=False)
        log.reply(LINE)
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
                ServerLog(err, quiet=False, plain=True).reply(LINE)
    older = own.with_suffix(servers.OLDER)
    assert foreign.stat().st_size > servers.LOG_BYTES and not foreign.with_suffix(servers.OLDER).exists()
    assert own.read_text().count("\n") == 2 and older.read_text().count("\n") == 2
    assert older.stat().st_mode & 0o777 == 0o600
    ServerLog(io.StringIO(), quiet=False, plain=True).reply(LINE)  # no file at all


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
def test_a_log_on_a_full_disk_ends_and_says_so_once():
    """The bug: its error took the place of every answer."""
    err = io.StringIO()
    with words_file(FULL) as file:
        log = ServerLog(err, quiet=False, plain=True, file=file)
        for _ in range(2):
            log.reply(LINE)
    assert err.getvalue().count("--log ends here, it cannot be written: No space left on device") == 1


def test_of_the_logs_of_many_ports_the_newest_stay():
    for port in range(1, 40):
        path = servers.new_log(port)
        path.write_text("")
        path.with_suffix(servers.OLDER).write_text("")
        os.utime(path, (port, port))
    kept = {path.name for path in servers.servers_folder().iterdir()}
    ports = range(40 - servers.MOST_LOGS, 40)
    assert kept == {f"{port}{end}" for port in ports for end in (".log", servers.OLDER)}


def test_the_last_line_counts_answers_of_which_a_request_may_have_several():
    """It said "5 requests" of three, one of which had `n: 3`."""
    err = io.StringIO()
    ServerLog(err, quiet=False, plain=True).ended(SchedulerStatus(jobs=5))
    assert err.getvalue() == "5 answers, 0 tokens generated\n"


def test_a_pair_of_folders_is_public_name_without_their_paths(tmp_path):
    """/v1/models told every client where this machine keeps its files."""
    target, draft = tool_folder(tmp_path / "secret" / "big"), tool_folder(tmp_path / "secret" / "small")
    pair = specdec_cli.load(target=f"{target}/", draft=str(draft))
    model = model_of(pair, Request(), 1)
    assert (model.name, model.target, model.draft) == ("big", "big", "small")
    said = json.dumps([llama.models(model), llama.props(model, SchedulerStatus())])
    assert "secret" not in said and '"target": "big"' in said
    assert model.answers_to("big") and not model.answers_to(str(target))


def test_an_error_of_its_template_names_no_path(tmp_path):
    target = tool_folder(tmp_path / "secret" / "big")
    (target / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((target / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (target / "tokenizer_config.json").write_text(json.dumps(config))
    model = model_of(specdec_cli.load(target=str(target), draft=None), Request(), 1)
    with pytest.raises(UsageError, match="big has no chat template") as refused:
        model.prompt([{"role": "user", "content": "Hi"}], True, [{"type": "function", "function": {"name": "f"}}])
    assert "secret" not in refused.value.message


def test_names_that_are_no_folders_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("specdec:demo/target", "mlx-community/Qwen3-8B-4bit", "demo"):
        assert public_name(name) == name
    assert public_name(".") == tmp_path.name


PAIRS = """schema_version = 1
[pairs.one]
target = "{0}"
drafter = "ngram"
[pairs.away]
target = "org/away"
drafter = "ngram"
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "models.toml").write_text(PAIRS.format(tiny_folder(tmp_path / "one")))
    return tmp_path / "models.toml"


@pytest.fixture
def switch(models):
    return Switch(partial(pairs_here, "demo", None), lambda spec: Request(drafter=spec.drafter))


def test_they_are_those_that_are_here_but_for_the_server_s_own(switch):
    assert {"one", "demo-hybrid"} <= set(switch.here()) and not {"demo", "away"} & set(switch.here())


def test_each_has_the_drafter_that_models_toml_gives_it(switch):
    assert spec_here("one", None).drafter == switch.find("one").base.drafter == "ngram"
    assert spec_here("one", "none").drafter == pairs_here("demo", "none")["one"].drafter == "none"


def test_a_pair_that_is_added_meanwhile_is_found_and_one_that_is_not_is_none(switch, models, tmp_path):
    assert switch.find("two") is None
    more = tiny_folder(tmp_path / "two", seed=1)
    models.write_text(models.read_text() + f'[pairs.two]\ntarget = "{more}"\ndrafter = "none"\n')
    found = switch.find("two")
    assert (found.name, found.pair, found.context_limit, found.vocab_size) == ("two", "two", 256, 259)
    assert switch.find("two") is found
    with pytest.raises(NotAvailable):
        spec_here("three", None)


def test_a_model_of_another_program_may_be_asked_for_and_gguf_is_told_what_it_is(switch, tmp_path, monkeypatch):
    """Its short name, its id and its address are names of it, a path is none; `run` took them, a request did not."""
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    folders = tmp_path / "folders"
    monkeypatch.setenv("SPECDEC_MODEL_FOLDERS", str(folders))
    tiny_folder(folders / "org/Big-1B", seed=2)
    tiny_folder(folders / "Deep-1B", seed=3)
    (folders / "me/Big-7B-GGUF").mkdir(parents=True)
    (folders / "me/Big-7B-GGUF/model.gguf").write_bytes(b"GGUF")
    assert {"Big-1B", "Deep-1B"} <= set(switch.here()) and not any("/" in name for name in switch.here())
    for name in ("Big-1B", "org/Big-1B", "big-1b", "https://hf.co/org/Big-1B"):
        assert (switch.find(name).target, switch.find(name).pair) == ("org/Big-1B", "Big-1B")
    assert switch.find("Deep-1B").target == "Deep-1B" and switch.find(str(folders / "Deep-1B")) is None
    found = spec_here("Big-1B", None)
    assert (found.pair.name, found.pair.target, found.drafter) == ("Big-1B", "org/Big-1B", "ngram")
    assert switch.find("x" * 300, settled) is None
    with pytest.raises(HttpError, match=r"GGUF in your folder.*; look for it at huggingface.co") as refused:
        switch.find("Big-7B-GGUF", settled)
    assert refused.value.status == 404


def test_a_models_toml_that_was_broken_meanwhile_is_the_server_s_fault_and_no_request_s(switch, models):
    models.write_text("nonsense")
    for ask in (switch.here, lambda: switch.find("one"), lambda: spec_here("one", None)):
        with pytest.raises(NotAvailable, match="is not valid TOML"):
            ask()
