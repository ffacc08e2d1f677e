"""`specdec doctor --report` as a person uses it: asked first, private, and whole or not there."""

import json
import os
import sys
from pathlib import Path

import pexpect
import pytest

from specdec_cli.audit import report as reports


@pytest.fixture
def quick(monkeypatch):
    """Short replies and few passes; no time for parts that run specdec again."""
    monkeypatch.setattr(reports, "REPLIES", 1)
    monkeypatch.setattr(reports, "REPLY_TOKENS", 16)
    monkeypatch.setattr(reports, "AUDIT_TOKENS", 8)
    monkeypatch.setattr(reports, "PASSES", 1)


def report(specdec, folder, target, draft, *more):
    options = ["--target", target, "--draft", draft, "--time-budget", "9s"]
    return specdec("doctor", "--report", folder / "mac.json", *options, *more)


@pytest.mark.slow
def test_a_report_is_shown_and_written_as_one_file(specdec, quick, tiny_pair, tmp_path):
    code, out, err = report(specdec, tmp_path, *tiny_pair, "--yes")
    assert code == 0 and "wrote " in err and "It holds no prompt" in out
    parts = {part["name"]: part for part in json.loads((tmp_path / "mac.json").read_text())["parts"]}
    assert parts["load"]["status"] == "done" and parts["memory"]["data"]["replies"][0]["tokens"] == 16
    assert parts["self-test"]["note"].startswith("no time: ")
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("mac")] == ["mac.json"]


@pytest.mark.slow
def test_the_file_does_not_hold_the_user_the_host_or_the_home(specdec, quick, tiny_pair, tmp_path, monkeypatch):
    """The models lie in the home, under the user's name."""
    home = tmp_path / "ada-lovelace"
    home.mkdir()
    for name, folder in zip(("target", "draft"), tiny_pair, strict=True):
        (home / name).symlink_to(folder)
    monkeypatch.setattr("getpass.getuser", lambda: "ada-lovelace")
    monkeypatch.setattr("socket.gethostname", lambda: "analytical-engine.local")
    monkeypatch.setenv("HOME", str(home))
    code, _, err = report(specdec, tmp_path, home / "target", home / "draft", "--yes")
    assert code == 0, err
    text = (tmp_path / "mac.json").read_text()
    assert json.loads(text)["pair"]["target"] == "…/target"
    assert not any(name in text for name in ("ada-lovelace", "analytical-engine", str(home), str(Path.home())))


def test_where_nobody_can_answer_nothing_is_measured(specdec, tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "make_report", lambda *_: pytest.fail("measured"))
    code, message, hint = specdec.refused("doctor", "--report", tmp_path / "mac.json")
    assert (code, hint) == (2, "add --yes to write it without asking")
    assert message.endswith("is written only if you agree, and there is no terminal to ask on")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--report", "/nowhere/mac.json", "--yes"], "there is no such folder"),
        (["--report", "mac.txt", "--yes"], "ends in .txt"),
        (["--report", "mac.json", "--yes", "--time-budget", "soon"], "is not a time"),
        (["--report", "mac.json", "--selftest"], "--selftest and --report mac.json were given"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_measured(specdec, options, message):
    code, said, _ = specdec.refused("doctor", *options)
    assert code == 2 and message in said


def test_ctrl_c_in_the_middle_leaves_no_file(specdec, quick, tiny_pair, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("specdec_cli.audit.audit.run_audit", interrupted)
    folder = tmp_path / "reports"
    folder.mkdir()
    assert report(specdec, folder, *tiny_pair, "--yes")[0] == 130
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code", "names"), [("n", 1, []), ("y", 0, ["mac.json"])])
def test_a_person_sees_the_report_and_decides(tiny_pair, tmp_path, answer, code, names):
    folder, home = tmp_path / "reports", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    target, draft = map(str, tiny_pair)
    options = ["--report", str(folder / "mac.json"), "--target", target, "--draft", draft, "--time-budget", "4s"]
    own = {"HOME": str(home), "XDG_STATE_HOME": str(home), "TERM": "xterm-256color"}
    process = pexpect.spawn(
        sys.executable,
        ["-m", "specdec_cli", "doctor", *options],
        env=os.environ | own,
        encoding="utf-8",
        dimensions=(50, 100),
        timeout=120,
    )
    process.expect("It holds no prompt")
    process.expect(r"Write\s[^?]*\?")
    assert list(folder.iterdir()) == []
    process.sendline(answer)
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == code and sorted(path.name for path in folder.iterdir()) == names
