"""The pairs: `pairs`, `check`, `pull`, `rm`, and what can be asked of them. Verdicts come before gigabytes.

An entry is replaced, and a file deleted, only after a question; the default pair is one that can answer.
"""

from __future__ import annotations

import typer

from specdec_cli.command.command import grouped
from specdec_cli.command.options import NameOptions, PairOptions, StoredOptions

app = typer.Typer()
pairs_app = typer.Typer(invoke_without_command=True)
app.add_typer(pairs_app, name="pairs")


@pairs_app.callback()
@grouped
def pairs(*, context: typer.Context, json: bool = False, every: bool = False) -> None:
    """The pairs specdec knows: sizes, here or not, fits or not."""
    if context.invoked_subcommand is None:
        from specdec_cli.apps.pairs import entries

        entries.show(json, every)


@pairs_app.command("add")
@grouped
def add(*, name: str, models: StoredOptions, k: str | None = None, yes: bool = False) -> None:
    """Add a pair of your own to your models.toml.

    An entry of that name is replaced only after a question.
    """
    from specdec_cli.apps.pairs import entries

    entries.add(name, models, k, yes)


@pairs_app.command("use")
@grouped
def use(*, named: NameOptions, yes: bool = False, force: bool = False) -> None:
    """Make a pair the default, used when you give no --pair.

    One that is not here is pulled first, if you agree.
    """
    from specdec_cli.apps.pairs import entries

    entries.use(named.required, yes, force)


@pairs_app.command("remove")
@grouped
def remove(*, named: NameOptions, yes: bool = False) -> None:
    """Take a pair out of your models.toml; no model is deleted.

    A packaged pair of that name comes back.
    """
    from specdec_cli.apps.pairs import entries

    entries.remove(named.required, yes)


@app.command()
@grouped
def check(
    *,
    named: NameOptions,
    models: PairOptions,
    max_context: int | None = None,
    kv_bits: int | None = None,
    hosts: str | None = None,
    json: bool = False,
    offline: bool = False,
) -> None:
    """Verdict on a pair, before any weight is downloaded.

    Tokenizers, caches, memory, expected gain.
    """
    from specdec_cli.apps.pairs import models as work

    if code := work.check(named.given, models, max_context, kv_bits, hosts, json, offline):
        raise typer.Exit(code)


@app.command()
@grouped
def pull(
    *,
    named: NameOptions,
    models: PairOptions,
    max_context: int | None = None,
    verify: bool = False,
    yes: bool = False,
    force: bool = False,
    offline: bool = False,
) -> None:
    """Download a pair, checking it first.

    Without a name specdec recommends one for this machine, and asks.
    """
    from specdec_cli.apps.pairs import models as work

    work.pull(named, models, max_context, verify, yes, force, offline)


@app.command()
@grouped
def rm(*, named: NameOptions, yes: bool = False) -> None:
    """Remove a downloaded or tuned pair.

    It says what is shared and what was freed.
    """
    from specdec_cli.apps.pairs import models as work

    work.rm(named.required, yes)
