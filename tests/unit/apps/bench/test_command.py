"""`specdec bench` as a person runs it: real processes on tiny models, files read back, models.toml kept."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import nullcontext
from dataclasses import replace

import pytest

from fakes.bench import DRAFT, Simulated, read_back, sample_result
from fakes.machine import MACHINES
from fakes.models import TINY, tiny_folder
from specdec_cli.apps.bench.bench import parse_lengths
from specdec_cli.apps.bench.report import reports
from specdec_cli.apps.bench.sentences import command
from specdec_cli.command.table import CONTENDERS
from specdec_cli.command.values import parse_seconds
from specdec_cli.core.kinds import DRAFTERS
from specdec_cli.pairs import registry as models_toml
from specdec_cli.pairs.pair import Pair
from specdec_cli.pairs.registry import read_registry

PROMPTS = "\n".join(f"def function_{n}(argument):" for n in range(6))


@pytest.fixture
def home(tmp_path):
    """A folder with a models.toml that has been edited by hand, and its environment."""
    target = tiny_folder(tmp_path / "target", TINY, seed=1, endless=True)
    draft = tiny_folder(tmp_path / "draft", TINY, seed=1, noise=0.03, endless=True)
    (tmp_path / "prompts.txt").write_text(PROMPTS)
    (tmp_path / "models.toml").write_text(
        f'schema_version = 1\n\n# mine, do not touch\n[pairs.tiny]\ntarget = "{target}"\ndraft = "{draft}"\n'
        'k = 2  # from the forum\nmeasured = [{chip = "Apple M9", k = 5, speedup = 9.0}]\n'
    )
    return tmp_path


def start(home, *arguments):
    own = {"COLUMNS": "80", "SPECDEC_MODELS": str(home / "models.toml")}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "specdec_cli", *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | own, cwd=home, **streams)


def specdec_in(home, *arguments):
    process = start(home, *arguments)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def bench(home, *more):
    return ("bench", "-p", "tiny", "--raw", "--prompts", "prompts.txt", "-n", 16, "-k", "0-3", *more)


@pytest.mark.slow
def test_from_the_bench_to_the_run_with_every_file_in_between(home):
    """One whole bench: table, files, models.toml; then `run` starts at what was written."""
    exports = [part for end in ("json", "html") for part in ("--export", f"bench.{end}")]
    (home / "prompts.txt").write_text(PROMPTS + "\n" + "x" * 300)
    code, out, err = specdec_in(home, *bench(home, "--time-budget", "60s", "--write", *exports))
    assert code == 0 and "1 of 7 prompts leave no room for 16 tokens: left out" in err, err
    lines = out.splitlines()
    assert lines[0].startswith("tiny · target + draft") and max(map(len, lines)) <= 80
    result = read_back((home / "bench.json").read_text())
    (report,) = reports(result)
    assert not result.partial and result.seconds < 60
    assert report.recommendation.answer in ("use", "don't")
    k = report.recommendation.chosen
    assert lines[-1] == f"specdec run -p tiny{' --drafter model' * bool(k)} -k {k} --raw 'your prompt'"
    assert f"tiny now starts at K {k}" in err
    assert (home / "bench.html").stat().st_size > 1000
    text = (home / "models.toml").read_text()
    assert "# mine, do not touch" in text
    written = tomllib.loads(text)["pairs"]["tiny"]
    assert written["k"] == k and [one["chip"] for one in written["measured"]] == ["Apple M9", result.environment.chip]
    _, out, _ = specdec_in(home, "run", "-p", "tiny", "--raw", "-n", 8, "--json", "def f(")
    assert json.loads(out.splitlines()[0])["k"] == k


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_bench_that_is_ended_saves_what_there_is(home, sent, code):
    process = start(home, *bench(home, "--time-budget", "5m", "--cooldown", "0.4s", "--export", "bench.json"))
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(3)  # an answer, on a busy machine too
    process.send_signal(sent)
    out, _ = process.communicate(timeout=60)
    result = read_back((home / "bench.json").read_text())
    assert process.returncode == code and result.partial and result.samples
    assert ("partial: interrupted" in out) == (sent == signal.SIGINT)


@pytest.mark.slow
def test_several_drafts_drafters_and_temperatures_share_one_target(home):
    other = tiny_folder(home / "other", TINY, seed=9, endless=True)
    code, out, err = specdec_in(
        home, "bench", "--target", home / "target", "--draft", home / "draft", "--draft", other, "--drafter", "model",
        "--drafter", "ngram", "--temp", 0, "--temp", 1, "--raw", "--prompts", "prompts.txt", "-n", 12, "-k", "1-2,auto",
        "--time-budget", "60s", "--json", "-q",
    )  # fmt: skip
    assert (code, err) == (0, "")
    result = read_back(out)
    conditions = result.settings.conditions
    assert [(c.contender.name, c.temperature) for c in conditions] == [
        ("draft", 0.0), ("other", 0.0), ("ngram", 0.0), ("draft", 1.0), ("other", 1.0), ("ngram", 1.0)
    ]  # fmt: skip
    assert {s.arm.condition for s in result.samples if s.arm.k} == set(conditions)
    good, bad = (
        sum(s.draft_n_accepted for s in result.samples if s.arm.contender.name == name) for name in ("draft", "other")
    )
    assert good > 2 * bad


def test_what_is_written_is_all_of_the_pair_with_its_k_drafter_and_draft_context_and_once_a_chip(tmp_path):
    """An entry of the user's file replaces the packaged one; the draft context of the first --write stayed."""
    path = tmp_path / "models.toml"
    for k, chip, context in ((3, "one", 8), (5, "two", "full"), (6, "one", 1024)):
        pair = Pair("demo", "specdec:demo/target", "specdec:demo/draft", 4, "a toy", target_bytes=7, source="packaged")
        entry = {"chip": chip, "k": k, "drafter": "model", "draft_context": context, "speedup": 1.5, "low": None}
        models_toml.record_measured(path, replace(pair, draft_context=context), k, entry)
        found = read_registry(path, "yours").find("demo")
        assert (found.target, found.draft, found.note) == (pair.target, pair.draft, "a toy")
        assert (found.k, found.drafter, found.draft_context) == (k, "model", context)
    measured = tomllib.loads(path.read_text())["pairs"]["demo"]["measured"]
    told = [[one.pop(name) for name in ("chip", "k", "draft_context")] for one in measured]
    assert told == [["two", 5, "full"], ["one", 6, 1024]]
    assert measured == [{"drafter": "model", "speedup": 1.5}] * 2


@pytest.mark.parametrize(
    ("arguments", "context", "own"),
    [(("-p", "demo"), 1024, True), (("-p", "demo"), 33, False), (("-p", "mine"), 64, True)],
)
def test_a_bench_records_the_draft_context_in_effect_and_keeps_the_machine_awake(
    specdec, monkeypatch, arguments, context, own
):
    seen = []
    if not own:
        monkeypatch.setenv("SPECDEC_DRAFT_CONTEXT", str(context))

    def load_machine(request, cancelled, tell, report):
        seen.append((request.settings.draft_context, request.settings.own_context))
        raise KeyboardInterrupt

    specdec.models.write_text('schema_version = 1\n[pairs.mine]\ntarget = "specdec:demo/target"\ndraft_context = 64\n')
    monkeypatch.setattr("specdec_cli.apps.bench.bench.awake", lambda: nullcontext(seen.append("awake")))
    monkeypatch.setattr("specdec_cli.apps.bench.live.load_machine", load_machine)
    assert specdec("bench", "-q", *arguments)[0] == 130
    assert seen == ["awake", (context, own)]


def test_the_next_command_after_another_draft_keeps_the_adapter_of_the_pair(specdec, monkeypatch):
    """The bug: it named the target alone, which is another model."""
    found = []

    def load_machine(request, cancelled, tell, report):
        found.append(request.settings)
        raise KeyboardInterrupt

    models = 'schema_version = 1\n[pairs.mine]\ntarget = "specdec:demo/target"\ntarget_adapter = "/a"\n'
    specdec.models.write_text(models)
    monkeypatch.setattr("specdec_cli.apps.bench.live.load_machine", load_machine)
    assert specdec("bench", "-q", "-p", "mine", "--draft", "specdec:demo/draft")[0] == 130
    result = sample_result(budget_seconds=120.0)
    settings = replace(found[0], contenders=result.settings.contenders)
    (report,) = reports(replace(result, settings=settings))
    assert command(report).startswith(f"specdec run -p mine --draft {DRAFT.draft} ")


def test_a_file_that_cannot_be_written_loses_nothing_of_what_was_measured(specdec, monkeypatch, tmp_path):
    first, second, texts = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "texts"
    texts.write_text("0.8 1\n0.8 2\n0.8 3\n")
    line = "bench", "-p", "demo", "--prompts", texts, "--write", "--export", first, "--export", second

    def load_machine(*_):
        first.mkdir()  # since it was looked at
        return Simulated(MACHINES[0])

    monkeypatch.setattr("specdec_cli.apps.bench.live.load_machine", load_machine)
    code, out, err = specdec(*line)
    assert code == 2 and "specdec run -p demo" in out and "demo now starts at K" in err
    assert err.splitlines()[-2].startswith(f"error: --export {first} cannot be written: ")
    assert read_back(second.read_text()).samples and "demo" in tomllib.loads(specdec.models.read_text())["pairs"]
    first.rmdir()
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    assert specdec.refused(*line)[1] == f"--export {first} cannot be written: {tmp_path} may not be changed"
    assert not first.exists()


@pytest.mark.parametrize(
    ("text", "ks"),
    [("0-8,auto", (*range(9), "auto")), ("auto", ("auto",)), ("1-3,2,8", (1, 2, 3, 8)), (" 2 , 4 - 5 ", (2, 4, 5))],
)
def test_lists_and_ranges(text, ks):
    assert parse_lengths(text) == ks


def test_seconds_minutes_and_hours():
    assert [parse_seconds("--x", text) for text in ("90", "90s", "2m", "1.5m", "1h")] == [90, 90, 120, 90, 3600]


def test_whoever_drafts_can_be_measured():
    """But for nobody, and for a translated draft, which says itself that it is one."""
    assert set(DRAFTERS) - set(CONTENDERS) == {"none", "translated"}
