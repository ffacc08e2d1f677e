"""What the workflows call, run here: a result where it must pass, two lines where it must fail; the formula."""

import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import specdec_cli

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / ".github/scripts"


@pytest.fixture
def script():
    """A Python script as a module, by its name."""

    def load(name):
        spec = importlib.util.spec_from_file_location(f"scripts_{name}", SCRIPTS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def call(tmp_path):
    """(exit code, stdout, stderr) of a script of bash; artefacts go to tmp_path."""

    def run(name, *arguments, **environment):
        own = {"BIN": Path(sys.executable).parent, "OUT": tmp_path}
        settings = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        done = subprocess.run(
            [SCRIPTS / name, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=settings | {key: str(value) for key, value in (own | environment).items()},
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


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


SHA = {name: hashlib.sha256(name.encode()).hexdigest() for name in "abcdefgh"}
LOCK = f"""
lock-version = "1.0"
[[packages]]
name = "mlx-metal"
version = "0.32.4"
marker = "sys_platform == 'darwin'"
wheels = [
  {{ url = "u/mlx_metal-0.32.4-py3-none-macosx_14_0_arm64.whl", hashes = {{ sha256 = "{SHA["a"]}" }} }},
  {{ url = "u/mlx_metal-0.32.4-py3-none-macosx_15_0_arm64.whl", hashes = {{ sha256 = "{SHA["b"]}" }} }},
  {{ url = "u/mlx_metal-0.32.4-py3-none-macosx_26_0_arm64.whl", hashes = {{ sha256 = "{SHA["c"]}" }} }},
]
[[packages]]
name = "mlx-cpu"
version = "0.32.4"
marker = "sys_platform == 'linux'"
wheels = [{{ url = "u/mlx_cpu-0.32.4-py3-none-manylinux_2_35_x86_64.whl", hashes = {{ sha256 = "{SHA["d"]}" }} }}]
[[packages]]
name = "numpy"
version = "2.4.0"
wheels = [
  {{ url = "u/numpy-2.4.0-cp312-cp312-macosx_14_0_arm64.whl", hashes = {{ sha256 = "{SHA["e"]}" }} }},
  {{ url = "u/numpy-2.4.0-cp313-cp313-macosx_14_0_arm64.whl", hashes = {{ sha256 = "{SHA["f"]}" }} }},
  {{ url = "u/numpy-2.4.0-cp313-cp313-macosx_10_13_x86_64.whl", hashes = {{ sha256 = "{SHA["g"]}" }} }},
]
"""
# As much of Homebrew as the formula speaks to: it records resources and commands.
BREW = """
module Language; module Python; module Virtualenv; end; end; end
require "pathname"
class Resource < Struct.new(:name, :url, :sha256)
  def url(x = nil) x ? self[:url] = x : self[:url] end
  def sha256(x = nil) x ? self[:sha256] = x : self[:sha256] end
  %i[on_sonoma on_sequoia on_tahoe].each { |s| define_method(s) { |*a, &b| instance_eval(&b) if s == :on_tahoe } }
  def cached_download = "/cache/#{name}"
end
class Formula
  %i[desc homepage url sha256 license depends_on test].each { |n| define_singleton_method(n) { |*a| } }
  def self.found = @found ||= []
  def self.resource(name, &block) = found << Resource.new(name).tap { |r| r.instance_eval(&block) }
  def resources = self.class.found
  def libexec = Pathname("/libexec")
  def buildpath = Pathname(Dir.pwd)
  def bin = Class.new { def install_symlink(x) = puts("link #{x}"); def /(x) = "/bin/#{x}" }.new
  def virtualenv_create(*a) = puts("venv #{a.join(" ")}")
  def cp(a, b) = (puts("cp #{a} #{b.basename}"); b.write(""))
  def system(*a) = puts("run #{a.join(" ")}")
  def generate_completions_from_executable(*a, **b) = puts("completions #{a.join(" ")} #{b[:shell_parameter_format]}")
end
load ARGV[0]
Specdec.new.install
"""


@pytest.fixture
def sdist(tmp_path):
    path = tmp_path / "specdec_cli-0.2.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("x"), io.BytesIO())
    return path


@pytest.fixture
def text(script, sdist):
    return script("formula").formula(
        sdist, tomllib.loads(LOCK), "https://example.org/home", "https://example.org/v0.2.0"
    )


def test_each_mac_takes_its_own_wheel_and_nothing_of_other_systems(text, sdist):
    assert '  url "https://example.org/v0.2.0/specdec_cli-0.2.0.tar.gz"\n' in text
    assert hashlib.sha256(sdist.read_bytes()).hexdigest() in text
    assert [text.count(SHA[name]) for name in "abcdefg"] == [1, 1, 1, 0, 0, 1, 0]
    wanted = ["on_tahoe :or_newer do", SHA["c"], "on_sequoia do", SHA["b"], "on_sonoma do", SHA["a"]]
    assert sorted(wanted, key=text.index) == wanted
    assert text.count("resource ") == 2 and 'resource "numpy" do\n    url ' in text


def test_a_package_without_a_wheel_for_a_mac_is_named(script):
    wheel = {"url": "x-1-cp313-cp313-win_amd64.whl", "hashes": {"sha256": "0"}}
    only = {"name": "x", "version": "1", "wheels": [wheel]}
    with pytest.raises(SystemExit, match="error: x 1 has no wheel for macOS 14\nhint: "):
        script("formula").wheel_for(only, (14, 0))


@pytest.mark.slow
def test_ruby_reads_and_follows_it(text, tmp_path):
    ruby = shutil.which("ruby")
    if ruby is None:
        pytest.skip("no ruby here to read the formula: apt install ruby")
    (tmp_path / "specdec.rb").write_text(text)
    (tmp_path / "brew.rb").write_text(BREW)
    done = subprocess.run(
        [ruby, "-w", "brew.rb", "specdec.rb"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "venv /libexec python3.13",
        "cp /cache/mlx-metal mlx_metal-0.32.4-py3-none-macosx_26_0_arm64.whl",
        "cp /cache/numpy numpy-2.4.0-cp313-cp313-macosx_14_0_arm64.whl",
    ]
    assert "--no-index" in lines[3] and lines[3].endswith(".whl") and "--no-build-isolation" in lines[4]
    assert lines[5:] == ["link /libexec/bin/specdec", "completions /bin/specdec typer"]
