"""The program's first moments: Ctrl-C ends it at once, whatever is being imported."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}

# Ctrl-C at the moment a module is looked for, and once more while the first is being dealt with.
PRESSED = """
import importlib.abc, os, signal, sys
module = sys.argv[1]
class Press(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Press())
from specdec_cli.__main__ import main
sys.argv = ["specdec", "run", "-p", "demo", "-q", "-n", "4", "def f"]
main()
"""


def ended(code: str, *arguments: str, **options) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, env=ENVIRONMENT, timeout=120, **options
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["specdec_cli.command", "typer", "specdec_cli.apps.bench.command", "specdec_cli.session.load"]
)
def test_ctrl_c_while_modules_are_imported_is_no_traceback(module):
    """The bug: the command line's own imports were outside every guard."""
    assert ended(PRESSED, module) == (130, "")


@pytest.mark.slow
def test_a_program_that_was_told_to_ignore_ctrl_c_goes_on_ignoring_it():
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    assert ended(PRESSED, "specdec_cli.command", preexec_fn=ignore) == (0, "")


@pytest.mark.slow
def test_ctrl_c_amid_an_exec_of_text_exits_130_too(tmp_path):
    """As in the making of a dataclass. The bug: `python -m` ended by the signal itself, a CPython rule."""
    press = "import signal; signal.raise_signal(signal.SIGINT)"
    (tmp_path / "typer.py").write_text(f"exec({press!r})\n")
    environment = ENVIRONMENT | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-m", "specdec_cli", "-h"], capture_output=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (130, b"")


def test_the_installed_command_is_guarded_too():
    assert 'specdec = "specdec_cli.__main__:main"' in (ROOT / "pyproject.toml").read_text()


# The program as it stands when the first module of another project is looked for.
AT_TYPER = """
import importlib.abc, os, sys
class End(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "typer":
            os._exit(0)
sys.meta_path.insert(0, End())
sys.argv = ["specdec", *sys.argv[1:]]
from specdec_cli.__main__ import main
main()
"""


def said_at_once(*arguments: str, **environment: str) -> bytes:
    """What stands on the terminal of stderr before anything is imported."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", AT_TYPER, *arguments]
    given = ENVIRONMENT | {"TERM": "xterm"} | environment
    subprocess.run(command, stderr=slave, stdin=subprocess.DEVNULL, env=given, timeout=60, check=True)
    os.write(slave, b"|")
    said = b""
    try:
        while not said.endswith(b"|"):
            said += os.read(master, 1000)
        return said[:-1]
    finally:
        os.close(slave)
        os.close(master)


@pytest.mark.slow
def test_what_loads_a_model_says_so_before_anything_is_imported():
    """The bug: nothing was on the screen for 6.5 CPU seconds with a big vocabulary."""
    for command in ("run", "chat", "serve", "bench", "audit", "race"):
        assert said_at_once(command, "hi") == b"loading..."
    for silent in (["pairs"], ["run", "-q", "hi"], ["run", "--json"], ["chat", "--plain"], ["run", "--help"], []):
        assert said_at_once(*silent) == b"", silent
    assert said_at_once("run", TERM="dumb") == said_at_once("run", SPECDEC_PLAIN="1") == b""


@pytest.mark.slow
def test_a_config_that_says_plain_is_obeyed_before_anything_is_imported_too(tmp_path):
    config = tmp_path / "config.toml"
    for text, said in (("plain = true", b""), ("plain = false", b"loading..."), ("plain = ", b"loading...")):
        config.write_text(text)
        assert said_at_once("run", "hi", SPECDEC_CONFIG=str(config)) == said
