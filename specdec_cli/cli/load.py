"""From options to a request and a loaded pair. A value out of bounds is refused before any model work."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Self

from specdec_cli.cli.options import AnswerOptions, ModelOptions, PairOptions, SamplingOptions, ShapeOptions
from specdec_cli.errors import UsageError
from specdec_cli.kinds import DEFAULT_RULE, HEAD, NONE, K, drafter_at
from specdec_cli.pairs.pair import DEMO
from specdec_cli.request import Constraint, Request, parse_k

if TYPE_CHECKING:
    from specdec_cli.pairs.resolve import Resolved
    from specdec_cli.session.session import Session


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """The options of one answer, read; `k` None is the pair's own draft length."""

    answer: AnswerOptions
    sampling: SamplingOptions
    k: K | None
    values: Mapping[str, float | None]
    bias: tuple[tuple[int, float], ...]
    constraint: Constraint | None = None

    @classmethod
    def read(cls, answer: AnswerOptions, sampling: SamplingOptions, shape: ShapeOptions | None = None) -> Self:
        """Raises: UsageError for a value out of its bounds, and for a shape that no answer could have."""
        k, values, bias = parse_k(answer.k), sampling.values(), sampling.bias()
        return cls(answer, sampling, k, values, bias, shape.constraint(tuple(answer.stop or ())) if shape else None)

    @property
    def ks(self) -> tuple[K, ...]:
        """The one draft length, if any was asked for."""
        return () if self.k is None else (self.k,)

    def request(self, found: Resolved) -> Request:
        """The request to the pair `found`: what is not given is the pair's own."""
        answer, pair = self.answer, found.pair
        return Request(
            max_tokens=answer.max_tokens,
            stop=tuple(answer.stop or ()),
            k=pair.k if self.k is None else self.k,
            drafter=found.drafter,
            max_context=answer.max_context,
            rule=self.sampling.rule,
            seed=self.sampling.seed,
            sampling=self.values,
            logit_bias=self.bias,
            stop_repetition=pair.stop_repetition if answer.stop_repetition is None else answer.stop_repetition,
            constraint=self.constraint,
        )


def resolve_named(name: str | None, models: PairOptions | ModelOptions, *, here: bool) -> Resolved:
    """The pair `name`, or the models that are named instead; with `here` only what needs no download."""
    from specdec_cli.pairs.resolve import resolve_pair

    draft = draft_name(models.draft, models.head_from)
    return resolve_pair(name, models.target, draft, models.target_revision, models.draft_revision, here=here)


def draft_name(draft: str | None, head_from: str | None) -> str | None:
    """The name of the draft that `--draft` or `--head-from` asks for. Raises: UsageError for both."""
    if head_from is None:
        return draft
    if draft is not None:
        raise UsageError(f"--draft {draft} and --head-from {head_from} both name a draft", "give one of the two")
    return HEAD + head_from


def resolve(models: ModelOptions, ks: Sequence[K] = ()) -> Resolved:
    """The pair that these options name, and its drafter at every K of `ks`, where some were asked for.

    `--offline` holds from here on.
    """
    forbid_network(models.offline)
    drafter = drafter_at(models.drafter, ks)
    found = resolve_named(models.pair, models, here=drafter != NONE.name)
    return replace(found, drafter=drafter or found.drafter)


def forbid_network(offline: bool) -> None:
    """`--offline`: no library may open a connection. It has to be said before any of them is imported."""
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


@contextlib.contextmanager
def loading(name: str, reason: str, *, shown: bool, plain: bool = False) -> Iterator[Callable[[str], None]]:
    """A line that says which pair is being loaded, for as long as it takes; then one that says why this pair.

    Gives what prints a line meanwhile.
    """
    from specdec_cli.ui import display

    def tell(sentence: str) -> None:
        if shown:
            display.print_above(sys.stderr, sentence, plain)

    with display.loading(sys.stderr, name, shown and not plain):
        yield tell
    if shown and reason:
        display.print_notice(sys.stderr, reason, plain)


def load_session(
    found: Resolved,
    models: ModelOptions,
    *,
    reserve_tokens: int,
    shown: bool,
    plain: bool = False,
    remember_costs: bool = True,
) -> Session:
    """The loaded pair. It must fit with caches of `reserve_tokens`, unless `--force` was given.

    Raises: NotAvailable, Refused, DoesNotFit, UsageError for an unknown drafter.
    """
    with loading(found.pair.name, found.reason, shown=shown, plain=plain) as tell:
        from specdec_cli.session.cost_file import cost_file
        from specdec_cli.session.load import load

        return load(
            found.pair,
            drafter=found.drafter,
            reserve_tokens=None if models.force else reserve_tokens,
            kv_bits=models.kv_bits,
            costs=cost_file() if remember_costs else None,
            tell=tell,
        ).session()


def tell_without_effect(session: Session, request: Request, *, shown: bool, plain: bool) -> None:
    """One line on what was asked for and changes nothing in this session, if anything; nothing unless `shown`."""
    from specdec_cli.ui.display import print_notice

    limit, without = session.context_limit(request), []
    if request.max_context is not None and limit is not None and limit < request.max_context:
        without.append(f"--max-context {request.max_context}: the models hold {limit} tokens")
    if request.rule != DEFAULT_RULE and not session.effective(request)["temperature"]:
        without.append(f"--rule {request.rule}: at temperature 0 every rule gives the same text")
    if without and shown:
        print_notice(sys.stderr, f"without effect: {'; '.join(without)}", plain)


def without_reason(found: Resolved) -> Resolved:
    """The demo introduces itself, so that no line need say why it was chosen."""
    return replace(found, reason="") if found.pair.name == DEMO else found


def introduce_demo(name: str, *, shown: bool, plain: bool) -> None:
    """Say what the pair `name` is, if it is the demo: whole once a day on a terminal, else in one line.

    Nothing unless `shown`. A day that cannot be read or written only means that the whole is shown again.
    """
    if name != DEMO or not shown:
        return
    import platformdirs

    from specdec_cli.ui.display import print_demo_box, print_demo_line

    file, today, before = platformdirs.user_state_path("specdec") / "demo-shown", f"{date.today().isoformat()}\n", ""
    with contextlib.suppress(OSError, ValueError):
        before = file.read_text(encoding="utf-8")
    if sys.stderr is None or not sys.stderr.isatty() or before == today:
        print_demo_line(sys.stderr, plain)
        return
    print_demo_box(sys.stderr, plain)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(today, encoding="utf-8")
