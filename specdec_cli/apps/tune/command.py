"""`specdec tune`: what it says and asks. No gain is a normal end."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specdec_cli.command.command import grouped, notify, say
from specdec_cli.command.load import load_session, specify
from specdec_cli.command.options import ModelOptions
from specdec_cli.core.errors import UsageError
from specdec_cli.core.format import duration
from specdec_cli.core.kinds import DEFAULT_DRAFTER
from specdec_cli.core.request import DEFAULT_K
from specdec_cli.pairs.pair import DEMO, NAME, Pair
from specdec_cli.system.machine import awake

if TYPE_CHECKING:
    from collections.abc import Callable

    from specdec_cli.apps.tune.documents import Document
    from specdec_cli.apps.tune.figures import Trained
    from specdec_cli.apps.tune.tuning import Tuning
    from specdec_cli.session.session import Session

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
    from specdec_cli.apps.tune import documents, kept, screen
    from specdec_cli.apps.tune.trainee import trainee
    from specdec_cli.apps.tune.training import PIECES, fitting_pieces
    from specdec_cli.apps.tune.tuning import Tuning, identity
    from specdec_cli.terminal.panel.status import StatusLine

    began = time.monotonic()
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
    lesson = PIECES if predict_only else fitting_pieces(spec, session.pair, learner.learning_bytes, learner.piece_bytes)
    parts = documents.split(_documents(session, texts, chats, tell), seed)
    screen.print_split(sys.stdout, parts, seed)
    sys.stdout.flush()
    with awake(), kept.workplace(identity(learner, parts, minutes, predict_only), began) as work:
        with StatusLine(sys.stderr, "timing a few words"):
            tuning = Tuning(learner, parts, 60.0 * minutes, work, lesson, predict_only)
        begun = "going on with a training that was killed: " * work.going_on
        many = tuning.plan.documents
        fewer = f"; in this time {many} documents can be judged" * (many < len(parts.judged))
        say(f"{begun}about {duration(round(tuning.left))} to the verdict{fewer}")
        with screen.tune_progress(sys.stderr, "measuring") as report:
            before = tuning.measure(report)
        screen.print_prediction(sys.stdout, before)
        sys.stdout.flush()
        if before.nothing_to_gain:
            say(f"nothing to gain: {before.nothing_to_gain}")
        elif predict_only:
            say("training may gain: the same command without --predict-only trains")
        else:
            _train(tuning, minutes, name, write)


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
    from specdec_cli.apps.tune.documents import Document
    from specdec_cli.apps.tune.kept import chat_messages

    pair = session.pair
    ids = {name: pair.text_tokens(text) for name, text in texts.items()}
    if chats:
        ids = {name: pair.message_tokens(messages) for name, messages in chat_messages(tell).items()}
    return [Document(name, tuple(found)) for name, found in ids.items()]


def _train(tuning: Tuning, minutes: int, name: str, write: bool) -> None:
    """Train, show what came of it, and list what pays."""
    from specdec_cli.apps.tune import screen
    from specdec_cli.pairs.registry import add_pair, user_file

    def on_trained(done: Trained) -> None:
        screen.print_curve(sys.stdout, done)
        say(f"{done.looks[-1].step} steps on {done.words} of the target's own tokens; {done.ended}")

    learner = tuning.learner
    say(f"training, for {minutes} min at most; Ctrl-C ends it and keeps the best so far", *filter(None, [learner.cost]))
    verdict = tuning.train(name, partial(screen.tune_progress, sys.stderr), on_trained)
    if verdict.judged:
        screen.print_judged(sys.stdout, verdict.judged)
        sys.stdout.flush()
    if verdict.place is None:
        say(f"not kept: {verdict.refusal}")
    elif write:
        note = f"{learner.spec.pair.name}, {learner.made} on {len(tuning.parts.trained)} documents"
        add_pair(user_file(), replace(learner.listed(verdict.place), name=name, note=note))
        say(f"kept as the pair {name}: specdec run -p {name} 'your prompt'")
    else:
        say(f"kept: specdec pairs add {shlex.join([name, *learner.listed(verdict.place).stored])}")
