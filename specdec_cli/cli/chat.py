"""`specdec chat`. Law: builds and hands over; a person gets the editor, a pipe and a dumb terminal plain lines."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec_cli.cli import options
from specdec_cli.cli.pipes import quietly
from specdec_cli.errors import UsageError
from specdec_cli.pairs.pair import DEMO
from specdec_cli.request import one_name, parse_bias, parse_k, sampling_flags
from specdec_cli.session.conversation import OVERFLOWS
from specdec_cli.session.interrupt import unwinding

if TYPE_CHECKING:
    from specdec_cli.chat.loop import Reader
    from specdec_cli.chat.settings import ChatSettings
    from specdec_cli.chat.transcript import Transcript
    from specdec_cli.pairs.resolve import Resolved

app = typer.Typer()
# What a chat grows to before anybody looks at the context again: for the check that it fits into memory.
ROOM_TOKENS = 4096

Save = Annotated[
    Path | None, typer.Option("--save", metavar="FILE", help="Write the conversation to FILE, every turn.")
]
Resume = Annotated[Path | None, typer.Option("--resume", metavar="FILE", help="Continue a saved conversation.")]
NoHistory = Annotated[
    bool,
    typer.Option(
        "--no-history", envvar="SPECDEC_NO_HISTORY", show_envvar=False, help="Remember no typed line after the chat."
    ),
]
OnOverflow = Annotated[
    str,
    typer.Option(
        "--on-overflow",
        metavar="NAME",
        callback=one_name("--on-overflow", OVERFLOWS),
        envvar="SPECDEC_ON_OVERFLOW",
        show_envvar=False,
        help="A conversation longer than the context: refuse, or drop-oldest.",
        rich_help_panel=options.ADVANCED,
    ),
]
EXAMPLES = """[dim]Examples:[/dim]\n
[dim]  specdec chat -s 'You answer in one sentence.' --save talk.jsonl[/dim]\n
[dim]  specdec chat --resume talk.jsonl[/dim]\n
[dim]  printf 'Hi\\nAnd then?\\n' | specdec chat -q[/dim]"""


@app.command(epilog=EXAMPLES)
@quietly
def chat(
    pair: options.PairName = None,
    target: options.Target = None,
    draft: options.DraftModel = None,
    k: options.KOrAuto = None,
    max_tokens: options.MaxTokens = 2048,
    stop: options.Stop = None,
    system: options.System = None,
    save: Save = None,
    resume: Resume = None,
    json: options.Json = False,
    panel: options.Panel = None,
    quiet: options.Quiet = False,
    plain: options.Plain = False,
    temp: options.Temp = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    no_history: NoHistory = False,
    rule: options.Rule = "auto",
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    logit_bias: options.LogitBias = None,
    drafter: options.DrafterName = None,
    target_revision: options.TargetRevision = None,
    draft_revision: options.DraftRevision = None,
    max_context: options.MaxContext = None,
    on_overflow: OnOverflow = "refuse",
    kv_bits: options.KvBits = None,
    trace: options.Trace = None,
    offline: options.Offline = False,
    force: options.Force = False,
) -> None:
    """Talk: many turns, both models' caches reused from turn to turn; /help lists what can be typed."""
    from specdec_cli.chat.settings import ChatSettings

    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    sampling = sampling_flags(temp, top_p, top_k, min_p, repetition_penalty, presence_penalty, frequency_penalty)
    settings = ChatSettings(
        k=parse_k(k),
        max_tokens=max_tokens,
        max_context=max_context,
        overflow=on_overflow,  # type: ignore[arg-type]  # the option allows no other
        rule=rule,
        seed=seed,
        stop=tuple(stop or ()),
        sampling=sampling,
        logit_bias=parse_bias(tuple(logit_bias or ())),
        panel=panel is not False,
    )
    transcript = _transcript(resume, save, system)
    resolved = _resolved(transcript, (pair, target, draft, target_revision, draft_revision), drafter)
    with ExitStack() as stack:
        code = _talk(
            stack, resolved, settings, transcript,
            drafter=drafter or resolved.drafter, saved_to=save or resume, history=not no_history,
            json=json, quiet=quiet, plain=plain, trace=trace, kv_bits=kv_bits, force=force,
        )  # fmt: skip
    if code:
        raise typer.Exit(code)


def _transcript(resume: Path | None, save: Path | None, system: str | None) -> Transcript:
    """A new conversation, or the one to be continued. Raises: UsageError."""
    from dataclasses import replace

    from specdec_cli.chat.transcript import Transcript, load
    from specdec_cli.session.conversation import Conversation

    if resume is None:
        if save is not None and save.exists() and save.stat().st_size:
            raise UsageError(f"--save {save} exists already", f"continue it: specdec chat --resume {save}")
        return Transcript(Conversation(system))
    found = load(resume)
    return replace(found, conversation=replace(found.conversation, system=system)) if system else found


def _resolved(transcript: Transcript, named: tuple[str | None, ...], drafter: str | None) -> Resolved:
    """The pair that was named, else the one that spoke in the transcript, else the default one."""
    from specdec_cli.pairs.resolve import resolve_pair

    pair, target, draft, target_revision, draft_revision = named
    if pair is None and target is None and draft is None and "target" in transcript.header:
        return _as_before(transcript.header)
    return resolve_pair(pair, target, draft, target_revision, draft_revision, here=drafter != "none")


def _as_before(header: Any) -> Resolved:
    from dataclasses import replace

    from specdec_cli.pairs.catalog import registry
    from specdec_cli.pairs.pair import Pair
    from specdec_cli.pairs.resolve import Resolved

    names = ("target", "draft", "target_revision", "draft_revision")
    models = {name: header.get(name) for name in names}
    listed = registry().pairs.get(str(header.get("pair")))
    pair = Pair(str(header.get("pair")), **models)
    if listed is not None and (listed.target, listed.draft) == (pair.target, pair.draft):
        pair = replace(pair, k=listed.k)
    return Resolved(pair, "the pair of the saved conversation")


def _talk(
    stack: ExitStack,
    resolved: Resolved,
    settings: ChatSettings,
    transcript: Transcript,
    *,
    drafter: str,
    saved_to: Path | None,
    history: bool,
    json: bool,
    quiet: bool,
    plain: bool,
    trace: Path | None,
    kv_bits: int | None,
    force: bool,
) -> int:
    from specdec_cli.chat.chat import Chat, Loaded
    from specdec_cli.chat.loop import run_chat
    from specdec_cli.format import count
    from specdec_cli.pairs.pair import Pair
    from specdec_cli.ui.chat.reports import toolbar
    from specdec_cli.ui.chat.screen import ChatScreen, opened_trace
    from specdec_cli.ui.display import loading

    shown = not (quiet or json or plain)
    room = None if force else min(settings.max_context or ROOM_TOKENS, ROOM_TOKENS)

    def open_pair(pair: Pair, drafter: str) -> Loaded:
        with loading(sys.stderr, pair.name, shown):
            from specdec_cli.session.cost_file import cost_file
            from specdec_cli.session.session import open_session

            session = open_session(pair, drafter, room_tokens=room, kv_bits=kv_bits, costs=cost_file())
            return Loaded(pair, session, drafter)

    screen = ChatScreen(sys.stdout, sys.stderr, json=json, quiet=quiet, plain=plain, trace=opened_trace(stack, trace))
    talks: list[Chat] = []
    reader = _reader(lambda width: toolbar(talks[0].toolbar, width), history, editor=not (json or plain))
    talk = Chat(
        open_pair(resolved.pair, drafter), open_pair, screen, settings, transcript, saved_to, no_echo=reader.no_echo
    )
    talks.append(talk)
    turns = len(transcript.conversation.turns)
    told = f"{talk.loaded.summary} · /help" + (f" · {count(turns, 'turn')} continued" if turns else "")
    screen.greet(told, demo=resolved.pair.name == DEMO)
    with unwinding():
        return run_chat(talk, reader, lenient=sys.stdin.isatty())


def _reader(toolbar: Any, history: bool, editor: bool) -> Reader:
    """The editor where a person can use it."""
    from specdec_cli.chat.loop import LineReader
    from specdec_cli.ui.terminal import can_draw, is_terminal

    person = sys.stdin is not None and is_terminal(sys.stdin)
    out = sys.stdout if is_terminal(sys.stdout) else sys.stderr
    if person and editor and can_draw(out):
        from specdec_cli.chat.completion import suggestions
        from specdec_cli.chat.loop import is_open
        from specdec_cli.ui.chat.line_editor import LineEditor, open_history

        return LineEditor(open_history(history), toolbar, out, complete=suggestions, is_open=is_open)
    return LineReader(sys.stdin.buffer, sys.stderr if person else None)
