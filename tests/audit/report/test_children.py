"""Parts that run specdec itself: their command lines, what is kept of their output, and how they end."""

import json
import os
import time
from itertools import count

import pytest

from specdec_cli.audit.prompts import BUNDLED
from specdec_cli.audit.report import children
from specdec_cli.audit.report.budget import Deadline, Impossible
from specdec_cli.audit.report.children import UNLIMITED, ChildParts, specdec_lines


def soon(seconds=30.0):
    return Deadline(time.perf_counter, time.perf_counter() + seconds)


def round_line(draft_seconds, verify_seconds, draft=(1, 2)):
    values = {"event": "round", "draft": draft, "draft_seconds": draft_seconds, "verify_seconds": verify_seconds}
    return json.dumps(values)


def run_lines(draft_seconds, verify_seconds):
    """A run whose first two drafted rounds are slow."""
    rounds = [round_line(9, 9)] * 2 + [round_line(9, 9, ())] + [round_line(draft_seconds, verify_seconds)] * 3
    return [*rounds, json.dumps({"event": "finish", "stats": {}})]


class Lines:
    """Answers command lines from a script, and remembers them."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def __call__(self, arguments, environment, deadline):
        self.asked.append((list(arguments), dict(environment)))
        return iter(self.answer(arguments, environment))


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a shell script in the place of Python."""

    def put(script):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(children.sys, "executable", str(path))

    return put


def test_runs_with_and_without_the_limit_take_turns_and_their_warm_rounds_count():
    lines = Lines(lambda _, environment: run_lines(0.012, 0.02) if environment else run_lines(0.025, 0.007))
    data = {}
    assert ChildParts(["--pair", "demo"], True, lines).in_flight(data, soon()) == ""
    assert [environment for _, environment in lines.asked] == [{}, UNLIMITED, UNLIMITED, {}, {}, UNLIMITED]
    assert [[run["draft_ms"] for run in data[name]] for name in ("limited_runs", "unlimited_runs")] == [
        pytest.approx([25.0] * 3),
        pytest.approx([12.0] * 3),
    ]
    assert data["limited_runs"][0]["rounds"] == 3 and data["limited_runs"][0]["round_ms"] == pytest.approx(32.0)
    arguments = lines.asked[0][0]
    assert arguments[:3] == ["run", "--pair", "demo"] and "--offline" in arguments and arguments[-1] == BUNDLED[0].text


def test_no_text_of_a_run_is_kept():
    data = {}
    ChildParts([], True, Lines(lambda *_: run_lines(1, 1))).in_flight(data, soon())
    assert BUNDLED[0].text not in json.dumps(data)


def test_an_unfinished_run_is_not_counted():
    data = {}
    finished = count()
    lines = Lines(lambda *_: run_lines(1, 1)[: -1 if next(finished) == 1 else None])
    assert ChildParts([], True, lines).in_flight(data, soon()) == "time for 0 of 3 turns"


def test_without_a_draft_nothing_is_in_flight():
    with pytest.raises(Impossible, match="no draft"):
        ChildParts([], False, Lines(lambda *_: [])).in_flight({}, soon())


def test_a_bench_keeps_its_rows_and_sentence_and_nothing_of_its_prompts():
    row = {"k": 4, "measured": True, "acceptance_rate": 0.5, "mean_acceptance_length": 2.5, "verify_steps": 1.2}
    speed = {"speedup": {"mean": 1.5, "low": 1.2, "high": 1.9}, "tokens_per_second": None}
    report = {"verdict": {"told": "K 4"}, "rows": [row | speed], "draft_steps": {}, "verify_steps": {}}
    bench = {"report": [report], "partial": False, "samples": [{"prompt": {"name": "a secret"}}]}
    data, lines = {}, Lines(lambda *_: [json.dumps(bench)])
    assert ChildParts(["--pair", "x"], True, lines).bench(data, soon(40)) == ""
    assert (
        data["rows"] == [row | {"speedup": 1.5, "speedup_low": 1.2, "speedup_high": 1.9, "tokens_per_second": None}]
        and data["conclusion"] == "K 4"
    )
    assert "secret" not in json.dumps(data)
    interrupted = Lines(lambda *_: [json.dumps(bench | {"partial": True})])
    assert ChildParts([], True, interrupted).bench({}, soon(40)) == "stopped by the time budget"
    arguments = lines.asked[0][0]
    assert 10 <= int(arguments[arguments.index("--time-budget") + 1].removesuffix("s")) <= 28


def test_a_selftest_is_read_line_by_line_with_float32_products_whole():
    line = json.dumps({"name": "qwen3", "status": "pass", "proves": "p", "detail": "d", "accepted": 3})
    data, lines = {}, Lines(lambda *_: [line, line])
    assert ChildParts([], True, lines).selftest(data, soon()) == ""
    assert data["outcomes"] == [{"name": "qwen3", "status": "pass", "proves": "p", "detail": "d"}] * 2
    assert lines.asked == [(["doctor", "--selftest", "--json"], {"MLX_ENABLE_TF32": "0"})]
    assert ChildParts([], True, lines).selftest({}, soon(0)) == "stopped by the time budget after 2 results"


def test_lines_come_from_specdec_in_a_process_of_its_own():
    [line] = specdec_lines(["--version"], {}, soon())
    assert line.startswith("specdec ")


def test_a_command_that_fails_says_so_with_its_first_line():
    with pytest.raises(RuntimeError, match=r"specdec run ended with 3: error: no pair named nosuch"):
        list(specdec_lines(["run", "-p", "nosuch", "hello"], {}, soon()))


def test_a_process_ends_with_its_time_and_keeps_what_it_said(program):
    program("echo one\nexec sleep 60")
    begin = time.perf_counter()
    assert list(specdec_lines([], {}, soon(0.5))) == ["one\n"]
    assert time.perf_counter() - begin < 20


def test_a_process_is_asked_first_and_may_still_say_what_it_has(program):
    program("trap 'echo two; exit 130' INT\necho one\nwhile :; do sleep 0.1; done")
    assert list(specdec_lines([], {}, soon(0.5))) == ["one\n", "two\n"]


def test_a_process_that_does_not_listen_is_ended(program, monkeypatch):
    monkeypatch.setattr(children, "GRACE_SECONDS", 0.3)
    program("trap '' INT\necho one\nwhile :; do sleep 0.1; done")
    begin = time.perf_counter()
    assert list(specdec_lines([], {}, soon(0.3))) == ["one\n"]
    assert time.perf_counter() - begin < 20


def test_a_process_ends_when_its_reader_leaves(program, tmp_path):
    program(f"echo $$ > {tmp_path}/pid\necho one\nexec sleep 60")
    lines = specdec_lines([], {}, soon())
    assert next(lines) == "one\n"
    lines.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_users_settings_are_left_out_and_given_ones_are_set(program, monkeypatch):
    program("env")
    monkeypatch.setenv("SPECDEC_K", "7")
    monkeypatch.setenv("SPECDEC_MODELS", "/models.toml")
    monkeypatch.setenv("MLX_MAX_OPS_PER_BUFFER", "3")
    found = set(specdec_lines([], {"MLX_MAX_MB_PER_BUFFER": "9"}, soon()))
    assert {"SPECDEC_MODELS=/models.toml\n", "MLX_MAX_MB_PER_BUFFER=9\n"} <= found
    assert not any(line.startswith(("SPECDEC_K=", "MLX_MAX_OPS")) for line in found)
