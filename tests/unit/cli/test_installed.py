"""Two specdecs side by side: which is which is said in two lines, and nothing is run to find out."""

import os
import sys
from importlib.metadata import version

import pytest

from specdec_cli import __version__
from specdec_cli.cli import installed


def install(root, name, release, first="#!{}/bin/python\n"):
    """A command as uv, pipx and pip leave it: an environment, and a link to its command in a folder of commands."""
    environment, commands = root / name, root / f"{name}-bin"
    for folder in (environment / "bin", commands):
        folder.mkdir(parents=True)
    if release:
        (environment / f"lib/python3.13/site-packages/specdec_cli-{release}.dist-info").mkdir(parents=True)
    command = environment / "bin/specdec"
    command.write_text(first.format(environment) + "raise SystemExit('it was run')\n")
    command.chmod(0o755)
    (commands / "specdec").symlink_to(command)
    return commands / "specdec"


@pytest.fixture
def stated(monkeypatch):
    """The version that is installed here; a checkout may be older than its code."""
    monkeypatch.setattr(installed, "version", lambda _: "0.2.0")


def path_of(*commands):
    return os.pathsep.join(str(command.parent) for command in commands)


def test_one_specdec_is_no_problem_under_whatever_names_it_is_reached(tmp_path, stated):
    own = install(tmp_path, "uv", "0.2.0")
    real = tmp_path / "uv/bin/specdec"
    path = path_of(own, real) + os.pathsep + str(tmp_path / "nowhere")
    assert installed.problem(own, path, "0.2.0") is installed.problem(real, path, "0.2.0") is None


@pytest.mark.parametrize(
    ("release", "first", "what"),
    [
        ("0.1.0", "#!{}/bin/python3.13\n", "specdec 0.1.0"),
        ("0.2.0", "#!/bin/sh\n'''exec' '{}/bin/python' \"$0\" \"$@\"\n' '''\n", "specdec 0.2.0"),
        (None, "#!{}/bin/python\n", "another program"),
    ],
)
def test_a_second_one_is_named_with_both_versions(tmp_path, stated, release, first, what):
    own, other = install(tmp_path, "uv", "0.2.0"), install(tmp_path, "brew", release, first)
    message, hint = installed.problem(own, path_of(other, own), "0.2.0")
    assert message == f"{other} is {what}, and {own} is specdec 0.2.0: the PATH decides which one runs"
    assert "brew uninstall specdec" in hint


def test_code_that_is_not_what_was_installed_is_named(tmp_path, stated):
    own = install(tmp_path, "uv", "0.3.0")
    message, hint = installed.problem(own, path_of(own), "0.3.0")
    assert message == f"{own} runs the code of 0.3.0, and 0.2.0 is installed in {sys.prefix}"
    assert hint.endswith("-m pip install --force-reinstall --no-deps specdec-cli")


def test_the_version_says_so_in_two_lines_on_stderr(specdec, tmp_path, monkeypatch, capsys):
    own, other = install(tmp_path, "uv", "0.2.0"), install(tmp_path, "pipx", "0.1.0")
    monkeypatch.setenv("PATH", path_of(own, other))
    assert specdec("--version") == (0, f"specdec {__version__}\n", "")  # without its path it is a test, or an import
    monkeypatch.setattr(sys, "argv", [str(own), "--version"])
    from specdec_cli.cli.main import exit_code

    assert exit_code(["--version"]) == 0
    out, err = capsys.readouterr()
    assert out == f"specdec {__version__}\n"
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["warning", "hint"]
    assert f"{other} is specdec 0.1.0" in err


def test_the_distributions_name_is_the_one_that_is_installed():
    assert version(installed.DISTRIBUTION)
