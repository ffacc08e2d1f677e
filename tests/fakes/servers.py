"""Files of servers that run in other processes, as far as anybody can see."""

import fcntl
import json
import os
from dataclasses import asdict

from specdec_cli.system import servers

PARENT = os.getppid()


def plant(pid=PARENT, pair="tiny", weight_bytes=1000, lock=True, port=1, name=None, **more):
    """The file `name` of another process, locked as a server that runs does; what keeps it so."""
    server = servers.RunningServer(pid, pair, f"http://127.0.0.1:{port}", 1.0, weight_bytes)
    path = server.path.with_name(name or server.path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**asdict(server), **more}))
    file = path.open("r+")
    if lock:
        fcntl.flock(file, fcntl.LOCK_EX)
    return file
