"""`specdec tune`. Law: a draft is kept only if it pays on documents it never saw; nothing to gain is a normal end."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specdec_cli.cli.command import grouped, notify
from specdec_cli.cli.load import load_session, specify
from specdec_cli.cli.options import ModelOptions
from specdec_cli.cli.pairs import NAME, say
from specdec_cli.core.errors import Refused, UsageError
from specdec_cli.core.kinds import MODEL
from specdec_cli.core.request import DEFAULT_K
from specdec_cli.pairs.pair import DEMO, Pair, PairSpec
from specdec_cli.session.signals import Interrupt
from specdec_cli.system.machine import awake

if TYPE_CHECKING:
    from specdec_cli.session.session import Session
    from specdec_cli.tune.documents import Document, Split
    from specdec_cli.tune.figures import Measured

app = typer.Typer()
EXAMPLES = """specdec tune --text ~/src/project --predict-only
specdec tune -p qwen3-8b --text notes --text ~/src/project --write
specdec tune --chats --minutes 60"""


@app.command(epilog=EXAMPLES)
@grouped
def tune(
    *,
    pair: str | None = None,
    target: str | None = None,
    draft: str | None = None,
    text: list[Path] | None = None,
    chats: bool = False,
    minutes: int = 20,
    predict_only: bool = False,
    seed: int = 0,
    out: str | None = None,
    write: bool = False,
    offline: bool = False,
) -> None:
    """Train the pair's draft on your text; keep it if it pays.

    It learns what the target says after pieces of your text, and is judged on documents it never saw. Nothing leaves
    this machine.
    """
    from specdec_cli.tune import documents
    from specdec_cli.tune.predict import measure
    from specdec_cli.ui import display
    from specdec_cli.ui import tune as screen

    if bool(text) == chats:
        raise UsageError(
            "--text and --chats were both given" if chats else "there is no text to tune on", documents.MORE
        )
    texts = documents.read_texts(text or [], lambda line: notify(line, plain=False))
    models = ModelOptions(pair=pair, target=target, draft=draft, offline=offline)
    spec = replace(specify(models, raw=True, shown=True), drafter=MODEL.name)
    name, k = _name(out, spec.pair), spec.pair.expected_k or DEFAULT_K
    if spec.pair.draft is None:
        raise UsageError(f"{spec.pair.name} has no draft to train", f"name one: --target {spec.pair.target} --draft ID")
    reserve = 2 * (documents.PIECE + documents.SAID)
    session = load_session(spec, models, reserve_tokens=reserve, shown=True, remember_costs=False)
    if session.pair.draft_kind != MODEL.name:
        what = f"{session.pair.names[1]} is a head ({session.pair.draft_kind}), and only a draft model can be trained"
        raise Refused(what, f"name a draft model: --target {spec.pair.target} --draft ID")
    parts = documents.split(_documents(session, texts, chats), seed)
    screen.print_split(sys.stdout, parts, seed)
    with awake(), display.counting(sys.stderr) as count:
        before = measure(session, parts.judged, k, seed, lambda done, all: count(done, all, "documents measured"))
    screen.print_prediction(sys.stdout, before)
    if before.nothing_to_gain:
        say(f"nothing to gain: {before.nothing_to_gain}")
    elif predict_only:
        say("training may gain: the same command without --predict-only trains")
    else:
        sys.stdout.flush()
        _train(session, spec, parts, before, seed, minutes, name, write)


def _name(out: str | None, pair: Pair) -> str:
    """Raises: UsageError for what is no name, or the name of another pair."""
    from specdec_cli.pairs.catalog import registry
    from specdec_cli.tune.kept import tuned_folder

    name = out or f"{pair.name}-tuned"
    if not NAME.fullmatch(name):
        raise UsageError(f"--out {name!r} is not a valid name for a pair", "use letters, digits, dots, - and _ only")
    known = registry().pairs.get(name)
    if name == DEMO or (known and known.draft_adapter != str(tuned_folder() / name)):
        raise UsageError(
            f"--out {name} names another pair, which would be lost", f"for example: --out {pair.name}-mine"
        )
    return name


def _documents(session: Session, texts: dict[str, str], chats: bool) -> list[Document]:
    """As the target reads them."""
    from specdec_cli.tune.documents import Document
    from specdec_cli.tune.kept import chat_messages

    pair = session.pair
    ids = {name: pair.text_tokens(text) for name, text in texts.items()}
    if chats:
        ids = {name: pair.message_tokens(messages) for name, messages in chat_messages().items()}
    return [Document(name, tuple(found)) for name, found in ids.items()]


def _train(
    session: Session, spec: PairSpec, parts: Split, before: Measured, seed: int, minutes: int, name: str, write: bool
) -> None:
    """Train, judge, and keep or delete."""
    from specdec_cli.engine.training import Student
    from specdec_cli.pairs.files import resolve
    from specdec_cli.pairs.registry import add_pair, user_file
    from specdec_cli.session.load import under_adapter
    from specdec_cli.tune import kept
    from specdec_cli.tune.figures import judge
    from specdec_cli.tune.predict import measure
    from specdec_cli.tune.training import Training, require_memory
    from specdec_cli.ui import display
    from specdec_cli.ui import tune as screen

    require_memory(session.pair)
    base = replace(spec, pair=replace(spec.pair, draft_adapter=None))
    with awake(), kept.workplace() as folder:
        say(f"training for {minutes} min at most; Ctrl-C ends it and keeps the best so far")
        with Interrupt() as interrupt, screen.tune_progress(sys.stderr) as report:
            student = Student(resolve(base).checkpoints[1], seed)
            training = Training(session.pair, student, folder, 60 * minutes, seed, report, interrupt.requested)
            done = training.run(parts)
        say(f"{done.steps} steps on {done.words} of the target's own words; {done.ended}")
        if not done.best:
            say(f"not kept: no step agreed better with the target on {len(parts.watched)} watched documents")
            return
        tuned = under_adapter(session.pair, str(folder))
        with display.counting(sys.stderr) as count:
            again = tuned.session(tuned.first)
            after = measure(again, parts.judged, before.k, seed, lambda done, all: count(done, all, "measured again"))
        found = judge(before, after)
        screen.print_judgement(sys.stdout, before, after, found)
        sys.stdout.flush()
        if found.refusal:
            say(f"not kept: {found.refusal}")
            return
        place = kept.keep(folder, name)
    if write:
        note = f"{spec.pair.name}, its draft tuned on {len(parts.trained)} documents"
        add_pair(user_file(), replace(spec.pair, name=name, draft_adapter=str(place), note=note))
        say(f"kept as the pair {name}: specdec run -p {name} 'your prompt'")
    else:
        options = f"-p {spec.pair.name}" if spec.pair.source != "command line" else " ".join(spec.pair.options)
        say(f"kept: specdec run {options} --draft-adapter {place} 'your prompt'")
