"""`specdec serve --print-config`. Law: stdout is what goes into a file or a shell; no weight is read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from specdec_cli.cli.options import complete_from, option
from specdec_cli.errors import UsageError
from specdec_cli.request import one_name
from specdec_cli.serve.clients import CLIENTS, Connection, notes

if TYPE_CHECKING:
    from specdec_cli.pairs.resolve import Resolved

NAME = "--print-config"


def known(value: str | None) -> str | None:
    """Raises: UsageError, with the nearest, for a client that is none."""
    return None if value is None else one_name(NAME, tuple(CLIENTS))(value)


PrintConfig = Annotated[
    str | None,
    option(
        NAME,
        metavar="CLIENT",
        callback=known,
        help=f"Print what {', '.join(list(CLIENTS)[:-1])} or {list(CLIENTS)[-1]} must be told, and end.",
        show_default=False,
        autocompletion=complete_from(CLIENTS),
    ),
]


def print_config(
    name: str, found: Resolved, host: str, port: int, wants_key: bool, max_context: int | None, plain: bool
) -> None:
    """Settings of the client `name` for this pair at that address. Raises: NotAvailable, Refused, UsageError."""
    from specdec_cli.kinds import DRAFTERS
    from specdec_cli.serve.http.guard import Door
    from specdec_cli.session.load import pair_facts
    from specdec_cli.ui.display import print_notice

    if port == 0:
        raise UsageError(f"{NAME} {name} needs the port that clients will find", "for example: --port 8040")
    facts = pair_facts(found.pair, DRAFTERS[found.drafter])
    limits = [limit for limit in (facts.context_limit, max_context) if limit is not None]
    tools = facts.tokenizer.call_marks is not None
    to = Connection(Door(port, host).url, found.pair.name, min(limits, default=None), wants_key, tools)
    for note in notes(name, to):
        print_notice(sys.stderr, note, plain)
    typer.echo(CLIENTS[name].write(to))
