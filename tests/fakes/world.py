"""A person's home and a Hub on loopback, with `specdec` run in it as real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fakes.hub_client import BLOCKED, environment, own
from fakes.hub_server import HubServer

BIG, SMALL, ODD = "org/big", "org/small", "org/odd"
MODELS = f"""schema_version = 1
# my own words, and they stay
[pairs.tiny]
target = "{BIG}"
draft = "{SMALL}"  # same tokenizer

[pairs.odd]
target = "{BIG}"
draft = "{ODD}"

[pairs.gone]
target = "org/nowhere"
"""
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there


@dataclass
class Done:
    """What a command left: exit code, stdout and stderr, without the spaces that tables are padded with."""

    code: int
    out: str
    err: str

    def errors(self) -> list[str]:
        """The two lines a failure ends with; anything else would be a traceback or a riddle."""
        lines = self.err.splitlines()[-2:]
        assert "Traceback" not in self.out + self.err
        assert [line.split(":")[0] for line in lines] == ["error", "hint"], self.err
        return [line.split(": ", 1)[1] for line in lines]


@dataclass
class World:
    """A Hub with the tiny models, and a home of one's own under `root`."""

    hub: HubServer
    root: Path

    @property
    def models(self) -> Path:
        return self.root / "models.toml"

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    def environment(self, **extra: str) -> dict[str, str]:
        here = own(self.root) | {"SPECDEC_CONFIG": str(self.config), "COLUMNS": "80"}
        return environment(self.hub, self.root / "hf", **here | extra)

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
        command = [sys.executable, "-m", "specdec_cli", *arguments]
        return subprocess.Popen(command, env=self.environment(**extra), **pipes)

    def __call__(self, *arguments: str, **extra: str) -> Done:
        return finish(self.start(*arguments, **extra))

    def without_network(self, *arguments: str, **extra: str) -> Done:
        """The same, where opening any socket fails."""
        command = [sys.executable, "-c", f"{BLOCKED}\nfrom specdec_cli.main import main\nmain()", *arguments]
        pipes = {"capture_output": True, "stdin": subprocess.DEVNULL, "text": True, "timeout": 180}
        done = subprocess.run(command, env=self.environment(**extra), check=False, **pipes)
        return Done(done.returncode, done.stdout, done.stderr)

    def weight_bytes_sent(self) -> int:
        return self.hub.fetched().get("model.safetensors", 0)

    def cached(self, name: str) -> Path:
        return self.root / "hf" / "hub" / f"models--{name.replace('/', '--')}"


def finish(process: subprocess.Popen[str]) -> Done:
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    bare = ["\n".join(line.rstrip() for line in text.splitlines()) for text in (out, err)]
    return Done(process.returncode, *bare)


def wait_for(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pulled_files(world: World, model: str) -> list[str]:
    """`name  size` of the files of a model, in the order they are printed."""
    (commit,) = world.hub.repos[f"org/{model}"].values()
    sizes = {path: len(blob.data) for path, blob in commit.items()}
    ordered = sorted(sizes, key=lambda path: (path.endswith(".safetensors"), path))
    return [
        f"{path}  {sizes[path]} B" if sizes[path] < 1000 else f"{path}  {sizes[path] / 1e3:.0f} kB" for path in ordered
    ]
