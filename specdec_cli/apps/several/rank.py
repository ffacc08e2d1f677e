"""A further rank: it does the tasks that rank 0 tells it, in the same order, prints nothing and writes no file.

Started by `launch`, its input begins with a line of JSON, then wakes it; its output is lines of JSON: the facts of
its machine, and the error that ended it.
"""

from __future__ import annotations

import gc
import json
import os
from collections import deque
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter

from specdec_cli.core.errors import SpecdecError, reason
from specdec_cli.system.link import DESCRIPTOR, ring_file


def work() -> None:
    """All that rank 0 asks for, until it ends. Raises: SpecdecError for what only this machine cannot do."""
    from specdec_cli.engine.device import clear_cache
    from specdec_cli.engine.group import NotWanted, joined
    from specdec_cli.measure.audit import AuditPlan, run_audit
    from specdec_cli.session.load import Wishes
    from specdec_cli.session.session import Session
    from specdec_cli.session.several import Task, open_part

    group, reader = joined(), TypeAdapter(Task)
    assert group is not None
    session: Session | None = None
    while True:
        try:
            task = reader.validate_python(group.job())
        except RuntimeError:  # rank 0 has gone
            return
        if task.kind == "open" and task.spec is not None:
            session = None
            gc.collect()
            clear_cache()
            with suppress(NotWanted):
                wishes = Wishes(reserve_tokens=task.reserve_tokens, request=task.request)
                session = open_part(group, task.spec, wishes).session()
        elif task.kind == "sum":
            group.seconds(task.numbers)
        elif session is not None and task.kind == "audit":
            run_audit(session, TypeAdapter(AuditPlan).validate_python(task.plan), lambda *_: None)
        elif session is not None and task.kind == "plain":
            deque(session.plain(task.prompt, task.request), maxlen=0)
        elif session is not None:
            deque(session.reply(task.prompt, task.request, raw=task.raw), maxlen=0)


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
