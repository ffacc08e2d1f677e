"""A further rank: it does what rank 0 does, in the same order, prints nothing and writes no file.

Started by `launch`, its input begins with a line of JSON, then wakes it; its output is lines of JSON: the facts of
its machine, and the error that ended it.
"""

from __future__ import annotations

import gc
import json
import os
from collections import deque
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import TypeAdapter

from specdec_cli.apps.several.launch import ring_file
from specdec_cli.core.errors import SpecdecError, reason
from specdec_cli.core.request import Request
from specdec_cli.system.link import DESCRIPTOR

T = TypeVar("T")


def work() -> None:
    """All that rank 0 asks for, until it ends. Raises: SpecdecError for what only this machine cannot do."""
    from specdec_cli.engine.device import clear_cache
    from specdec_cli.engine.group import NotWanted, joined
    from specdec_cli.measure.audit import AuditPlan, run_audit
    from specdec_cli.pairs.pair import PairSpec
    from specdec_cli.session.load import Wishes, load_spec
    from specdec_cli.session.session import Session

    group = joined()
    assert group is not None
    session: Session | None = None
    while True:
        try:
            name, *values = group.job()
        except RuntimeError:  # rank 0 has gone
            return
        if name == "load":
            session = None
            gc.collect()
            clear_cache()
            spec, request = _read(PairSpec, values[0]), _read(Request, values[1])
            with suppress(NotWanted):
                wishes = Wishes(reserve_tokens=values[2], request=request, group=group)
                session = load_spec(spec, wishes).session()
        elif name == "measure":
            group.seconds(*values)
        elif session is not None and name == "audit":
            run_audit(session, _read(AuditPlan, values[0]), lambda *_: None)
        elif session is not None and name == "plain":
            deque(session.plain(values[0], _read(Request, values[1])), maxlen=0)
        elif session is not None:
            deque(session.reply(values[0], _read(Request, values[1]), raw=values[2]), maxlen=0)


def _read(kind: type[T], values: Any) -> T:
    return TypeAdapter(kind).validate_python(values)


def _say(**facts: Any) -> None:
    with suppress(OSError):
        os.write(1, json.dumps(facts).encode() + b"\n")


def _first_line() -> bytes:
    """Byte by byte: what follows is for another reader."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line


def main() -> None:
    """The process that `launch` starts."""
    header = json.loads(_first_line())
    with suppress(OSError):
        os.chdir(header["folder"])
    try:
        with ring_file(header["ring"]) as path:
            os.environ.update(path | {"MLX_RANK": str(header["rank"]), DESCRIPTOR: "0"})
            from specdec_cli.engine.device import usable_bytes
            from specdec_cli.engine.group import joined

            _say(usable_bytes=usable_bytes())
            joined()
        work()
    except SpecdecError as error:
        _say(error=error.message, hint=error.hint)
        os._exit(1)  # at an orderly end mlx waits for sums that are under way, and nobody adds to them any more
    except Exception as error:  # noqa: BLE001 - the process's boundary: rank 0's machine says it
        _say(error=f"it failed unexpectedly: {reason(error)}", hint="please report it")
        os._exit(1)


if __name__ == "__main__":
    main()
