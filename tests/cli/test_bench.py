"""`specdec bench` as a person runs it: real processes on tiny models, files read back, models.toml kept."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import nullcontext

import pytest

from fakes.models import TINY, tiny_folder
from specdec_cli.bench.report import Report
from specdec_cli.bench.result import from_dict, read_result
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
    environment = {
        **os.environ,
        "COLUMNS": "80",
        "SPECDEC_MODELS": str(home / "models.toml"),
        "XDG_CACHE_HOME": str(home),
    }
    command = [sys.executable, "-m", "specdec_cli", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=home, text=True
    )


def specdec(home, *arguments):
    process = start(home, *arguments)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def bench(home, *more):
    return ("bench", "-p", "tiny", "--raw", "--prompts", "prompts.txt", "-n", 16, "-k", "0-3", *more)


@pytest.mark.slow
def test_from_the_bench_to_the_run_with_every_file_in_between(home):
    """One whole bench: table, files, models.toml; then `run` starts at what was written."""
    exports = [part for end in ("json", "html", "svg") for part in ("--export", f"bench.{end}")]
    code, out, err = specdec(home, *bench(home, "--time-budget", "60s", "--write", *exports))
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("tiny · target + draft") and max(map(len, lines)) <= 80
    result = read_result(home / "bench.json")
    report = Report(result, result.conditions[0])
    assert not result.partial and result.seconds < 60
    assert report.recommendation.answer in ("use", "don't")
    k = report.recommendation.chosen
    assert lines[-1] == f"specdec run -p tiny{' --drafter model' * bool(k)} -k {k} 'your prompt'"
    assert f"tiny now starts at K {k}" in err

    assert all((home / f"bench.{end}").stat().st_size > 1000 for end in ("html", "svg"))

    text = (home / "models.toml").read_text()
    assert "# mine, do not touch" in text
    written = tomllib.loads(text)["pairs"]["tiny"]
    assert written["k"] == k and [one["chip"] for one in written["measured"]] == ["Apple M9", result.environment.chip]
    assert read_registry(home / "models.toml", "yours").find("tiny").k == k

    _, out, _ = specdec(home, "run", "-p", "tiny", "--raw", "-n", 8, "--json", "def f(")
    assert json.loads(out.splitlines()[0])["k"] == k

    code, out, _ = specdec(home, "bench", "--compare", "bench.json", "bench.json")
    assert code == 0 and "draft, temperature 0" in out and "differs" not in out


@pytest.mark.slow
def test_ctrl_c_prints_and_saves_what_there_is(home):
    process = start(home, *bench(home, "--time-budget", "5m", "--cooldown", "0.4s", "--export", "bench.json"))
    seen = ""
    while "measuring" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    time.sleep(3)  # an answer, on a busy machine too
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "partial: interrupted" in out
    result = read_result(home / "bench.json")
    assert result.partial and result.samples
    code, out, _ = specdec(home, "bench", "--compare", "bench.json", "bench.json")
    assert code == 0 and "K" in out


@pytest.mark.slow
def test_a_killed_bench_leaves_a_readable_file_too(home):
    process = start(home, *bench(home, "--time-budget", "5m", "--cooldown", "0.4s", "--export", "bench.json"))
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(3)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert read_result(home / "bench.json").partial


@pytest.mark.slow
def test_several_drafts_drafters_and_temperatures_share_one_target(home):
    other = tiny_folder(home / "other", TINY, seed=9, endless=True)
    code, out, err = specdec(
        home, "bench", "--target", home / "target", "--draft", home / "draft", "--draft", other, "--drafter", "model",
        "--drafter", "ngram", "--temp", 0, "--temp", 1, "--raw", "--prompts", "prompts.txt", "-n", 12, "-k", "1-2,auto",
        "--time-budget", "60s", "--json", "-q",
    )  # fmt: skip
    assert (code, err) == (0, "")
    result = from_dict(json.loads(out))
    assert [(c.contender.name, c.temperature) for c in result.conditions] == [
        ("draft", 0.0), ("other", 0.0), ("ngram", 0.0), ("draft", 1.0), ("other", 1.0), ("ngram", 1.0)
    ]  # fmt: skip
    assert {s.arm.condition for s in result.samples if s.arm.k} == set(result.conditions)
    good, bad = (
        sum(s.draft_n_accepted for s in result.samples if s.arm.contender.name == name) for name in ("draft", "other")
    )
    assert good > 2 * bad


@pytest.mark.slow
def test_prompts_that_leave_no_room_are_left_out_and_said(home):
    (home / "prompts.txt").write_text(PROMPTS + "\n" + "x" * 300)
    code, _, err = specdec(home, *bench(home, "--time-budget", "4s"))
    assert code == 0 and "1 of 7 prompts leave no room for 16 tokens: left out" in err
    (home / "prompts.txt").write_text("x" * 300)
    code, _, err = specdec(home, *bench(home, "--time-budget", "4s"))
    assert code == 5 and "the only prompt leaves no room" in err


# Files


def test_a_packaged_pair_is_copied_whole_when_its_k_is_written(tmp_path):
    """An entry of the user's file replaces the packaged one, so that it has to hold all of it."""
    pair = Pair("demo", "specdec:demo/target", "specdec:demo/draft", 4, "a toy", target_bytes=7, source="packaged")
    path = tmp_path / "models.toml"
    for k, chip in ((3, "one"), (5, "two"), (6, "one")):
        models_toml.record_measured(path, pair, k, {"chip": chip, "k": k, "speedup": 1.5, "low": None})
    found = read_registry(path, "yours").find("demo")
    assert (found.target, found.draft, found.k, found.note, found.target_bytes) == (
        pair.target,
        pair.draft,
        6,
        "a toy",
        7,
    )
    measured = tomllib.loads(path.read_text())["pairs"]["demo"]["measured"]
    assert measured == [{"chip": "two", "k": 5, "speedup": 1.5}, {"chip": "one", "k": 6, "speedup": 1.5}]


def test_a_bench_keeps_the_machine_awake_while_it_loads_and_measures(specdec, monkeypatch):
    seen = []

    def load_machine(job, cancelled, tell):
        seen.append("loads")
        raise KeyboardInterrupt

    monkeypatch.setattr("specdec_cli.cli.bench.awake", lambda: nullcontext(seen.append("awake")))
    monkeypatch.setattr("specdec_cli.bench.live.load_machine", load_machine)
    assert specdec("bench", "-q")[0] == 130
    assert seen == ["awake", "loads"]
