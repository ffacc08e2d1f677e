"""`specdec tune`. Law: what it trains is kept only if it pays on documents it never saw; no gain is a normal end."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specdec_cli.cli.command import grouped, notify
from specdec_cli.cli.load import load_session, specify
from specdec_cli.cli.options import ModelOptions
from specdec_cli.cli.pairs import NAME, say
from specdec_cli.core.errors import Refused, UsageError
from specdec_cli.core.format import duration
from specdec_cli.core.kinds import DEFAULT_DRAFTER, MODEL, DrafterKind
from specdec_cli.core.request import DEFAULT_K
from specdec_cli.pairs.pair import DEMO, Pair
from specdec_cli.session.signals import Interrupt
from specdec_cli.system.machine import awake

if TYPE_CHECKING:
    from collections.abc import Callable

    from specdec_cli.session.session import LoadedPair, Session
    from specdec_cli.tune.documents import Document, Split
    from specdec_cli.tune.figures import Measured
    from specdec_cli.tune.trainee import Trainee

app = typer.Typer()
EXAMPLES = """specdec tune --text ~/src/project --predict-only
specdec tune -p qwen3-8b --text notes --text ~/src/project --write
specdec tune --chats --minutes 60
specdec tune -p qwen3-8b --what medusa --text ~/src/project"""


@app.command(epilog=EXAMPLES)
@grouped
def tune(
    *,
    pair: str | None = None,
    target: str | None = None,
    draft: str | None = None,
    adapter: str | None = None,
    text: list[Path] | None = None,
    chats: bool = False,
    what: str | None = None,
    minutes: int = 20,
    predict_only: bool = False,
    seed: int = 0,
    out: str | None = None,
    write: bool = False,
    offline: bool = False,
) -> None:
    """Train a draft on your text; keep it if it pays.

    A draft model, a head, or new Medusa heads learn what the target says after pieces of your text, and are judged on
    documents they never saw. Nothing leaves this machine; a training that was killed goes on by the same command.
    """
    from specdec_cli.tune import documents
    from specdec_cli.tune.predict import measure, pieces_of
    from specdec_cli.tune.trainee import trainee
    from specdec_cli.tune.training import PIECES, fitting_pieces
    from specdec_cli.ui import tune as screen
    from specdec_cli.ui.panel.status import StatusLine

    if bool(text) == chats:
        raise UsageError(
            "--text and --chats were both given" if chats else "there is no text to tune on", documents.SOME
        )
    tell = partial(notify, plain=False)
    texts = documents.read_texts(text or [], tell)
    models = ModelOptions(pair=pair, target=target, draft=draft, offline=offline)
    spec = replace(specify(models, raw=True, shown=True).adapted(adapter), drafter=DEFAULT_DRAFTER)
    spec = spec if spec.pair.draft else replace(spec, reason="")  # of what drafts without one
    name, k = _name(out, spec.pair, what), spec.pair.expected_k or DEFAULT_K
    reserve = 2 * (documents.PIECE + documents.SAID)
    session = load_session(spec, models, reserve_tokens=reserve, shown=True, remember_costs=False)
    learner = trainee(what, spec, session.pair, k, seed)
    lesson = PIECES if predict_only else fitting_pieces(session.pair, learner.learning_bytes, learner.piece_bytes)
    parts = documents.split(_documents(session, texts, chats, tell), seed)
    screen.print_split(sys.stdout, parts, seed)
    with awake(), StatusLine(sys.stderr, "judging") as line:
        first = learner.before()
        pieces, began = pieces_of(parts.judged, seed), time.monotonic()
        before = measure(first.session(first.slot()), pieces, k, lambda done, all: line.count(done, all, "as it is"))
    screen.print_prediction(sys.stdout, before)
    if before.nothing_to_gain:
        say(f"nothing to gain: {before.nothing_to_gain}")
    elif predict_only:
        say("training may gain: the same command without --predict-only trains")
    else:
        sys.stdout.flush()
        _train(learner, lesson, parts, before, minutes, time.monotonic() - began, name, write)


def _name(out: str | None, pair: Pair, what: str | None) -> str:
    """Raises: UsageError for what is no name, or the name of another pair."""
    from specdec_cli.pairs.catalog import registry
    from specdec_cli.pairs.tuned import folder_of, tuned_folder

    ending = "medusa" if what == "medusa" else "tuned"
    name = out or (pair.name if folder_of(pair) else f"{pair.name}-{ending}")
    if not NAME.fullmatch(name):
        raise UsageError(f"--out {name!r} is not a valid name for a pair", "use letters, digits, dots, - and _ only")
    known = registry().pairs.get(name)
    if name == DEMO or (known and folder_of(known) != tuned_folder() / name):
        raise UsageError(
            f"--out {name} names another pair, which would be lost", f"for example: --out {pair.name}-mine"
        )
    return name


def _documents(session: Session, texts: dict[str, str], chats: bool, tell: Callable[[str], None]) -> list[Document]:
    """As the target reads them."""
    from specdec_cli.tune.documents import Document
    from specdec_cli.tune.kept import chat_messages

    pair = session.pair
    ids = {name: pair.text_tokens(text) for name, text in texts.items()}
    if chats:
        ids = {name: pair.message_tokens(messages) for name, messages in chat_messages(tell).items()}
    return [Document(name, tuple(found)) for name, found in ids.items()]


def _train(
    learner: Trainee,
    lesson: int,
    parts: Split,
    before: Measured,
    minutes: int,
    took: float,
    name: str,
    write: bool,
) -> None:
    """Train, by lessons of so many pieces, judge, and keep or delete. To measure `before` took so many seconds."""
    from specdec_cli.pairs.files import resolve
    from specdec_cli.pairs.registry import add_pair, user_file
    from specdec_cli.pairs.tuned import fingerprints
    from specdec_cli.tune import kept
    from specdec_cli.tune.figures import judge
    from specdec_cli.tune.predict import general_prompts, measure, pieces_of
    from specdec_cli.tune.training import BEST, Training
    from specdec_cli.ui import tune as screen
    from specdec_cli.ui.panel.status import StatusLine

    spec, seed = learner.spec, learner.seed
    target, *drafts = resolve(replace(spec, pair=replace(spec.pair, draft_adapter=None))).checkpoints
    bound = fingerprints(target, drafts[0] if drafts and learner.what == "draft" else None)
    texts = [[one.name, one.ids] for one in (*parts.watched, *parts.trained)]
    identity = {"what": learner.what, "sha256": bound, "k": learner.k, "seed": seed, "minutes": minutes, "texts": texts}
    with awake(), kept.workplace(identity) as folder:
        begun = "going on with a training that was killed" if any(folder.iterdir()) else "training"
        # The documents once for each drafter, and the general prompts twice, which are fewer.
        later = duration(round(took * (1.5 + len(learner.others))))
        say(f"{begun}, for {minutes} min at most; Ctrl-C ends it and keeps the best so far")
        say(f"then about {later} of measuring again")
        if learner.cost:
            say(learner.cost)
        with Interrupt() as interrupt, screen.tune_progress(sys.stderr) as report:
            done = Training(
                learner.pair,
                learner.student(),
                folder,
                60 * minutes,
                seed,
                report,
                interrupt.requested,
                pieces=lesson,
                piece_bytes=learner.piece_bytes,
            ).run(parts)
        screen.print_curve(sys.stdout, done)
        say(f"{done.looks[-1].step} steps on {done.words} of the target's own tokens; {done.ended}")
        if not done.best:
            say(f"not kept: no step agreed better with the target on {len(parts.watched)} watched documents")
            return
        try:
            first, after = learner.before(), learner.after(folder / BEST)
        except Refused as error:  # a head that guesses hardly more than luck does
            say(f"not kept: {error.message}")
            return
        judged, general = pieces_of(parts.judged, seed), general_prompts(after)
        both: list[Measured] = []
        with StatusLine(sys.stderr, "judging again") as line:

            def measured(
                pair: LoadedPair, pieces: dict[str, list[list[int]]], words: str, drafter: DrafterKind = MODEL
            ) -> Measured:
                session = pair.session(pair.slot())
                return measure(session, pieces, learner.k, lambda done, all: line.count(done, all, words), drafter)

            tuned = measured(after, judged, "as tuned")
            with suppress(UsageError):  # the target may say nothing after any of them
                both = [measured(pair, general, "general prompts") for pair in (first, after)]
            beside = {kind.about: measured(learner.pair, judged, f"by {kind.about}", kind) for kind in learner.others}
        found = judge(before, tuned, learner.same_cost, learner.new)
        screen.print_judgement(sys.stdout, before, tuned, found, both)
        screen.print_beside(sys.stdout, beside)
        sys.stdout.flush()
        if found.refusal:
            say(f"not kept: {found.refusal}")
            return
        record = {"what": learner.what, "of": spec.pair.name, "sha256": bound, "documents": len(parts.trained)}
        record |= {"seed": seed, "k": learner.k, "speed": round(found.speed, 3)}
        place = kept.keep(folder / BEST, name, record)
    pair = learner.listed(place)
    if write:
        note = f"{spec.pair.name}, {learner.made} on {len(parts.trained)} documents"
        add_pair(user_file(), replace(pair, name=name, note=note))
        say(f"kept as the pair {name}: specdec run -p {name} 'your prompt'")
    else:
        say(f"kept: specdec pairs add {shlex.join([name, *pair.stored])}")
