"""A command is a folder and its rows in `main.py`: where these are gone, all others go on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import specdec_cli
from specdec_cli.pairs.registry import packaged_file

PACKAGE = Path(specdec_cli.__file__).parent
REST = """
import importlib, pkgutil
import specdec_cli
for found in pkgutil.walk_packages(specdec_cli.__path__, "specdec_cli."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
from specdec_cli.main import PANELS, exit_code
for names in (name for rows in PANELS.values() for names in rows.values() for name in names.split()):
    assert exit_code([names, "--help"]) == 0
"""


def without(app, folder):
    """A copy of the package in which `app` and its rows are removed."""
    copy = shutil.copytree(PACKAGE, folder / "specdec_cli", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(packaged_file(), folder / "models.toml")
    shutil.rmtree(copy / "apps" / app)
    main = copy / "main.py"
    lines = main.read_text("utf-8").splitlines(keepends=True)
    main.write_text("".join(line for line in lines if f'"apps.{app}.' not in line), "utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("app", ["tune", "several", "race", "chat"])
def test_everything_else_goes_on_without_a_command(app, tmp_path):
    """Every other module is imported, every other command has its help, and one of them answers."""
    environment = {**os.environ, "PYTHONPATH": str(without(app, tmp_path))}

    def python(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    rest = python("-c", REST)
    assert (rest.returncode, rest.stderr) == (0, "")
    ran = python("-m", "specdec_cli", "run", "-p", "demo", "--raw", "-n", "4", "-q", "def f(x):")
    assert (ran.returncode, ran.stderr) == (0, "")
    first = python("-m", "specdec_cli").stdout
    assert f"\n  {app} " not in first and "\n  run " in first
    gone = ("run", "--hosts", "a,b", "x") if app == "several" else (app,)
    refused = python("-m", "specdec_cli", *gone)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 2, refused.stderr
