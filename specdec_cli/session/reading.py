"""A prompt on its way into the caches. Law: what they hold of it is not read again, but for states a head lacks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from specdec_cli.engine.drafters.base import Drafter, read_together
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock
from specdec_cli.events import Prefill, Reading

Cancelled = Callable[[], bool]


def read_prompt(
    target: CachedModel, drafter: Drafter, context: Sequence[int], clock: Clock, cancelled: Cancelled
) -> Generator[Reading | Prefill, None, tuple[bool, float]]:
    """`target` reads all but the last token of `context`, a chunk a step; returns whether that was cancelled, and its
    seconds.
    """
    began = clock()
    target.reuse(context)
    # A head that lacks states which the target would not compute again lets it read more.
    target.commit(context, min(target.length, drafter.keeps(context)))
    cached, halted = target.length, False
    for _ in read_together(target, drafter, context):
        if target.length < len(context) - 1:
            yield Reading("target", target.length, len(context))
        if halted := cancelled():
            break
    seconds = clock() - began
    yield Prefill(prompt_tokens=len(context), cached_tokens=cached, seconds=seconds)
    return halted, seconds
