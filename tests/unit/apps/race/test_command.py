"""`specdec race`: its files and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from specdec_cli.engine.sampling.acceptance import Greedy, Verdict


@pytest.fixture
def arguments(tiny_pair):
    target, draft = map(str, tiny_pair)
    return ["race", "--target", target, "--draft", draft, "--raw", "-n", "24", "-k", "3", "def f("]


def test_a_picture_is_written_beside_the_events(specdec, arguments, tmp_path):
    picture = tmp_path / "race.svg"
    code, out, err = specdec(*arguments, "--json", "--export", picture)
    assert (code, err) == (0, "") and json.loads(out.splitlines()[-1])["same_text"]
    ElementTree.fromstring(picture.read_text("utf-8"))
    assert f"wrote {picture}" in specdec(*arguments, "--export", picture)[2].replace("\n", "")


def test_texts_that_differ_by_more_than_rounding_exit_1(specdec, arguments, monkeypatch):
    """Only passes of several rows say another token than the target's."""
    judge = Greedy.judge

    def wrong(self, draft, *given):
        verdict = judge(self, draft, *given)
        return Verdict(verdict.accepted, (verdict.next + 1) % 259) if len(draft) else verdict

    monkeypatch.setattr(Greedy, "judge", wrong)
    code, out, err = specdec(*arguments, "-q")
    assert code == 1 and "more than a near-tie: token" in out
    assert "the lanes' texts differ by more than rounding" in err


@pytest.mark.slow
def test_ctrl_c_ends_both_lanes_and_exits_130(endless):
    command = [sys.executable, "-m", "specdec_cli", "race", "--json", "--raw", "--target", endless, "--draft", endless]
    with subprocess.Popen(
        [*command, "-n", "20000", "def f("], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        for line in process.stdout:
            if '"round"' in line and '"index": 5,' in line:
                process.send_signal(signal.SIGINT)
                break
        rest, errors = process.stdout.read(), process.stderr.read()
    values = [json.loads(line) for line in rest.splitlines()]
    assert process.returncode == 130 and errors == ""
    assert [value["reason"] for value in values[-3:]] == ["interrupted"] * 3
