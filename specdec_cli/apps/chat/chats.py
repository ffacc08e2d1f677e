"""`specdec chats`: chats that are kept. Their numbers count from the one that was written last."""

from __future__ import annotations

import shlex
import sys

import typer

from specdec_cli.command.command import ask, grouped, notify
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.core.format import count

app = typer.Typer()
chats_app = typer.Typer(invoke_without_command=True)
app.add_typer(chats_app, name="chats")


@chats_app.callback()
@grouped
def chats(*, context: typer.Context) -> None:
    """Your kept chats: list, show, delete."""
    if context.invoked_subcommand is not None:
        return
    from specdec_cli.apps.chat.screen import print_chats
    from specdec_cli.session.kept_chats import described, kept_chats

    rows = [(str(number), *described(path)) for number, path in enumerate(kept_chats(), 1)]
    if rows:
        print_chats(sys.stdout, rows)
    else:
        notify("no chat is kept", plain=False)


@chats_app.command("show")
@grouped
def show(*, number: int) -> None:
    """Print a kept chat.

    A pipe or a file gets Markdown. Thinking is left out.
    """
    from specdec_cli.apps.chat.screen import as_markdown, print_chat
    from specdec_cli.session.kept_chats import kept_chat, pair_of, written_on
    from specdec_cli.session.transcript import load

    path = kept_chat(number)
    transcript = load(path)
    if transcript.left_out:
        notify(transcript.left_out, plain=False)
    chat, pair = transcript.conversation, pair_of(transcript)
    messages = [("System", chat.system)] if chat.system else []
    for turn in chat.turns:
        messages += [("You", turn.user), (str(turn.answer.facts.get("pair") or pair), turn.answer.text)]
    print_chat(
        sys.stdout, as_markdown(f"Chat with {pair}", f"{written_on(path)}, {count(len(chat.turns), 'turn')}", messages)
    )


@chats_app.command("delete")
@grouped
def delete(*, number: int | None = None, every: bool = False, yes: bool = False) -> None:
    """Delete a kept chat, or all of them, after a question."""
    from specdec_cli.session import kept_chats as kept

    if (number is None) != every:
        raise UsageError("delete takes the number of a chat, or --all", "specdec chats lists the numbers")
    paths = kept.kept_chats() if number is None else [kept.kept_chat(number)]
    what = f"all {count(len(paths), 'kept chat')}"
    if number is not None:
        when, _, _, words = kept.described(paths[0])
        what = f"chat {number} of {when}: {' '.join(words.split())[:40]}"
    ask(f"Delete {what}?", yes or not paths)
    stay = kept.delete(paths)
    notify(f"deleted {count(len(set(paths) - stay.keys()), 'chat')}", plain=False)
    if stay:
        told = "; ".join(f"{path} ({why})" for path, why in stay.items())
        raise SpecdecError(f"not deleted: {told}", f"look at it: ls -ld {shlex.join(map(str, stay))}")
