"""specdec's Hub package and its command line, each call in a process of its own, against a `HubServer`.

HF_ENDPOINT and HF_HOME are read when huggingface_hub is imported, so no call can share a process with another setting.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from fakes.hub_server import HubServer

# No connection of any kind can be made from here on.
BLOCKED = """
import socket

class Opened(BaseException): pass
def refuse(*_, **__): raise Opened('a socket was opened')
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
"""
BEFORE = """
import contextlib, io, json, os, sys
from pathlib import Path
from specdec_cli import hub
from specdec_cli.core.errors import SpecdecError
heard = []
def hear(*values): heard.append(values)
def specdec(*words):
    "(exit code, stdout, lines of stderr) of a command line."
    from specdec_cli.main import main
    sys.argv, sys.stdin, code, out, err = ["specdec", *words], open(os.devnull), 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try: main()
        except SystemExit as end: code = end.code or 0
    return [code, out.getvalue(), err.getvalue().splitlines()]
def told(code):
    result = None
    try:
        names = {**globals()}
        exec(code, names)
        result = names.get("result")
    except SpecdecError as error:
        result = {"error": type(error).__name__, "message": error.message, "hint": error.hint, "exit": error.exit_code}
    print(json.dumps(result, default=str), flush=True)
"""
CLIENT = BEFORE + "told(sys.argv[1])"
CLIENTS = BEFORE + "for line in sys.stdin: told(json.loads(line))"

KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "MACOS_FOLDER", "MACOS_STARTS")


def environment(server: HubServer, home: Path, **extra: str) -> dict[str, str]:
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    here = {"HF_ENDPOINT": server.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*"}
    return kept | here | {"PYTHONDONTWRITEBYTECODE": "1"} | extra


def ask(server, home, code, **extra):
    """What `result` is after `code` ran in a fresh process, or its SpecdecError as values."""
    pipes = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, "-c", CLIENT, code], env=environment(server, home, **extra), **pipes)
    assert (done.stderr, done.returncode) == ("", 0)
    return json.loads(done.stdout)


class Person:
    """One process that does as it is told, code after code, in one home: huggingface_hub is imported once."""

    def __init__(self, server: HubServer, home: Path, before: str = "", **extra: str) -> None:
        self.home, pipes = home, {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-c", f"{before}\n{CLIENTS}"]
        self._process = subprocess.Popen(command, env=environment(server, home, **extra), **pipes)

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, code: str):
        """What `result` is after `code` ran, or its SpecdecError as values. A traceback ends the process."""
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def specdec(self, *words: str) -> tuple[int, str, list[str]]:
        """(exit code, stdout, lines of stderr) of a command line."""
        return tuple(self(f"result = specdec(*{words!r})"))


def own(root: Path) -> dict[str, str]:
    """The settings of a person whose home is `root`."""
    return {"HOME": str(root), "SPECDEC_MODELS": str(root / "models.toml"), "XDG_CACHE_HOME": str(root / "cache")}


def tree(root: Path, cache: Path) -> dict[str, str]:
    """Everything below `root` but the cache: kinds, bytes and links. What must not change in an attack."""
    return {str(path.relative_to(root)): _content(path) for path in sorted(_walk(root, cache))}


def _walk(folder: Path, cache: Path):
    for path in folder.iterdir():
        yield path
        if path.is_dir() and not path.is_symlink() and path != cache:
            yield from _walk(path, cache)


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
