"""What can be typed after a slash: one table of commands, and its completion.

A mistyped command is an error that names the nearest one, never a message; a message is never completed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_cli.apps.chat.chat import Chat
from specdec_cli.apps.chat.settings import NAMES, THOUGHTS, WORDS
from specdec_cli.core.errors import UsageError
from specdec_cli.core.format import count, percent, speed
from specdec_cli.core.kinds import DEFAULT_DRAFTER, LOOKUP, kind_of
from specdec_cli.core.readfile import expanded
from specdec_cli.core.request import Constraint, ShapeKind, flag, nearest, one_name
from specdec_cli.core.stats import ChatStats
from specdec_cli.core.template import THINK_WORDS, TemplateValues
from specdec_cli.models.grammar import read_constraint, require_possible, require_uncut
from specdec_cli.pairs.catalog import registry
from specdec_cli.pairs.choose import choose
from specdec_cli.pairs.files import find
from specdec_cli.session.conversation import Conversation
from specdec_cli.session.transcript import Transcript, load

SHOWABLE = ("settings", "last", "thinking", "all")
ON_OFF = ("on", "off")
HOW = (*THINK_WORDS, *THOUGHTS)
ALIASES = {"/?": "/help", "/bye": "/exit", "/quit": "/exit"}
KEYS = (
    ("Enter", 'sends; in an open """ it begins a new line'),
    ("Alt-Enter", "a new line; so does Esc Enter"),
    ("Ctrl-C", "stops the reply and keeps what was said; clears the line; twice within a second leaves"),
    ("Ctrl-D", "leaves; Ctrl-X Ctrl-E opens $EDITOR on the line"),
)


class Leave(Exception):
    """The chat is over."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `act` takes its argument and returns the editor's next text; `words` completes the argument."""

    name: str
    usage: str
    help: str
    act: Callable[[Chat, str], str | None]
    words: Callable[[], Iterable[str]] = tuple
    files: bool = False


def run_command(chat: Chat, line: str) -> str:
    """Runs `/name argument` and returns the editor's next text. Raises: SpecdecError, Leave."""
    name, *rest = line.strip().split(maxsplit=1)
    if (found := _known(name)) is None:
        close = nearest(name, [command.name for command in COMMANDS])
        hint = f"the nearest: {close}" if close else "/help lists all"
        raise UsageError(f"there is no command {name}", f"{hint}; to send it as a message, put a space before the /")
    return found.act(chat, "".join(rest)) or ""


def _known(name: str) -> Command | None:
    return next((command for command in COMMANDS if command.name == ALIASES.get(name, name)), None)


Suggestion = tuple[str, int, str]
"""A word that may replace the last so many characters typed, and its description."""


def suggestions(text: str) -> list[Suggestion]:
    """The completions of a command typed so far."""
    if not text.startswith("/") or "\n" in text:
        return []
    name, space, argument = text.partition(" ")
    if not space:
        return [(each.name, len(name), each.help) for each in COMMANDS if each.name.startswith(name)]
    if (command := _known(name)) is None:
        return []
    words = [*command.words(), *(_files(argument) if command.files else [])]
    return [(word, len(argument), "") for word in words if word.startswith(argument)]


def _files(begun: str) -> list[str]:
    """Files, and folders with a / at the end, whose path begins so."""
    folder, slash, start = begun.rpartition("/")
    try:
        paths = sorted(expanded(folder + slash).iterdir())
    except OSError:
        return []
    shown = [path for path in paths if start.startswith(".") or not path.name.startswith(".")]
    return [folder + slash + path.name + "/" * path.is_dir() for path in shown]


def _help(chat: Chat, argument: str) -> None:
    rows = [(" ".join([command.name, *command.usage.split()]), command.help) for command in COMMANDS]
    chat.screen.rows((*rows, ("", ""), *KEYS))


def _leave(chat: Chat, argument: str) -> None:
    raise Leave


def _clear(chat: Chat, argument: str) -> None:
    path = chat.saved_to
    if path is not None:  # chat.jsonl -> chat-2.jsonl, or the first such name that is free
        names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
        path = next(name for name in names if not name.exists())
    chat.adopt(Transcript(Conversation(chat.conversation.system)), path)
    stays = "; the system message stays" if chat.conversation.system else ""
    chat.screen.notice(f"a new conversation{stays}" + (f", saved to {path}" if path else ""))


def _undo(chat: Chat, argument: str) -> str:
    message = chat.undo()
    chat.screen.notice("the last turn was undone")
    return message


def _system(chat: Chat, argument: str) -> None:
    if argument:
        chat.change(replace(chat.conversation, system=None if argument == "off" else argument))
    now = chat.conversation.system
    chat.screen.notice(f"system: {now}" if now else "no system message; /system TEXT sets one")


def _set(chat: Chat, argument: str) -> None:
    name, _, value = argument.partition(" ")
    value = value.strip()
    if not name or not value:
        raise UsageError(f"/set {name}".rstrip() + " needs a name and a value", f"names: {', '.join(NAMES)}")
    settings = chat.settings.with_value(name, value)
    if settings.request.constraint:
        require_uncut(settings.request.constraint, settings.request.stop)
    chat.settings = settings
    chat.screen.notice(f"{name} {value}")


def _k(chat: Chat, argument: str) -> None:
    if argument:
        chat.settings = chat.settings.with_value("k", argument)
    chat.screen.notice(f"K {chat.request().k}")


def _draft(chat: Chat, argument: str) -> None:
    drafts, spec = one_name("/draft", ON_OFF)(argument) == "on", chat.loaded.spec
    kind, own = kind_of(spec.drafter), spec.pair.drafter
    if drafts and (kind.needs_draft or not kind.drafts) and chat.loaded.session.pair.names[1] is None:
        drafted = replace(spec, drafter=own if own and kind_of(own).drafts else DEFAULT_DRAFTER)
        if find(drafted).draft:
            chat.switch(drafted)
        else:
            chat.loaded = replace(chat.loaded, spec=replace(spec, drafter=LOOKUP.name))
        chat.settings = replace(chat.settings, drafter=None)
    chat.settings = replace(chat.settings, drafts=drafts)
    if drafts and not chat.settings.request.k:
        chat.settings = replace(chat.settings, asked_k=chat.settings.asked_k or None).asking(k=spec.pair.k or "auto")
    by_text = not kind_of(chat.loaded.drafter).by_network
    who = f"the conversation's own text drafts ({chat.loaded.drafter})" if by_text else "the draft is on"
    chat.screen.notice(f"{who}: K {chat.request().k}" if drafts else "the draft is off: plain decoding")


def _panel(chat: Chat, argument: str) -> None:
    chat.settings = replace(chat.settings, panel=one_name("/panel", ON_OFF)(argument) == "on")


def _pair(chat: Chat, argument: str) -> None:
    if argument:
        spec = choose(argument, None, None, here=True).drafted_by(chat.settings.drafter)
        find(spec)  # what is missing is said before the present pair is unloaded
        chat.switch(spec)
    chat.screen.notice(chat.loaded.summary)


def _shape(kind: ShapeKind, usage: str, help: str) -> Command:
    """/schema, /regex or /grammar: sets the shape, takes it off, or shows it without an argument.

    What no answer could keep is refused when it is typed, and the old shape stays.
    """

    def act(chat: Chat, argument: str) -> None:
        if argument:
            shape: Constraint | None = None
            if argument != "off":
                shape = read_constraint(kind, argument, f"/{kind}")
                require_possible(shape, chat.settings.request.stop)
            chat.settings = chat.settings.asking(constraint=shape)
        now = chat.settings.request.constraint
        shown = f"every answer matches this {now.noun}: {' '.join(now.text.split())}" if now else ""
        chat.screen.notice(shown or f"no constraint is set; /{kind} {usage} sets one")

    return Command(f"/{kind}", f"[{usage}|off]", help, act, words=lambda: ("off",), files=kind != "regex")


def _show(chat: Chat, argument: str) -> None:
    what = one_name("/show", SHOWABLE)(argument or SHOWABLE[0])
    if what == "settings":
        chat.screen.rows(settings_rows(chat))
    elif what == "all":
        for turn in chat.conversation.turns:
            chat.screen.quote(f"> {turn.user}\n\n{turn.answer.text}\n")
    elif what == "last":
        chat.screen.markdown(chat.last_turn("/show").answer.text)
    else:
        chat.screen.quote(chat.last_turn("/show").answer.thinking or "the last answer has no thinking")


def settings_rows(chat: Chat) -> list[tuple[str, str]]:
    """The settings in effect."""
    settings, request, limit = chat.settings, chat.request(), chat.context_limit
    shape, kept = request.constraint, "the kept chats (specdec chats)" if chat.keeper else "nothing"
    return [
        ("pair", chat.loaded.summary),
        ("k", f"{request.k}, drafter {request.drafter}"),
        *((flag(name), f"{value:g}") for name, value in chat.loaded.session.pair.effective(request).items()),
        ("seed", "off" if request.seed is None else str(request.seed)),
        ("stop", " ".join(request.stop) or "off"),
        ("rule", request.rule),
        *([("constraint", f"{shape.kind} {' '.join(shape.text.split())}")] if shape else []),
        ("max-tokens", str(request.max_tokens)),
        ("context", f"{chat.context_tokens} of {'any number of' if limit is None else limit} tokens"),
        ("overflow", settings.overflow),
        ("thinking", settings.thoughts),
        ("system", chat.conversation.system or "none"),
        ("saved to", str(chat.saved_to or f"{kept}: /save FILE, or --save FILE for every turn")),
    ]


def stats_rows(stats: ChatStats) -> list[tuple[str, str]]:
    """What drafting has gained in the replies so far."""
    if not stats.replies:
        return [("replies", "none yet")]
    rounds = stats.rounds.to_dict()
    tokens, passes, rates = rounds["emitted_tokens"], rounds["target_passes"], rounds["acceptance_per_position"]
    drafted = rounds["draft_n"]
    positions = " ".join(f"{position}: {percent(rate)}" for position, rate in enumerate(rates, 1))
    return [
        ("replies", str(stats.replies)),
        ("tokens", f"{tokens} in {count(passes, 'target pass')}, {rounds['mean_acceptance_length']:.2f} a pass"),
        ("accepted", f"{percent(rounds['draft_acceptance_rate'])} of drafted" if drafted else "nothing drafted"),
        *([("position", positions)] if drafted else []),
        ("speed", f"{speed(stats.tokens_per_second)} after the first round of each reply"),
        ("prompts", f"{count(stats.prompt_tokens, 'token')}, {stats.cached_tokens} from cache"),
    ]


def _save(chat: Chat, argument: str) -> None:
    path = _path(argument, "/save")
    chat.save(path)
    chat.screen.notice(f"{count(len(chat.conversation.turns), 'turn')} saved to {path}")


def _load(chat: Chat, argument: str) -> None:
    path = _path(argument, "/load")
    chat.adopt(found := load(path), path)
    if found.left_out:
        chat.screen.notice(found.left_out)
    kept = ", and saved there from now on" if chat.saved_to else ""
    chat.screen.notice(f"{count(len(chat.conversation.turns), 'turn')} loaded from {path}{kept}")


def _path(argument: str, command: str) -> Path:
    if not argument:
        raise UsageError(f"{command} needs a file name", f"for example: {command} chat.jsonl")
    return expanded(argument)


def _copy(chat: Chat, argument: str) -> None:
    chat.screen.notice(chat.screen.copy(chat.last_turn("/copy").answer.text))


def _think(chat: Chat, argument: str) -> None:
    word = one_name("/think", HOW)(argument)
    if word in THOUGHTS:
        chat.settings = replace(chat.settings, thoughts=word)
        return
    values = TemplateValues.of_word(word)
    chat.settings = replace(chat.settings, template=values)
    if values.unread_by(chat.loaded.session.pair.tokenizer.template_names):
        chat.screen.notice(f"the template of {chat.loaded.session.pair.names[0]} reads nothing of it")


def _set_words() -> Iterable[str]:
    return [*NAMES, *(f"{name} {word}" for name, words in WORDS.items() for word in words)]


COMMANDS = (
    Command("/help", "", "this list", _help),
    Command("/exit", "", "leave; also /bye, /quit and Ctrl-D", _leave),
    Command("/clear", "", "a new conversation; the system message stays", _clear),
    Command("/retry", "", "another answer to the last message", lambda chat, argument: chat.retry()),
    Command("/undo", "", "take the last turn back", _undo),
    Command("/system", "[TEXT|off]", "set or show the system message", _system),
    Command("/set", "NAME VALUE", "temp, top-p, seed, max-tokens, overflow, …", _set, words=_set_words),
    Command("/think", "|".join(HOW), "how hard to think, and whether that is shown", _think, words=lambda: HOW),
    Command("/show", "[WHAT]", "settings; last, the answer as Markdown; thinking; all", _show, words=lambda: SHOWABLE),
    Command("/stats", "", "what drafting has gained", lambda chat, argument: chat.screen.rows(stats_rows(chat.stats))),
    Command("/pair", "[NAME]", "show the pair, or switch to another", _pair, words=lambda: registry().pairs),
    Command("/draft", "on|off", "draft, or decode plainly", _draft, words=lambda: ON_OFF),
    Command("/k", "[N|auto]", "tokens drafted per round", _k, words=lambda: ("auto", *map(str, range(9)))),
    _shape("schema", "FILE|JSON", "every answer is JSON of this schema"),
    _shape("regex", "RE", "every answer matches RE"),
    _shape("grammar", "FILE", "every answer is of this grammar"),
    Command("/panel", "on|off", "the live panel", _panel, words=lambda: ON_OFF),
    Command("/save", "FILE", "write the conversation to FILE", _save, files=True),
    Command("/load", "FILE", "continue the conversation in FILE", _load, files=True),
    Command("/copy", "", "the last answer to the clipboard", _copy),
)
