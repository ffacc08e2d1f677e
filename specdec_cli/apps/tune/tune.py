"""The work of `specdec tune`: what it says and asks. No gain is a normal end."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from specdec_cli.apps.tune import documents, kept, screen
from specdec_cli.apps.tune.figures import Trained
from specdec_cli.apps.tune.options import TuneOptions
from specdec_cli.apps.tune.trainee import learning, trainee
from specdec_cli.apps.tune.training import PIECES, fitting_pieces
from specdec_cli.apps.tune.tuning import Tuning, identity
from specdec_cli.command.command import notify, say
from specdec_cli.command.load import load_session, specify
from specdec_cli.command.options import ModelOptions
from specdec_cli.core.errors import UsageError
from specdec_cli.core.format import duration
from specdec_cli.core.kinds import DEFAULT_DRAFTER
from specdec_cli.core.request import DEFAULT_K
from specdec_cli.pairs.catalog import findable, registry
from specdec_cli.pairs.files import find
from specdec_cli.pairs.fit import REMEDIES
from specdec_cli.pairs.pair import DEMO, NAME, Pair
from specdec_cli.pairs.registry import add_pair, user_file
from specdec_cli.pairs.tuned import folder_of, tuned_folder
from specdec_cli.session.session import Session
from specdec_cli.system.machine import awake
from specdec_cli.terminal.panel.status import StatusLine


def run(options: TuneOptions) -> None:
    """Measure what may be gained, train, judge, and keep what pays. Raises: UsageError, NotAvailable, Refused."""
    began = time.monotonic()
    if bool(options.text) == options.chats:
        both = "--text and --chats were both given"
        raise UsageError(both if options.chats else "there is no text to tune on", documents.SOME)
    tell = partial(notify, plain=False)
    texts = documents.read_texts(options.text or [], tell)
    models = ModelOptions(pair=options.pair, target=options.target, draft=options.draft, offline=options.offline)
    spec = replace(specify(models, raw=True, shown=True).adapted(options.adapter), drafter=DEFAULT_DRAFTER)
    spec = spec if spec.pair.draft else replace(spec, reason="")  # of what drafts without one
    name, k = _name(options.out, spec.pair, options.what), spec.pair.expected_k or DEFAULT_K
    files = find(spec)
    learning(options.what, spec.pair, files.draft_kind, files.names[1])  # before any weight is read
    reserve = 2 * (documents.PIECE + documents.SAID)
    session = load_session(spec, models, reserve_tokens=reserve, shown=True, remember_costs=False, without=[*REMEDIES])
    learner = trainee(options.what, spec, session.pair, k, options.seed)
    sizes = learner.learning_bytes, learner.piece_bytes
    lesson = PIECES if options.predict_only else fitting_pieces(spec, session.pair, *sizes)
    parts = documents.split(_documents(session, texts, options.chats, tell), options.seed)
    screen.print_split(sys.stdout, parts, options.seed)
    sys.stdout.flush()
    with awake(), kept.workplace(identity(learner, parts, options.minutes, options.predict_only), began) as work:
        with StatusLine(sys.stderr, "timing a few words"):
            tuning = Tuning(learner, parts, 60.0 * options.minutes, work, lesson, options.predict_only)
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
        elif options.predict_only:
            say("training may gain: the same command without --predict-only trains")
        else:
            _train(tuning, options.minutes, name, options.write)


def _name(out: str | None, pair: Pair, what: str | None) -> str:
    """Raises: UsageError for what is no name, or that of another pair or of what was tuned, in any case.

    A Mac's disk takes two names that differ by case alone for one.
    """
    ending = "medusa" if what == "medusa" else "tuned"
    again = folder_of(pair) and what != "medusa"  # heads are another draft, not judged against the one that was tuned
    name = out or (pair.name if again else f"{pair.name}-{ending}")
    if not NAME.fullmatch(name):
        raise UsageError(f"--out {name!r} is not a valid name for a pair", "use letters, digits, dots, - and _ only")
    known, hint = registry().pairs, f"for example: --out {pair.name}-mine"
    taken = [*known, *(folder.name for folder in tuned_folder().glob("*"))]
    if alike := next((one for one in taken if one != name and one.lower() == name.lower()), ""):
        raise UsageError(f"--out {name} is {alike} but for its case, which would be lost", hint)
    if name == DEMO or (name in known and folder_of(known[name]) != tuned_folder() / name):
        raise UsageError(f"--out {name} names another pair, which would be lost", hint)
    return name


def _documents(
    session: Session, texts: dict[str, str], chats: bool, tell: Callable[[str], None]
) -> list[documents.Document]:
    """As the target reads them."""
    pair = session.pair
    ids = {name: pair.text_tokens(text) for name, text in texts.items()}
    if chats:
        ids = {name: pair.message_tokens(messages) for name, messages in kept.chat_messages(tell).items()}
    return [documents.Document(name, tuple(found)) for name, found in ids.items()]


def _train(tuning: Tuning, minutes: int, name: str, write: bool) -> None:
    """Train, show what came of it, and list what pays."""

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
        add_pair(user_file(), replace(findable(learner.listed(verdict.place)), name=name, note=note))
        say(f"kept as the pair {name}: specdec run -p {name} 'your prompt'")
    else:
        say(f"kept: specdec pairs add {shlex.join([name, *learner.listed(verdict.place).stored])}")
