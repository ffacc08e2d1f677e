"""Workflows hold no logic, their scripts run on a Mac's bash and tools, and their actions are pinned."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCRIPTS = [*sorted((ROOT / ".github/scripts").glob("*.sh")), ROOT / ".ci/run"]
TOOLS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
# One command: a script, and words that hold no other command; or tests.
CALL = re.compile(r"(\.github/scripts/\w+\.sh|\.ci/run)((?: (?:[\w.-]+|\"[\w$/]+\"))*)")
TESTS = re.compile(r"\.venv-ci/bin/python -m pytest -n \d(?: --basetemp artifacts -m (?:metal|'metal[\w ()]+'))?")
# What bash 3.2 or BSD's tools do not know.
FOREIGN = re.compile(
    r"\b(?:mapfile|readarray|declare -[An]|local -n|coproc)\b|\$\{\w+(?:,|\^|@)|&>>|\|&|\bwait -n\b|"
    r"\b(?:readlink -f|sed -i|cp -\S*[-t]|grep -\S*P|date -d|stat -c|mktemp --|sort -V|xargs -r|base64 -w|sha256sum)\b|"
    r"\b(?:cp|mv|ln|head|tail|sed|sort|touch|mktemp) --\w|\b(?:timeout|tac|shuf|nproc|numfmt) "
)


def steps(path):
    workflow = yaml.safe_load(path.read_text("utf-8"))
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_are_the_three_workflows_and_nobody_has_rights_by_default():
    assert [path.stem for path in WORKFLOWS] == ["checks", "metal", "release"]
    assert all(yaml.safe_load(path.read_text("utf-8"))["permissions"] == {} for path in WORKFLOWS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_calls_one_script_that_is_there_or_one_pinned_action(path):
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step
        else:
            call = CALL.fullmatch(step["run"])
            assert call or TESTS.fullmatch(step["run"]), step
            assert call is None or os.access(ROOT / call[1], os.X_OK), call[1]
    pins = re.findall(r"uses: .*", path.read_text("utf-8"))
    assert all(re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", pin) for pin in pins)


def test_whatever_tests_metal_names_the_device():
    """Without its name these tests would compute on the CPU and be skipped."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/metal.yml").read_text("utf-8"))["jobs"].values()
    testing = [job for job in jobs if any(re.search("-m '?metal", step.get("run", "")) for step in job["steps"])]
    assert testing and all("TEST_DEVICE" in job["env"] for job in testing)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_can_fail_and_runs_on_an_image_that_is_there(path):
    """The bug: the only real pair ran with continue-on-error, two jobs on an image that was withdrawn."""
    text = path.read_text("utf-8")
    assert "continue-on-error" not in text
    assert set(re.findall(r"\b(?:macos|ubuntu)-[\w.]+", text)) <= {"macos-15", "macos-26", "ubuntu-24.04"}


def test_every_script_is_called_by_a_workflow_or_another_script():
    text = "".join(path.read_text("utf-8") for path in [*WORKFLOWS, *SCRIPTS])
    for path in (ROOT / ".github/scripts").iterdir():
        if path.is_file():
            assert re.search(rf"(?:scripts|dirname \"\$0\"\))/{re.escape(path.name)}", text), path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_uses_nothing_that_a_mac_lacks(path):
    lines = path.read_text("utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash" and "set -euo pipefail" in lines
    assert not [line for line in lines if FOREIGN.search(line) and "apt-get" not in line]


@pytest.mark.parametrize(
    "line",
    ["cp --parents -t x", "mapfile -t a", "echo ${a,,}", "sed -i s/a/b/ f", "cp -t x y", "head --lines 1", "ls |& cat"],
)
def test_what_a_mac_lacks_is_found(line):
    """Negative control; the first is a line that `.ci/run` had."""
    assert FOREIGN.search(line)


def tool(name, why):
    """The command's path; skips with the reason where it is absent."""
    found = shutil.which(name, path=TOOLS)
    if found is None:
        pytest.skip(f"no {name} here: {why}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "paths", "why"),
    [
        (["shellcheck"], SCRIPTS, "it comes with .[test]"),
        (["check-jsonschema", "--builtin-schema", "vendor.github-workflows"], WORKFLOWS, "it comes with .[test]"),
        (["zizmor", "--offline", "--quiet"], WORKFLOWS, "it comes with .[test]"),
        (["actionlint"], WORKFLOWS, "its package on the index downloads it, so it is used where it is installed"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_scripts_and_workflows_are_clean(words, paths, why):
    done = subprocess.run(
        [tool(words[0], why), *words[1:], *map(str, paths)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
