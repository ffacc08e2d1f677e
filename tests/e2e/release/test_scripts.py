"""What the workflows call, run here: a result where it must pass, two lines where it must fail."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

import specdec_cli

ROOT = Path(__file__).parents[3]
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_good"/>
<testcase classname="tests.test_a" name="test_bad"><failure message="no"/></testcase>
<testcase classname="tests.test_b" name="test_worse"><error message="no"/></testcase>
</testsuite></testsuites>"""
BAD, WORSE = "tests.test_a::test_bad", "tests.test_b::test_worse"
INIT, PROJECT = '__version__ = "{}"\n', '[project]\nversion = "{}"\n'
CHANGES = "# Changes\n\n## 0.3.0, unreleased\n\nlater\n\n## 0.2.0, 2026-11-25\n\nWhat is new.\n\n## 0.1.0, 2026-11-01\n"


@pytest.mark.parametrize(
    ("known", "said", "result"),
    [
        (f"# a comment\n{BAD} # mlx#1: rounds\n {WORSE}  #two # words\n", "", None),
        (
            f"{BAD} # mlx#1\n",
            f"failed, and is not in LIST: {WORSE}",
            "error: 1 new failures, 0 to take out\nhint: see above",
        ),
        (
            f"{BAD} # a\n{WORSE} # b\ntests.test_a::test_good # c\n",
            "no longer fails; take it out of LIST: tests.test_a::test_good",
            "error: 0 new failures, 1 to take out\nhint: see above",
        ),
        *(
            (f"{BAD} # a\n{bare}\n", "", f"error: LIST gives no reason for {WORSE}\nhint: write {WORSE} # why it fails")
            for bare in (WORSE, f"{WORSE} #", f"{WORSE} # ")
        ),
        ("unknown\n", "", "error: LIST gives no reason for unknown\nhint: write unknown # why it fails"),
        (
            "unknown # yet\n",
            f"failed, and is not in LIST: {BAD}",
            "error: 2 new failures, 1 to take out\nhint: see above",
        ),
    ],
)
def test_the_list_of_known_failures_can_only_shrink(script, tmp_path, capsys, known, said, result):
    results, listed = tmp_path / "results.xml", tmp_path / "list.txt"
    results.write_text(JUNIT)
    listed.write_text(known)
    assert script("known_failures").main(str(results), str(listed)) == (result and result.replace("LIST", str(listed)))
    assert (capsys.readouterr().out.splitlines() or [""])[0] == said.replace("LIST", str(listed))


@pytest.mark.parametrize("listed", ["none.txt", ROOT / ".github/known-failures-gpu.txt"])
def test_without_a_listed_test_every_failure_is_new(script, tmp_path, listed):
    """The bug: the list of the GPU held a word with which any failure passed."""
    results = tmp_path / "results.xml"
    results.write_text(JUNIT)
    assert script("known_failures").main(str(results), str(tmp_path / listed)).startswith("error: 2 new failures")


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "specdec_cli").mkdir()
    (tmp_path / ".github").mkdir()
    (tmp_path / "specdec_cli/version.py").write_text(INIT.format("0.2.0"))
    (tmp_path / "pyproject.toml").write_text(PROJECT.format("0.2.0"))
    (tmp_path / ".github/CHANGELOG.md").write_text(CHANGES)
    return tmp_path


def test_a_release_is_announced_with_the_changelogs_own_words(script, tree, capsys):
    assert script("release").main("v0.2.0", tree) is None
    assert capsys.readouterr().out == "What is new.\n"


@pytest.mark.parametrize(
    ("tag", "code", "declared", "message", "hint"),
    [
        ("v0.2.1", "0.2.0", "0.2.0", "the tag is v0.2.1, the version 0.2.0", "git tag v0.2.0"),
        ("v0.2.0", "0.1.0", "0.2.0", "pyproject.toml says 0.2.0, specdec_cli 0.1.0", "make them one version"),
        (
            "v0.3.0",
            "0.3.0",
            "0.3.0",
            ".github/CHANGELOG.md has no section '## 0.3.0, YYYY-MM-DD'",
            "write what users gain and lose",
        ),
    ],
)
def test_a_release_that_contradicts_itself_is_refused(script, tree, tag, code, declared, message, hint):
    (tree / "specdec_cli/version.py").write_text(INIT.format(code))
    (tree / "pyproject.toml").write_text(PROJECT.format(declared))
    assert script("release").main(tag, tree) == f"error: {message}\nhint: {hint}"


@pytest.fixture
def dated(tmp_path):
    """The files of this checkout that a release reads, its unreleased changes dated."""
    for name in ("pyproject.toml", "specdec_cli/version.py", ".github/CHANGELOG.md", ".github/scripts"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    changes = tmp_path / ".github/CHANGELOG.md"
    changes.write_text(changes.read_text().replace("## Unreleased\n", f"## {specdec_cli.__version__}, 2026-12-01\n"))
    return tmp_path


def test_the_checkout_itself_can_be_released_once_its_changes_are_dated(script, dated):
    tag = f"v{specdec_cli.__version__}"
    assert script("release").main(tag).startswith("error: .github/CHANGELOG.md has no section '## 0")
    assert script("release").main(tag, dated) is None


@pytest.mark.slow
def test_a_release_on_github_has_all_files_and_the_notes(call, dated, tmp_path):
    dist, commands = tmp_path / "dist", tmp_path / "bin"
    for folder in (dist, commands):
        folder.mkdir()
    for name in ("a.whl", "a.tar.gz"):
        (dist / name).touch()
    (commands / "gh").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (commands / "gh").chmod(0o755)
    notes = dated / ".github/scripts/notes.sh"
    assert call(notes, f"v{specdec_cli.__version__}")[0] == 0 and (tmp_path / "notes.md").read_text().startswith(
        "The first release"
    )
    code, out, _ = call("publish.sh", "v0.2.0", dist, PATH=f"{commands}:/usr/bin:/bin")
    words = out.splitlines()
    assert (code, words[:3]) == (0, ["release", "create", "v0.2.0"])
    assert {str(dist / "a.whl"), str(dist / "a.tar.gz"), str(tmp_path / "specdec.rb"), "--verify-tag"} <= set(words)
    assert words[words.index("--title") + 1] == "specdec 0.2.0"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_probe_tells_what_computes_here(call, tmp_path):
    assert call("probe.sh")[0] == 0
    found = json.loads((tmp_path / "probe.json").read_text())
    assert {"device", "versions", "deterministic", "forced_architecture"} <= found.keys()
    assert (tmp_path / "outputs").read_text() in ("deterministic=true\n", "deterministic=false\n")


@pytest.mark.slow
@pytest.mark.skipif(mx.is_available(mx.gpu), reason="there is a GPU here")
@pytest.mark.parametrize(("name", "arguments"), [("probe.sh", ["--gpu"]), ("selftest.sh", ["applegpu_g15s"])])
def test_a_runner_without_a_gpu_is_told_so_in_two_lines(call, name, arguments):
    code, _, err = call(name, *arguments, DEVICE="gpu")
    assert (code, err) == (
        1,
        "error: this machine has no GPU that mlx can use: Device(cpu, 0)\nhint: run this job on a Mac with Metal\n",
    )


@pytest.mark.slow
def test_the_quick_tests_run_on_the_device_that_is_named(call, tmp_path):
    code, out, err = call("tests.sh", "cpu", "tests/unit/core/test_format.py", WORKERS="0")
    assert code == 0, out + err
    assert "test_format" in (tmp_path / "tests-cpu.xml").read_text()


@pytest.mark.full
def test_the_packed_demo_pair_is_audited(call, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("def f(x):\n")
    code, out, err = call("audit.sh", PROMPTS=prompts, TOKENS="8", DTYPE="float32")
    assert code == 0, out + err
    assert json.loads((tmp_path / "audit-unset.json").read_text())["lossless"]


@pytest.mark.full
def test_a_persons_journeys_end_well(call):
    code, out, err = call("journeys.sh", BUDGET="20s")
    assert code == 0, out + err
    assert "tokens were kept" in out


@pytest.mark.full
def test_the_nightly_pair_is_run_and_audited(call, tmp_path):
    prompts, demo = tmp_path / "prompts.txt", ROOT / "specdec_cli/demo"
    prompts.write_text("def f(x):\n")
    code, out, err = call("nightly.sh", demo / "target", demo / "draft", TOKENS="24", PROMPTS=prompts)
    assert code == 0, out + err
    assert "another text" not in out and json.loads((tmp_path / "audit-nightly.json").read_text())["lossless"]


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["selftest.sh", "validated.sh"])
def test_the_selftest_and_every_architecture_pass(call, tmp_path, name):
    code, out, err = call(name)
    assert code == 0, out + err
    assert "\nself-test\t" in (tmp_path / "selftest-unset.txt").read_text()
    assert "test_tokens_equal_plain_decoding" in (tmp_path / "conformance-unset.xml").read_text()


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_wheel_works_alone_in_every_python(call, tmp_path):
    """Installs everything from the index, for each interpreter that `uv` finds here."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:/usr/bin:/usr/local/bin") or shutil.which("uv")
    found = []
    for version in ("3.11", "3.12", "3.13"):
        words = [uv or "uv", "python", "find", "--no-project", "--system", version]
        asked = subprocess.run(words, capture_output=True, text=True, check=False)
        found += [asked.stdout.strip()] if asked.returncode == 0 else []
    if len(found) < 2:
        pytest.skip(f"of Python 3.11, 3.12 and 3.13 only {found} is here")
    assert call("build.sh", tmp_path / "dist")[0] == 0
    code, out, err = call("wheel.sh", tmp_path / "dist", *found)
    assert code == 0, out + err
    assert out.count("No broken requirements found.") == len(found)
