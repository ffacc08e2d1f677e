"""The whole report: its parts and their time, failures in it, processes of its own, and names that are not in it."""

import json
import os
import time

import pytest

from specdec_cli.audit import report
from specdec_cli.audit.prompts import BUNDLED
from specdec_cli.audit.report import (
    LONG_TOKENS,
    UNLIMITED,
    Deadline,
    Impossible,
    Task,
    make_report,
    pair_options,
    run_tasks,
    specdec_lines,
)
from specdec_cli.errors import DoesNotFit, NotAvailable
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.load import load

LOADED = ["rows at 512", "rows at 8192", "memory", "audit", "memory given back"]
CHILDREN = ["in flight", "bench", "self-test"]
SPEEDS = {"speedup": {"mean": 1.5, "low": 1.2, "high": 1.9}, "tokens_per_second": None}
ROW = {"k": 4, "measured": True, "acceptance_rate": 0.5, "mean_acceptance_length": 2.5, "verify_steps": 1.2}


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def spending(clock, seconds, note="", error=None):
    def work(data, deadline):
        data["left"] = deadline.left_seconds
        clock.now += seconds
        if error:
            raise error
        return note

    return work


def test_time_saved_by_a_part_is_there_for_later_ones_and_what_finds_none_is_named():
    clock = Clock()
    tasks = [Task("a", 50, 0, spending(clock, 10, "some")), Task("b", 50, 0, spending(clock, 87))]
    first, second, third = run_tasks([*tasks, Task("c", 0.1, 5, print)], 100.0, clock, lambda *_: None)
    assert (first.data["left"], second.data["left"]) == (pytest.approx(50, abs=0.1), pytest.approx(90, abs=0.2))
    assert (first.status, first.seconds, second.status) == ("partial", 10.0, "done")
    assert (third.status, third.note) == ("left out", "no time: 3 s were left, and it takes 5 s at least")


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (Impossible("the pair has no draft"), "left out", "the pair has no draft"),
        (DoesNotFit("9 GB and 8 GB", "a hint"), "failed", "9 GB and 8 GB"),
        (RuntimeError("Insufficient Memory"), "failed", "RuntimeError: Insufficient Memory"),
    ],
)
def test_a_part_that_fails_keeps_what_it_found_and_the_next_still_runs(error, status, note):
    clock = Clock()
    tasks = [Task("a", 1, 0, spending(clock, 1, error=error)), Task("b", 1, 0, spending(clock, 1))]
    first, second = run_tasks(tasks, 9.0, clock, lambda *_: None)
    assert (first.status, first.note, list(first.data), second.status) == (status, note, ["left"], "done")


# Names


@pytest.fixture
def ada(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "engine.local")


def test_no_name_of_the_person_or_the_machine_is_in_a_report(ada):
    def not_here(reserve_tokens):
        raise NotAvailable("/home/ada/models/big and ~ada, adapter on engine, engine.local: /home/ada/x", "")

    found = make_report(Pair("ada", "/home/ada/models/big", None), not_here, 100.0, lambda *_: None, lines=silent)
    parts = {part.name: (part.status, part.note) for part in found.parts}
    assert list(parts) == ["machine", "load", *LOADED, *CHILDREN, "machine after"]
    assert parts["load"] == ("failed", "…/big and ~(user), adapter on (host), (host): ~/x")
    assert {parts[name] for name in LOADED} == {("left out", "the pair is not loaded")}
    assert found.to_dict()["pair"] == {"name": "(user)", "target": "…/big", "draft": None, "revisions": [None]}
    assert "/home/ada" not in json.dumps(found.to_dict())


def silent(arguments, environment, deadline):
    return iter(())


@pytest.mark.parametrize(
    ("pair", "options"),
    [
        (Pair("demo", "t", "d", source="models.toml"), ["--pair", "demo"]),
        (Pair("t", "x/t", "head:x/o"), ["--target", "x/t", "--head-from", "x/o"]),
        (Pair("t", "t", "d", target_revision="r"), ["--target", "t", "--draft", "d", "--target-revision", "r"]),
    ],
)
def test_other_processes_get_the_very_pair(pair, options):
    assert pair_options(pair) == options


# What is measured


def round_line(draft_seconds, verify_seconds, draft=(1, 2)):
    values = {"event": "round", "draft": draft, "draft_seconds": draft_seconds, "verify_seconds": verify_seconds}
    return json.dumps(values)


class Lines:
    """What other processes of specdec write, and what they were asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, arguments, environment, deadline):
        self.asked.append((list(arguments), dict(environment)))
        if arguments[0] == "run":  # its first two drafted rounds are slow
            rounds = [round_line(9, 9)] * 2 + [round_line(9, 9, ())]
            rounds += [round_line(0.012, 0.02) if environment else round_line(0.025, 0.007)] * 3
            return iter([*rounds, json.dumps({"event": "finish", "stats": {}})])
        if arguments[0] == "bench":
            told = {"verdict": {"told": "K 4"}, "rows": [ROW | SPEEDS], "draft_steps": {}, "verify_steps": {}}
            return iter([json.dumps({"report": [told], "partial": True, "samples": [{"prompt": "a secret"}]})])
        return iter([json.dumps({"name": "qwen3", "status": "pass", "proves": "p", "detail": "d", "more": 3})] * 2)


@pytest.fixture
def quick(monkeypatch):
    for name, value in (("PASSES", 2), ("REPLIES", 2), ("REPLY_TOKENS", 40), ("AUDIT_TOKENS", 8)):
        monkeypatch.setattr(report, name, value)


def measured(pair, opened, lines, seconds=600.0):
    found = make_report(pair, opened, seconds, lambda *_: None, lines=lines)
    return {part.name: part for part in found.parts}, json.dumps(found.to_dict())


@pytest.mark.slow
def test_every_part_of_a_pair_is_measured_and_no_text_of_it_is_kept(tiny_pair, quick):
    pair, lines, asked = Pair("tiny", *map(str, tiny_pair)), Lines(), []

    def opened(reserve_tokens):
        asked.append(reserve_tokens)
        return load(pair).session()

    parts, text = measured(pair, opened, lines)
    assert asked == [LONG_TOKENS] and not any(prompt.text in text for prompt in BUNDLED) and "secret" not in text
    loaded, dropped = parts["load"].data, parts["memory given back"].data
    weights = loaded["target"]["weight_bytes"] + loaded["draft"]["weight_bytes"]
    assert loaded["memory_after"]["active_bytes"] - loaded["memory_before"]["active_bytes"] >= 0.9 * weights
    assert parts["memory"].data["replies"][-1]["active_bytes"] - dropped["active_bytes"] >= 0.9 * weights
    assert [reply["tokens"] for reply in parts["memory"].data["replies"]] == [40, 40]
    holds = "its context holds 256 tokens"
    assert (parts["rows at 512"].status, parts["rows at 512"].note) == ("left out", f"target: {holds}; draft: {holds}")
    assert [one["result"] for one in parts["audit"].data["findings"]] == ["identical"] * 3 * len(BUNDLED)
    flight = parts["in flight"].data
    runs = [[run["draft_ms"] for run in flight[name]] for name in ("limited_runs", "unlimited_runs")]
    assert runs == [pytest.approx([25.0] * 3), pytest.approx([12.0] * 3)]
    assert [environment for _, environment in lines.asked[:6]] == [{}, UNLIMITED, UNLIMITED, {}, {}, UNLIMITED]
    ends = {"speedup": 1.5, "speedup_low": 1.2, "speedup_high": 1.9, "tokens_per_second": None}
    assert (parts["bench"].data["rows"], parts["bench"].status) == ([ROW | ends], "partial")
    assert lines.asked[-1] == (["doctor", "--selftest", "--json"], {"MLX_ENABLE_TF32": "0"})
    assert (
        parts["self-test"].data["outcomes"] == [{"name": "qwen3", "status": "pass", "proves": "p", "detail": "d"}] * 2
    )


@pytest.mark.slow
def test_a_pair_too_large_for_a_long_context_is_loaded_for_a_short_one_and_drafts_from_its_text(tiny_pair, quick):
    def opened(reserve_tokens):
        if reserve_tokens == LONG_TOKENS:
            raise DoesNotFit("9 GB and 8 GB", "close something")
        return load(Pair("tiny", str(tiny_pair[0]), None), drafter="ngram").session()

    parts, _ = measured(Pair("tiny", str(tiny_pair[0]), None), opened, silent, seconds=0.2)
    assert parts["load"].status in ("done", "left out")
    parts, _ = measured(Pair("tiny", str(tiny_pair[0]), None), opened, silent, seconds=12.0)
    assert parts["rows at 8192"].note == "caches of 8192 tokens do not fit this machine's memory"
    assert parts["in flight"].note.startswith(("the pair has no draft", "no time"))
    assert "draft" not in parts["load"].data and parts["audit"].data["findings"]


@pytest.mark.slow
def test_row_costs_of_both_models_are_there_for_a_context_that_they_hold(tiny_pair, quick, monkeypatch):
    monkeypatch.setattr(report, "SHORT_TOKENS", 100)
    pair = Pair("tiny", *map(str, tiny_pair))
    parts, _ = measured(pair, lambda _: load(pair).session(), silent, seconds=60.0)
    data = parts["rows at 100"].data
    assert [[cost["rows"] for cost in data[role]][:3] for role in ("target", "draft")] == [[1, 2, 3]] * 2
    assert all(cost["total_seconds"] >= cost["build_seconds"] + cost["queue_seconds"] for cost in data["target"])


# Processes of its own


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a shell script in the place of Python."""

    def put(script):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(report.sys, "executable", str(path))

    return put


def soon(seconds=30.0):
    return Deadline(time.perf_counter, time.perf_counter() + seconds)


@pytest.mark.slow
def test_a_command_that_fails_says_so_with_its_first_line():
    with pytest.raises(RuntimeError, match=r"specdec run ended with 3: error: no pair named nosuch"):
        list(specdec_lines(["run", "-p", "nosuch", "hello"], {}, soon()))


@pytest.mark.slow
def test_a_process_is_asked_to_end_first_then_ended_and_keeps_what_it_said(program, monkeypatch):
    program("trap 'echo two; exit 130' INT\necho one\nwhile :; do sleep 0.1; done")
    assert list(specdec_lines([], {}, soon(0.5))) == ["one\n", "two\n"]
    monkeypatch.setattr(report, "GRACE_SECONDS", 0.3)
    program("trap '' INT\necho one\nwhile :; do sleep 0.1; done")
    begin = time.perf_counter()
    assert list(specdec_lines([], {}, soon(0.3))) == ["one\n"]
    assert time.perf_counter() - begin < 20


@pytest.mark.slow
def test_a_process_ends_when_its_reader_leaves(program, tmp_path):
    program(f"echo $$ > {tmp_path}/pid\necho one\nexec sleep 60")
    lines = specdec_lines([], {}, soon())
    assert next(lines) == "one\n"
    lines.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.slow
def test_the_users_settings_are_left_out_and_given_ones_are_set(program, monkeypatch):
    program("env")
    monkeypatch.setenv("SPECDEC_K", "7")
    monkeypatch.setenv("SPECDEC_MODELS", "/models.toml")
    monkeypatch.setenv("MLX_MAX_OPS_PER_BUFFER", "3")
    found = set(specdec_lines([], {"MLX_MAX_MB_PER_BUFFER": "9"}, soon()))
    assert {"SPECDEC_MODELS=/models.toml\n", "MLX_MAX_MB_PER_BUFFER=9\n"} <= found
    assert not any(line.startswith(("SPECDEC_K=", "MLX_MAX_OPS")) for line in found)
