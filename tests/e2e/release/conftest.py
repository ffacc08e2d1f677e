"""The scripts of .github/scripts: as modules, and as commands in this environment."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
