"""`specdec` in this process: the whole command line with its error boundary, in a home of its own."""

from __future__ import annotations

import io
import os
import signal
import sys
from math import inf
from pathlib import Path

import pytest

from specdec_cli.main import main
from specdec_cli.session.signals import ENDING
from specdec_cli.terminal.panel import status


class Command:
    """(exit code, stdout, stderr) of a command line. No pipe, terminal or signal: those need a real process."""

    def __init__(self, home: Path, monkeypatch, capsys) -> None:
        self.models, self.config = home / "models.toml", home / "config.toml"
        self._monkeypatch, self._capsys = monkeypatch, capsys
        own = {"HOME": home, "SPECDEC_MODELS": self.models, "SPECDEC_CONFIG": self.config}
        for name, value in {**own, "COLUMNS": "80", "MLX_ENABLE_TF32": os.environ["MLX_ENABLE_TF32"]}.items():
            monkeypatch.setenv(name, str(value))
        # A slow machine says what a fast one does: only what asks for a line from its beginning has one.
        monkeypatch.setattr(status, "PATIENCE_SECONDS", inf)

    def __call__(self, *arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["specdec", *map(str, arguments)])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
        try:
            with pytest.raises(SystemExit) as end:
                main()
        finally:
            # The program ignores these from its end on; this process lives on.
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return end.value.code, *self._capsys.readouterr()

    def refused(self, *arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        """(exit code, message, hint) of a command line that fails: two lines on stderr and nothing else."""
        code, out, err = self(*arguments, stdin=stdin)
        lines = err.splitlines()
        assert (out, [line.partition(": ")[0] for line in lines]) == ("", ["error", "hint"]), err
        return code, *(line.partition(": ")[2] for line in lines)
