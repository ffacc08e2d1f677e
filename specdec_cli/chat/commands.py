"""What can be typed after a slash: one table of commands, and its completion.

A mistyped command is an error that names the nearest one, never a message; a message is never completed.
"""

from __future__ import annotations

import difflib
import itertools
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_cli.chat.chat import Chat
from specdec_cli.chat.screen import Markdown, Notice, Quote, Rows, Suggestion
from specdec_cli.chat.settings import NAMES, WORDS, on_or_off, parse_k
from specdec_cli.chat.transcript import Transcript, load
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.format import count, percent, speed
from specdec_cli.kinds import LOOKUP, MODEL, kind_of
from specdec_cli.models.grammar import read_constraint, require_possible, require_uncut
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.local import model_folder
from specdec_cli.request import Constraint, ShapeKind, flag, one_name
from specdec_cli.session.conversation import Conversation
from specdec_cli.stats import ChatStats

SHOWABLE = ("settings", "last", "thinking", "all")
KEYS = (
    ("Enter", 'sends; in an open """ it begins a new line'),
    ("Alt-Enter", "a new line; so does Esc Enter"),
    ("Ctrl-C", "stops the reply and keeps what was said; clears the line; twice within a second leaves"),
    ("Ctrl-D", "leaves; Ctrl-X Ctrl-E opens $EDITOR on the line"),
)


class Leave(Exception):
    """The chat is over."""


Words = Callable[[], Iterable[str]]


def _either(*words: str) -> Words:
    return lambda: words


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `act` takes its argument and returns the editor's next text; `words` completes the argument."""

    name: str
    usage: str
    help: str
    act: Callable[[Chat, str], str | None]
    aliases: tuple[str, ...] = ()
    words: Words = tuple
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


def suggestions(text: str) -> list[Suggestion]:
    """The completions of a command typed so far."""
    if not text.startswith("/") or "\n" in text:
        return []
    name, space, argument = text.partition(" ")
    if not space:
        return [Suggestion(each.name, len(name), each.help) for each in COMMANDS if each.name.startswith(name)]
    command = next((known for known in COMMANDS if name in (known.name, *known.aliases)), None)
    if command is None:
        return []
    words = [*command.words(), *(_files(argument) if command.files else [])]
    return [Suggestion(word, len(argument)) for word in words if word.startswith(argument)]


def _files(begun: str) -> list[str]:
    """Files, and folders with a / at the end, whose path begins so."""
    folder, slash, start = begun.rpartition("/")
    try:
        paths = sorted((Path(folder + slash) if begun else Path()).expanduser().iterdir())
    except OSError:
        return []
    shown = [path for path in paths if start.startswith(".") or not path.name.startswith(".")]
    return [folder + slash + path.name + "/" * path.is_dir() for path in shown]


def _help(chat: Chat, argument: str) -> None:
    rows = [(" ".join([command.name, *command.usage.split()]), command.help) for command in COMMANDS]
    chat.screen.show(Rows((*rows, ("", ""), *KEYS)))


def _leave(chat: Chat, argument: str) -> None:
    raise Leave


def _clear(chat: Chat, argument: str) -> None:
    path = chat.saved_to and _free_beside(chat.saved_to)
    chat.adopt(Transcript(Conversation(chat.conversation.system)), path)
    stays = "; the system message stays" if chat.conversation.system else ""
    chat.screen.show(Notice(f"a new conversation{stays}" + (f", saved to {path}" if path else "")))


def _free_beside(path: Path) -> Path:
    """chat.jsonl -> chat-2.jsonl, or the first such name that is free."""
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
    return next(name for name in names if not name.exists())


def _undo(chat: Chat, argument: str) -> str:
    message = chat.undo()
    chat.screen.show(Notice("the last turn was taken back"))
    return message


def _system(chat: Chat, argument: str) -> None:
    if argument:
        chat.change(replace(chat.conversation, system=None if argument == "off" else argument))
    now = chat.conversation.system
    chat.screen.show(Notice(f"system: {now}" if now else "no system message; /system TEXT sets one"))


def _set(chat: Chat, argument: str) -> None:
    name, _, value = argument.partition(" ")
    value = value.strip()
    if not name or not value:
        lacks = f"/set {name} lacks a value" if name else "/set lacks a name and a value"
        raise UsageError(lacks, f"names: {', '.join(NAMES)}")
    settings = chat.settings.with_value(name, value)
    shape = settings.constraint
    if shape is not None:
        _require_uncut(shape, settings.stop, f"leave it, or first: /{shape.kind} off")
    chat.settings = settings
    chat.screen.show(Notice(f"{name} {value}"))


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


def shape_command(kind: ShapeKind, usage: str, help: str) -> Command:
    """/schema, /regex or /grammar: sets the shape, takes it off, or shows it without an argument.

    What no answer could keep is refused when it is typed, and the old shape stays.
    """

    def act(chat: Chat, argument: str) -> None:
        if argument:
            shape = None if argument == "off" else _possible(kind, argument, chat.settings.stop)
            chat.settings = replace(chat.settings, constraint=shape)
        shape = chat.settings.constraint
        if shape is None:
            noun = "regular expression" if kind == "regex" else kind
            sentence = f"no {noun} set; /{kind} {usage} sets one"
        else:
            what = f"; /{kind} shows it" if argument else f": {' '.join(shape.text.split())}"
            sentence = f"every answer keeps the shape of this {shape.noun}{what}"
        chat.screen.show(Notice(sentence))

    return Command(f"/{kind}", f"[{usage}|off]", help, act, words=_either("off"), files=kind != "regex")


def _possible(kind: ShapeKind, argument: str, stop: tuple[str, ...]) -> Constraint:
    shape = read_constraint(kind, argument, f"/{kind}")
    try:
        require_possible(shape)
    except UsageError as error:
        raise UsageError(error.message, "change it; nothing was changed here") from error
    _require_uncut(shape, stop, "first: /set stop off")
    return shape


def _require_uncut(shape: Constraint, stop: tuple[str, ...], hint: str) -> None:
    """Raises: UsageError for a stop string that could cut an answer before its shape is complete."""
    try:
        require_uncut(shape, stop)
    except UsageError as error:
        raise UsageError(error.message, hint) from error


def _show(chat: Chat, argument: str) -> None:
    what = one_name("/show", SHOWABLE)(argument or SHOWABLE[0])
    if what == "settings":
        chat.screen.show(Rows(tuple(settings_rows(chat))))
    elif what == "all":
        for turn in chat.conversation.turns:
            chat.screen.show(Quote(f"> {turn.user}\n"))
            chat.screen.show(Markdown(turn.answer.text, gap=True))
    else:
        answer = chat.last_answer("/show")
        chat.screen.show(Markdown(answer.text) if what == "last" else Quote(answer.thinking or "it did not think"))


def settings_rows(chat: Chat) -> list[tuple[str, str]]:
    """The settings in effect."""
    settings, request, limit = chat.settings, chat.request(), chat.context_limit
    off = {"seed": settings.seed, "stop": " ".join(settings.stop) or None}
    return [
        ("pair", chat.loaded.summary),
        ("k", f"{request.k}, drafter {request.drafter}"),
        *((flag(name), f"{value:g}") for name, value in chat.loaded.session.effective(request).items()),
        *((name, "off" if value is None else str(value)) for name, value in off.items()),
        ("rule", settings.rule),
        *([("shape", f"{shape.kind} {' '.join(shape.text.split())}")] if (shape := settings.constraint) else []),
        ("max-tokens", str(settings.max_tokens)),
        ("context", f"{chat.context_tokens} of {'any number of' if limit is None else limit} tokens"),
        ("overflow", settings.overflow),
        ("think", settings.think),
        ("system", chat.conversation.system or "none"),
        ("saved to", str(chat.saved_to or "nothing: /save FILE, or --save FILE for every turn")),
    ]


def _stats(chat: Chat, argument: str) -> None:
    chat.screen.show(Rows(stats_rows(chat.stats)))


def stats_rows(stats: ChatStats) -> tuple[tuple[str, str], ...]:
    """What drafting has gained in the replies so far."""
    if not stats.replies:
        return (("replies", "none yet"),)
    rounds = stats.rounds.to_dict()
    tokens, passes, rates = rounds["emitted_tokens"], rounds["target_passes"], rounds["acceptance_per_position"]
    drafted, read = rounds["draft_n"], stats.prompt_tokens - stats.cached_tokens
    positions = " ".join(f"{position}: {percent(rate)}" for position, rate in enumerate(rates, 1))
    return (
        ("replies", str(stats.replies)),
        ("tokens", f"{tokens} in {count(passes, 'target pass')}, {rounds['mean_acceptance_length']:.2f} a pass"),
        ("accepted", f"{percent(rounds['draft_acceptance_rate'])} of drafted" if drafted else "nothing drafted"),
        *([("by position", positions)] if drafted else []),
        ("pace", f"{speed(stats.tokens_per_second)} after the first token of each reply"),
        ("prompts", f"{count(stats.prompt_tokens, 'token')}, {read} of them read, the others were in the cache"),
    )


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


def compose(text: str) -> str:
    """The text saved in $VISUAL or $EDITOR, which starts with `text`; without the newline that editors add.

    The file is private, and removed afterwards.
    Raises: UsageError without a terminal, SpecdecError for an editor that cannot be started or fails.
    """
    if not sys.stdin.isatty():
        raise UsageError("/edit needs a terminal", 'put the message on a line of its own, or between two lines of """')
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    descriptor, name = tempfile.mkstemp(prefix="specdec-", suffix=".md")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        code = subprocess.call([*shlex.split(editor), name])
        if code:
            raise SpecdecError(f"{editor} ended with code {code}", "nothing was sent; EDITOR names the editor")
        return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
    except OSError as error:
        raise SpecdecError(f"{editor} cannot be started: {error.strerror}", "EDITOR=nano specdec chat") from error
    finally:
        path.unlink(missing_ok=True)


def _pair_names() -> Iterable[str]:
    return registry().pairs


def _set_words() -> Iterable[str]:
    return [*NAMES, *(f"{name} {word}" for name, words in WORDS.items() for word in words)]


COMMANDS = (
    Command("/help", "", "this list", _help, ("/?",)),
    Command("/exit", "", "leave; also /bye, /quit and Ctrl-D", _leave, ("/bye", "/quit")),
    Command("/clear", "", "a new conversation; the system message stays", _clear),
    Command("/retry", "", "another answer to the last message", lambda chat, argument: chat.retry()),
    Command("/undo", "", "take the last turn back", _undo),
    Command("/edit", "[TEXT]", "write a message in $EDITOR", _edit),
    Command("/system", "[TEXT|off]", "set or show the system message", _system),
    Command("/set", "NAME VALUE", "temp, top-p, seed, max-tokens, overflow, think, …", _set, words=_set_words),
    Command("/show", "[WHAT]", "settings; last, the answer as Markdown; thinking; all", _show, words=lambda: SHOWABLE),
    Command("/stats", "", "what drafting has gained so far", _stats),
    Command("/pair", "[NAME]", "show the pair, or switch to another", _pair, words=_pair_names),
    Command("/draft", "on|off", "draft, or decode plainly", _draft, words=_either("on", "off")),
    Command("/k", "[N|auto]", "tokens drafted per round", _k, words=_either("auto", *map(str, range(9)))),
    shape_command("schema", "FILE|JSON", "every answer is JSON of this schema"),
    shape_command("regex", "RE", "every answer matches RE"),
    shape_command("grammar", "FILE", "every answer is of this grammar"),
    Command("/panel", "on|off", "the live panel", _panel, words=_either("on", "off")),
    Command("/save", "FILE", "write the conversation to FILE", _save, files=True),
    Command("/load", "FILE", "continue the conversation in FILE", _load, files=True),
    Command("/copy", "", "the last answer to the clipboard", _copy),
)
