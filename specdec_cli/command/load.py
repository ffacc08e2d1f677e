"""From options to a request and a loaded pair. A value out of bounds is refused before any model work."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from specdec_cli.command.command import notify
from specdec_cli.command.config import is_on_the_line
from specdec_cli.command.options import AnswerOptions, ModelOptions, SamplingOptions, ShapeOptions
from specdec_cli.core.kinds import NONE, K, drafter_at
from specdec_cli.core.request import Request, parse_draft_context, parse_k
from specdec_cli.core.template import TemplateValues
from specdec_cli.pairs.pair import DEMO

if TYPE_CHECKING:
    import typer

    from specdec_cli.pairs.pair import PairSpec
    from specdec_cli.session.session import Session
    from specdec_cli.terminal.panel.status import StatusLine


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """The options of one answer, read. `asked` is what they request; None of the others: the pair's own."""

    asked: Request
    k: K | None
    stop_repetition: int | None
    template: TemplateValues

    @classmethod
    def read(cls, answer: AnswerOptions, sampling: SamplingOptions, shape: ShapeOptions | None = None) -> Self:
        """Raises: UsageError for a value out of its bounds, and for a shape that no answer could have."""
        k, stop = parse_k(answer.k), tuple(answer.stop or ())
        asked = Request(
            max_tokens=answer.max_tokens,
            stop=stop,
            max_context=answer.max_context,
            rule=sampling.rule,
            seed=sampling.seed,
            sampling=sampling.values(),
            logit_bias=sampling.bias(),
            constraint=shape.constraint(stop) if shape else None,
        )
        return cls(asked, k, answer.stop_repetition, TemplateValues.of_word(answer.think))

    @property
    def ks(self) -> tuple[K, ...]:
        """The one draft length, if any was asked for."""
        return () if self.k is None else (self.k,)

    def request(self, spec: PairSpec) -> Request:
        """The request to the pair of `spec`: what is not given is the pair's own."""
        pair = spec.pair
        k, stop_repetition = pair.k if self.k is None else self.k, self.stop_repetition
        repeated = pair.stop_repetition if stop_repetition is None else stop_repetition
        return replace(self.asked, k=k, drafter=spec.drafter, stop_repetition=repeated)


def warn_of_unread(values: TemplateValues, session: Session, *, shown: bool, plain: bool) -> None:
    """Say that the target's template cannot be asked how to think; nothing unless `shown`."""
    from specdec_cli.terminal.display import print_notice

    if shown and values.unread_by(session.pair.tokenizer.template_names):
        name = session.pair.names[0]
        print_notice(sys.stderr, f"--think has no effect: {name}'s template reads nothing of it", plain)


def warn_of_unsent(context: typer.Context, *, shown: bool, plain: bool) -> None:
    """Say what of the line has no effect where a text is continued as it is; nothing unless `shown`."""
    for name in ("system", "think"):
        if shown and is_on_the_line(context, name):
            notify(f"--{name} has no effect: under --raw no template is used", plain)


def warn_of_unused_k(models: ModelOptions, k: K | None, *, shown: bool, plain: bool) -> None:
    """Say that a draft length has no effect where nobody was asked to draft; nothing unless `shown`."""
    if shown and k and models.drafter == NONE.name:
        notify(f"-k {k} has no effect: --drafter {NONE.name} drafts nothing", plain)


def specify(
    models: ModelOptions, ks: Sequence[K] = (), *, raw: bool = False, shown: bool = False, plain: bool = False
) -> PairSpec:
    """The pair that these options name, and its drafter at every K of `ks`, where some were asked for.

    With `shown` a person reads meanwhile that something is loaded.
    Raises: NoPair where nobody named a pair and the prompt is not `raw`: the demo pair answers no questions.
    """
    drafter, context = drafter_at(models.drafter, ks), parse_draft_context(models.draft_context)
    with loading(models.pair or models.target, shown=shown, plain=plain, at_once=True) as line:
        from specdec_cli.pairs.choose import choose

        here = drafter != NONE.name
        spec = choose(models.pair, models.target, models.draft, here=here, report=line.say).reading(context)
    require_named(spec, raw)
    return spec.drafted_by(drafter)


def require_named(spec: PairSpec, raw: bool) -> None:
    """Raises: NoPair for the demo pair, unless somebody named it or its text is continued as it is (`raw`)."""
    from specdec_cli.pairs.choose import no_pair

    if not (spec.named or raw):
        raise no_pair()


@contextmanager
def loading(
    name: str | None, reason: str = "", *, shown: bool, plain: bool = False, at_once: bool = False
) -> Iterator[StatusLine]:
    """A line that says which pair is being loaded, for as long as it takes; then one that says why this pair.

    `at_once`: before the imports that take seconds, where a person waits. Choosing a draft may read several tokenizers.
    """
    from specdec_cli.terminal import terminal
    from specdec_cli.terminal.panel.status import StatusLine

    patience = 0.0 if at_once and terminal.is_terminal(sys.stderr) else None
    title = f"loading {name or 'a pair'}"
    with StatusLine(sys.stderr, title, shown=shown, plain=plain, patience=patience) as line:
        yield line
    if shown and reason:
        notify(reason, plain)


def load_session(
    spec: PairSpec,
    models: ModelOptions,
    *,
    reserve_tokens: int,
    shown: bool,
    plain: bool = False,
    remember_costs: bool = True,
    request: Request | None = None,
    without: Sequence[str] = (),
) -> Session:
    """The loaded pair, ready for `request`. It must fit with caches of `reserve_tokens`, unless `--force` was given.

    The command is one `without` these options, or they do not help there: a refusal names others.

    Raises: NotAvailable, Refused, DoesNotFit, UsageError for an unknown drafter.
    """
    with loading(spec.pair.name, spec.reason, shown=shown, plain=plain) as line:
        from specdec_cli.pairs.fit import REMEDIES
        from specdec_cli.session.cost_file import cost_file
        from specdec_cli.session.load import Wishes
        from specdec_cli.session.several import open_spec

        wishes = Wishes(
            None if models.force else reserve_tokens,
            models.kv_bits,
            request,
            cost_file() if remember_costs else None,
            line.tell,
            line.say,
            remedies=REMEDIES - {*without},
        )
        return open_spec(spec, wishes).session()


def without_reason(spec: PairSpec) -> PairSpec:
    """The demo introduces itself, so that no line need say why it was chosen."""
    return replace(spec, reason="") if spec.pair.name == DEMO else spec


def introduce_demo(name: str, *, shown: bool, plain: bool) -> None:
    """Say what the pair `name` is, if it is the demo, and the next command; nothing unless `shown`."""
    if name == DEMO and shown:
        notify("demo pair: it completes Python and knows nothing else; a real one: specdec pull", plain)
