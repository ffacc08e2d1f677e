"""What can be typed after a slash. Law: a mistyped command is an error that names the nearest, never a message."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdec_cli.chat.chat import Talk
from specdec_cli.chat.editor import compose
from specdec_cli.chat.screen import Markdown, Notice, Quote, Rows
from specdec_cli.chat.settings import NAMES, WORDS, on_or_off, parse_k
from specdec_cli.chat.transcript import Transcript, load
from specdec_cli.errors import UsageError
from specdec_cli.format import count, percent, speed
from specdec_cli.hub import locate
from specdec_cli.pairs.catalog import registry
from specdec_cli.request import flag, one_name
from specdec_cli.session.conversation import Conversation

SHOWABLE = ("settings", "last", "thinking", "all")


class Leave(Exception):
    """The chat is over."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `act` gets what follows its name and returns what the editor then holds; `words` may follow it."""

    name: str
    usage: str
    help: str
    act: Callable[[Talk, str], str | None]
    aliases: tuple[str, ...] = ()
    words: Callable[[], Iterable[str]] = tuple
    files: bool = False


def run_command(talk: Talk, line: str) -> str:
    """Carries out `/name argument`; returns what the editor then holds. Raises: SpecdecError, Leave."""
    name, *rest = line.strip().split(maxsplit=1)
    return find(name).act(talk, "".join(rest)) or ""


def find(name: str) -> Command:
    """The command of that name or alias. Raises: UsageError with the nearest one."""
    known = {spelling: command for command in COMMANDS for spelling in (command.name, *command.aliases)}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, 1, 0.5)
    nearest = f"the nearest: {close[0]}" if close else "/help lists all"
    raise UsageError(f"{name} is no command", f"{nearest}; a message that begins with / needs a space before it")


def _help(talk: Talk, argument: str) -> None:
    rows = [(" ".join([command.name, *command.usage.split()]), command.help) for command in COMMANDS]
    keys = [
        ("Enter", 'sends; in an open """ it begins a new line'),
        ("Alt-Enter", "a new line; so does Esc Enter"),
        ("Ctrl-C", "stops the reply and keeps what was said; clears the line; twice within a second leaves"),
        ("Ctrl-D", "leaves; Ctrl-X Ctrl-E opens $EDITOR on the line"),
    ]
    talk.screen.show(Rows((*rows, ("", ""), *keys)))


def _leave(talk: Talk, argument: str) -> None:
    raise Leave


def _clear(talk: Talk, argument: str) -> None:
    path = talk.saved_to and _free_beside(talk.saved_to)
    talk.adopt(Transcript(Conversation(talk.conversation.system)), path)
    stays = "; the system message stays" if talk.conversation.system else ""
    talk.screen.show(Notice(f"a new conversation{stays}" + (f", saved to {path}" if path else "")))


def _free_beside(path: Path) -> Path:
    """chat.jsonl -> chat-2.jsonl, or the first such name that is free."""
    number = 2
    while (found := path.with_name(f"{path.stem}-{number}{path.suffix}")).exists():
        number += 1
    return found


def _retry(talk: Talk, argument: str) -> str:
    return talk.retry()


def _undo(talk: Talk, argument: str) -> str:
    message = talk.undo()
    talk.screen.show(Notice("the last turn was taken back"))
    return message


def _system(talk: Talk, argument: str) -> None:
    conversation = talk.conversation
    if argument:
        talk.change(replace(conversation, system=None if argument == "off" else argument))
    now = talk.conversation.system
    talk.screen.show(Notice(f"system: {now}" if now else "no system message; /system TEXT sets one"))


def _set(talk: Talk, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if not name or not value.strip():
        raise UsageError(
            f"/set {argument} lacks a {'value' if name else 'name and a value'}", f"names: {', '.join(NAMES)}"
        )
    talk.settings = talk.settings.with_value(name, value.strip())
    talk.screen.show(Notice(f"{name} {value.strip()}"))


def _k(talk: Talk, argument: str) -> None:
    talk.settings = replace(talk.settings, k=parse_k(argument or "auto"))
    talk.screen.show(Notice(f"K {talk.settings.k}"))


def _draft(talk: Talk, argument: str) -> None:
    drafts = on_or_off("/draft", argument)
    loaded = talk.loaded
    if drafts and loaded.drafter in ("model", "none") and loaded.session.names[1] is None:
        if loaded.pair.draft:
            talk.switch(loaded.pair, "model")
        else:
            talk.loaded = replace(loaded, drafter="ngram")
    talk.settings = replace(talk.settings, drafts=drafts)
    who = {"ngram": "the conversation's own text drafts (ngram)"}.get(talk.loaded.drafter, "the draft is on")
    talk.screen.show(Notice(who if drafts else "the draft is off: plain decoding"))


def _panel(talk: Talk, argument: str) -> None:
    talk.settings = replace(talk.settings, panel=on_or_off("/panel", argument))


def _pair(talk: Talk, argument: str) -> None:
    if argument:
        pair = registry().find(argument)
        for name, revision in pair.models:
            locate(name, revision)  # before the present pair is let go
        talk.switch(pair, talk.loaded.drafter)
    talk.screen.show(Notice(speaking(talk)))


def speaking(talk: Talk) -> str:
    """Which pair speaks."""
    pair, (target, draft) = talk.loaded.pair, talk.loaded.session.names
    return f"{pair.name}: target {target}, " + (f"draft {draft}" if draft else "no draft")


def _show(talk: Talk, argument: str) -> None:
    what = one_name("/show", SHOWABLE)(argument or SHOWABLE[0])
    answer = None if what in ("settings", "all") else talk.last_answer("/show")
    if answer is not None:
        talk.screen.show(Markdown(answer.text) if what == "last" else Quote(answer.thinking or "it did not think"))
    elif what == "settings":
        talk.screen.show(Rows(tuple(_settings_rows(talk))))
    else:
        for turn in talk.conversation.turns:
            talk.screen.show(Quote(f"> {turn.user}\n"))
            talk.screen.show(Markdown(turn.answer.text, gap=True))


def _settings_rows(talk: Talk) -> list[tuple[str, str]]:
    settings, request, limit = talk.settings, talk.request(), talk.context_limit
    off = {"seed": settings.seed, "stop": " ".join(settings.stop) or None}
    return [
        ("pair", speaking(talk)),
        ("k", f"{request.k}, drafter {request.drafter}"),
        *((flag(name), f"{value:g}") for name, value in talk.loaded.session.effective(request).items()),
        *((name, "off" if value is None else str(value)) for name, value in off.items()),
        ("rule", settings.rule),
        ("max-tokens", str(settings.max_tokens)),
        ("context", f"{talk.context_tokens} of {'any number of' if limit is None else limit} tokens"),
        ("overflow", settings.overflow),
        ("think", settings.think),
        ("system", talk.conversation.system or "none"),
        ("saved to", str(talk.saved_to or "nothing: /save FILE, or --save FILE for every turn")),
    ]


def _stats(talk: Talk, argument: str) -> None:
    stats = talk.stats
    figures = stats.rounds.to_dict() | {
        "replies": stats.replies,
        "prompt_tokens": stats.prompt_tokens,
        "cached_tokens": stats.cached_tokens,
        "tokens_per_second": stats.tokens_per_second,
    }
    talk.screen.show(Rows(stats_rows(figures)))


def stats_rows(figures: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The rows of /stats."""
    if not figures["replies"]:
        return (("replies", "none yet"),)
    tokens, passes = figures["emitted_tokens"], figures["target_passes"]
    drafted, judged = percent(figures["draft_acceptance_rate"]), percent(figures["judged_acceptance_rate"])
    read = figures["prompt_tokens"] - figures["cached_tokens"]
    rows = [
        ("replies", str(figures["replies"])),
        ("tokens", f"{tokens} in {count(passes, 'target pass')}, {figures['mean_acceptance_length']:.2f} a pass"),
        ("accepted", f"{drafted} of drafted, {judged} of judged" if figures["draft_n"] else "nothing drafted"),
        ("pace", f"{speed(figures['tokens_per_second'])} after the first token of each reply"),
        ("prompts", f"{count(figures['prompt_tokens'], 'token')}, {read} of them read, the others still in the cache"),
    ]
    if figures["draft_n"]:
        positions = " ".join(
            f"{place}: {percent(rate)}" for place, rate in enumerate(figures["acceptance_per_position"], 1)
        )
        rows.insert(3, ("by position", positions))
    return tuple(rows)


def _save(talk: Talk, argument: str) -> None:
    path = _path(argument, "/save")
    talk.save(path)
    talk.screen.show(Notice(f"{_turns(talk)} saved to {path}"))


def _load(talk: Talk, argument: str) -> None:
    path = _path(argument, "/load")
    talk.adopt(load(path), path)
    kept = ", and saved there from now on" if talk.saved_to else ""
    talk.screen.show(Notice(f"{_turns(talk)} loaded from {path}{kept}"))


def _turns(talk: Talk) -> str:
    return count(len(talk.conversation.turns), "turn")


def _path(argument: str, command: str) -> Path:
    if not argument:
        raise UsageError(f"{command} lacks a file name", f"for example: {command} chat.jsonl")
    return Path(argument).expanduser()


def _copy(talk: Talk, argument: str) -> None:
    talk.screen.show(Notice(talk.screen.copy(talk.last_answer("/copy").text)))


def _edit(talk: Talk, argument: str) -> str:
    message = compose(argument)
    if not message.strip():
        talk.screen.show(Notice("nothing was written, so nothing was sent"))
        return ""
    talk.screen.show(Quote(message))
    return talk.ask(message)


def _pair_names() -> Iterable[str]:
    return registry().pairs


def _set_words() -> Iterable[str]:
    return [*NAMES, *(f"{name} {word}" for name, words in WORDS.items() for word in words)]


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
    Command("/stats", "", "what drafting brought so far", _stats),
    Command("/pair", "[NAME]", "which pair speaks, or another one", _pair, words=_pair_names),
    Command("/draft", "on|off", "draft, or decode plainly", _draft, words=lambda: ("on", "off")),
    Command("/k", "N|auto", "tokens drafted per round", _k, words=lambda: ("auto", *map(str, range(9)))),
    Command("/panel", "on|off", "the live panel", _panel, words=lambda: ("on", "off")),
    Command("/save", "FILE", "write the conversation to FILE", _save, files=True),
    Command("/load", "FILE", "continue the conversation in FILE", _load, files=True),
    Command("/copy", "", "the last answer to the clipboard", _copy),
)
