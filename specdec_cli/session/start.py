"""The first event of a reply. Law: it says the values in effect, before any model work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdec_cli.engine import device
from specdec_cli.events import Start
from specdec_cli.models.grammar import unenforced
from specdec_cli.request import Request

if TYPE_CHECKING:
    from specdec_cli.session.session import Session


def start_of(session: Session, prompt: Sequence[int], request: Request, max_tokens: int, rule: str) -> Start:
    """Of the reply to `prompt`, which may have `max_tokens`."""
    values = session.effective(request)
    kind = session.drafter(request)
    draft = (session.slot.draft or session.slot.head) if kind.by_network else None
    caches = {"target": session.slot.target.cache_kinds}
    return Start(
        target=session.names[0],
        draft=session.names[1] if draft else None,
        drafter=kind.name,
        rule=rule,
        k=request.k if kind.drafts else 0,
        temperature=values.pop("temperature"),
        seed=request.seed,
        attempt=request.attempt,
        prompt_tokens=len(prompt),
        max_tokens=max_tokens,
        context_limit=session.context_limit(request),
        dtype=session.dtype,
        device=device.backend(),
        caches={**caches, "draft": draft.cache_kinds} if draft else caches,
        sampling=values | {"logit_bias": request.logit_bias},
        constraint=request.constraint.kind if request.constraint else None,
        unenforced=unenforced(request.constraint),
    )
