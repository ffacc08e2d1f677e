"""The commands of a chat. Law: a mistyped command is an error that names the nearest one, never a message."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_cli.chat.chat import Chat
from specdec_cli.chat.editor import compose
from specdec_cli.chat.rows import settings_rows, stats_rows
from specdec_cli.chat.screen import Markdown, Notice, Quote, Rows
from specdec_cli.chat.settings import NAMES, WORDS, on_or_off, parse_k
from specdec_cli.chat.shape import require_stops, shape_command
from specdec_cli.chat.transcript import Transcript, load
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.format import count
from specdec_cli.kinds import LOOKUP, MODEL, kind_of
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.local import model_folder
from specdec_cli.request import one_name
from specdec_cli.session.conversation import Conversation

SHOWABLE = ("settings", "last", "thinking", "all")


class Leave(Exception):
    """The chat is over."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `act` takes its argument and returns the editor's next text; `words` completes the argument."""

    name: str
    usage: str
    help: str
    act: Callable[[Chat, str], str | None]
    aliases: tuple[str, ...] = ()
    words: Callable[[], Iterable[str]] = tuple
    files: bool = False


def run_command(chat: Chat, line: str) -> str:
    """Runs `/name argument` and returns the editor's next text. Raises: SpecdecError, Leave."""
    name, *rest = line.strip().split(maxsplit=1)
    return find(name).act(chat, "".join(rest)) or ""


def find(name: str) -> Command:
    """The command of that name or alias. Raises: UsageError with the nearest one."""
    known = {spelling: command for command in COMMANDS for spelling in (command.name, *command.aliases)}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, 1, 0.5)
    nearest = f"the nearest: {close[0]}" if close else "/help lists all"
    raise UsageError(f"there is no command {name}", f"{nearest}; to send it as a message, put a space before the /")


def _help(chat: Chat, argument: str) -> None:
    rows = [(" ".join([command.name, *command.usage.split()]), command.help) for command in COMMANDS]
    keys = [
        ("Enter", 'sends; in an open """ it begins a new line'),
        ("Alt-Enter", "a new line; so does Esc Enter"),
        ("Ctrl-C", "stops the reply and keeps what was said; clears the line; twice within a second leaves"),
        ("Ctrl-D", "leaves; Ctrl-X Ctrl-E opens $EDITOR on the line"),
    ]
    chat.screen.show(Rows((*rows, ("", ""), *keys)))


def _leave(chat: Chat, argument: str) -> None:
    raise Leave


def _clear(chat: Chat, argument: str) -> None:
    path = chat.saved_to and _free_beside(chat.saved_to)
    chat.adopt(Transcript(Conversation(chat.conversation.system)), path)
    stays = "; the system message stays" if chat.conversation.system else ""
    chat.screen.show(Notice(f"a new conversation{stays}" + (f", saved to {path}" if path else "")))


def _free_beside(path: Path) -> Path:
    """chat.jsonl -> chat-2.jsonl, or the first such name that is free."""
    number = 2
    while (found := path.with_name(f"{path.stem}-{number}{path.suffix}")).exists():
        number += 1
    return found


def _retry(chat: Chat, argument: str) -> str:
    return chat.retry()


def _undo(chat: Chat, argument: str) -> str:
    message = chat.undo()
    chat.screen.show(Notice("the last turn was taken back"))
    return message


def _system(chat: Chat, argument: str) -> None:
    conversation = chat.conversation
    if argument:
        chat.change(replace(conversation, system=None if argument == "off" else argument))
    now = chat.conversation.system
    chat.screen.show(Notice(f"system: {now}" if now else "no system message; /system TEXT sets one"))


def _set(chat: Chat, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if not name or not value.strip():
        raise UsageError(
            f"/set {name} lacks a value" if name else "/set lacks a name and a value", f"names: {', '.join(NAMES)}"
        )
    settings = chat.settings.with_value(name, value.strip())
    require_stops(settings)
    chat.settings = settings
    chat.screen.show(Notice(f"{name} {value.strip()}"))


def _k(chat: Chat, argument: str) -> None:
    if argument:
        chat.settings = replace(chat.settings, k=parse_k(argument))
    chat.screen.show(Notice(f"K {chat.request().k}"))


def _draft(chat: Chat, argument: str) -> None:
    drafts = on_or_off("/draft", argument)
    loaded = chat.loaded
    kind = kind_of(loaded.drafter)
    if drafts and (kind.needs_draft or not kind.drafts) and loaded.session.names[1] is None:
        if loaded.pair.draft:
            chat.switch(loaded.pair, MODEL.name)
        else:
            chat.loaded = replace(loaded, drafter=LOOKUP.name)
    chat.settings = replace(chat.settings, drafts=drafts)
    by_text = not kind_of(chat.loaded.drafter).by_network
    who = f"the conversation's own text drafts ({chat.loaded.drafter})" if by_text else "the draft is on"
    chat.screen.show(Notice(who if drafts else "the draft is off: plain decoding"))


def _panel(chat: Chat, argument: str) -> None:
    chat.settings = replace(chat.settings, panel=on_or_off("/panel", argument))


def _pair(chat: Chat, argument: str) -> None:
    if argument:
        pair = registry().find(argument)
        for name, revision in pair.models:
            model_folder(pair, name, revision)  # before the present pair is unloaded
        chat.switch(pair, pair.drafter or chat.loaded.drafter)
    chat.screen.show(Notice(chat.loaded.summary))


def _show(chat: Chat, argument: str) -> None:
    what = one_name("/show", SHOWABLE)(argument or SHOWABLE[0])
    answer = None if what in ("settings", "all") else chat.last_answer("/show")
    if answer is not None:
        chat.screen.show(Markdown(answer.text) if what == "last" else Quote(answer.thinking or "it did not think"))
    elif what == "settings":
        chat.screen.show(Rows(tuple(settings_rows(chat))))
    else:
        for turn in chat.conversation.turns:
            chat.screen.show(Quote(f"> {turn.user}\n"))
            chat.screen.show(Markdown(turn.answer.text, gap=True))


def _stats(chat: Chat, argument: str) -> None:
    stats = chat.stats
    figures = stats.rounds.to_dict() | {
        "replies": stats.replies,
        "prompt_tokens": stats.prompt_tokens,
        "cached_tokens": stats.cached_tokens,
        "tokens_per_second": stats.tokens_per_second,
    }
    chat.screen.show(Rows(stats_rows(figures)))


def _save(chat: Chat, argument: str) -> None:
    path = _path(argument, "/save")
    chat.save(path)
    chat.screen.show(Notice(f"{_turns(chat)} saved to {path}"))


def _load(chat: Chat, argument: str) -> None:
    path = _path(argument, "/load")
    chat.adopt(load(path), path)
    kept = ", and saved there from now on" if chat.saved_to else ""
    chat.screen.show(Notice(f"{_turns(chat)} loaded from {path}{kept}"))


def _turns(chat: Chat) -> str:
    return count(len(chat.conversation.turns), "turn")


def _path(argument: str, command: str) -> Path:
    if not argument:
        raise UsageError(f"{command} lacks a file name", f"for example: {command} chat.jsonl")
    return Path(argument).expanduser()


def _copy(chat: Chat, argument: str) -> None:
    chat.screen.show(Notice(chat.screen.copy(chat.last_answer("/copy").text)))


def _edit(chat: Chat, argument: str) -> str:
    message = compose(argument)
    if not message.strip():
        chat.screen.show(Notice("nothing was written, so nothing was sent"))
        return ""
    chat.screen.show(Quote(message))
    try:
        return chat.ask(message)
    except SpecdecError as error:
        chat.screen.error(error)
        return message  # what was written in an editor is nowhere else


def _pair_names() -> Iterable[str]:
    return registry().pairs


def _set_words() -> Iterable[str]:
    return [*NAMES, *(f"{name} {word}" for name, words in WORDS.items() for word in words)]


def _off() -> Iterable[str]:
    return ("off",)


COMMANDS = (
    Command("/help", "", "this list", _help, ("/?",)),
    Command("/exit", "", "leave; also /bye, /quit and Ctrl-D", _leave, ("/bye", "/quit")),
    Command("/clear", "", "a new conversation; the system message stays", _clear),
    Command("/retry", "", "another answer to the last message", _retry),
    Command("/undo", "", "take the last turn back", _undo),
    Command("/edit", "[TEXT]", "write a message in $EDITOR", _edit),
    Command("/system", "[TEXT|off]", "set or show the system message", _system),
    Command("/set", "NAME VALUE", "temp, top-p, seed, max-tokens, overflow, think, …", _set, words=_set_words),
    Command("/show", "[WHAT]", "settings; last, the answer as Markdown; thinking; all", _show, words=lambda: SHOWABLE),
    Command("/stats", "", "what drafting has gained so far", _stats),
    Command("/pair", "[NAME]", "show the pair, or switch to another", _pair, words=_pair_names),
    Command("/draft", "on|off", "draft, or decode plainly", _draft, words=lambda: ("on", "off")),
    Command("/k", "[N|auto]", "tokens drafted per round", _k, words=lambda: ("auto", *map(str, range(9)))),
    Command(
        "/schema",
        "[FILE|JSON|off]",
        "every answer is JSON of this schema",
        shape_command("schema"),
        words=_off,
        files=True,
    ),
    Command("/regex", "[RE|off]", "every answer matches RE", shape_command("regex"), words=_off),
    Command(
        "/grammar", "[FILE|off]", "every answer is of this grammar", shape_command("grammar"), words=_off, files=True
    ),
    Command("/panel", "on|off", "the live panel", _panel, words=lambda: ("on", "off")),
    Command("/save", "FILE", "write the conversation to FILE", _save, files=True),
    Command("/load", "FILE", "continue the conversation in FILE", _load, files=True),
    Command("/copy", "", "the last answer to the clipboard", _copy),
)
