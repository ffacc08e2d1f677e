"""The Homebrew formula: the wheel that each Mac takes, by address and checksum; Ruby can read and follow it."""

import hashlib
import io
import shutil
import subprocess
import tarfile
import tomllib

import pytest

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
