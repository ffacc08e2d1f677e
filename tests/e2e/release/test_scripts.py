"""What the workflows call, run here: a result where it must pass, two lines where it must fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import specdec_cli

ROOT = Path(__file__).parents[3]
INIT, PROJECT = '__version__ = "{}"\n', '[project]\nversion = "{}"\n'
CHANGES = "# Changes\n\n## 0.3.0, unreleased\n\nlater\n\n## 0.2.0, 2026-11-25\n\nWhat is new.\n\n## 0.1.0, 2026-11-01\n"


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
