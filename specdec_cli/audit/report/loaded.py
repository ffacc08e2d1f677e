"""The parts of a report that need the pair in this process. Law: what was found is kept when the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from specdec_cli.audit.prompts import BUNDLED
from specdec_cli.audit.report.budget import Clock, Deadline, Impossible
from specdec_cli.audit.report.environment import wired_bytes
from specdec_cli.errors import DoesNotFit
from specdec_cli.kinds import DEFAULT_DRAFTER, LOOKUP

if TYPE_CHECKING:
    from specdec_cli.engine.model import CachedModel
    from specdec_cli.session.session import Session

# The caches that the pair must fit with: as long as the longest context that is measured, else of a short reply.
LONG_TOKENS, SHORT_TOKENS = 8192, 512
OpenSession = Callable[[int], "Session"]
PASSES = 7
REPLIES, REPLY_TOKENS, REPLY_K = 4, 256, 4
AUDIT_KS = (1, 4, 8)
AUDIT_TOKENS = 48
# Added to a stop token's logit: a reply goes on to its last token.
NEVER = -100.0


class LoadedParts:
    """A pair in memory, from `load` to `drop`."""

    def __init__(self, open_session: OpenSession, clock: Clock = time.perf_counter) -> None:
        self._open, self._clock = open_session, clock
        self._session: Session | None = None
        self._reserve_tokens = 0

    @property
    def session(self) -> Session:
        """Raises: Impossible if nothing is loaded."""
        if self._session is None:
            raise Impossible("the pair is not loaded")
        return self._session

    def load(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Both models, with room for a long context where it fits."""
        before, begin = memory(), self._clock()
        try:
            self._session, self._reserve_tokens = self._open(LONG_TOKENS), LONG_TOKENS
        except DoesNotFit:
            self._session, self._reserve_tokens = self._open(SHORT_TOKENS), SHORT_TOKENS
        data |= {"seconds": self._clock() - begin, "memory_before": before, "memory_after": memory()}
        for role, model in self._models():
            data[role] = {
                "dtype": model.dtype,
                "caches": list(model.cache_kinds),
                "weight_bytes": model.weight_bytes,
                "context_limit": model.context_limit,
            }
        if head := self._session.slot.head:
            found = head.head.agreement
            data["head"] = {"kind": head.head.kind, "agreement": found and found.to_dict()}
        return ""

    def row_costs(self, context_tokens: int) -> Callable[[dict[str, Any], Deadline], str]:
        """Passes of every row count after `context_tokens`, of target and draft."""
        return lambda data, deadline: self._row_costs(data, deadline, context_tokens)

    def _row_costs(self, data: dict[str, Any], deadline: Deadline, context_tokens: int) -> str:
        from specdec_cli.engine.timing import ROWS, row_costs

        if context_tokens > max(self._reserve_tokens, SHORT_TOKENS):
            self.session  # noqa: B018 - not loaded is the better reason
            raise Impossible(f"caches of {context_tokens} tokens do not fit this machine's memory")
        data["context_tokens"], notes = context_tokens, []
        models = self._models()
        for place, (role, model) in enumerate(models):
            limit = model.context_limit
            if limit is not None and limit < context_tokens + ROWS[-1]:
                notes.append(f"{role}: its context holds {limit} tokens")
                continue
            share = deadline.left_seconds / (len(models) - place)
            part = Deadline(self._clock, self._clock() + share)
            costs = row_costs(model, context_tokens, ROWS, PASSES, self._clock, part.over)
            data[role] = [asdict(cost) for cost in costs]
            if len(costs) < len(ROWS) or costs[-1].passes < PASSES:
                passes = costs[-1].passes if len(costs) == len(ROWS) else 0
                notes.append(f"{role}: time for {passes} of {PASSES} passes of every row count")
        if not any(data.get(role) for role, _ in models):
            raise Impossible("; ".join(notes))
        return "; ".join(notes)

    def memory(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Memory before and after replies of 256 tokens, each a conversation of its own; none may end early."""
        from specdec_cli.events import Finish
        from specdec_cli.request import Request

        session, data["replies"] = self.session, []
        endless = tuple((token, NEVER) for token in session.pair.tokenizer.stop_tokens)
        data["before"] = memory()
        for place in range(REPLIES):
            ids = session.chat_tokens(BUNDLED[place].text)
            sampling = {"temperature": 0.0}
            request = Request(REPLY_TOKENS, k=REPLY_K, drafter=self._drafter, sampling=sampling, logit_bias=endless)
            events = list(session.reply(ids, request, deadline.over))
            tokens = sum(len(event.tokens) for event in events if isinstance(event, Finish))
            data["replies"].append({"tokens": tokens, **memory()})
            whole = place + (tokens == REPLY_TOKENS)
            if deadline.over() and whole < REPLIES:
                return f"time for {whole} of {REPLIES} whole replies"
        return ""

    def audit(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Greedy answers at several K against plain decoding, prompt by prompt: results and gaps, no text."""
        from specdec_cli.audit.audit import AuditPlan, run_audit

        session, data["findings"], data["rounding"] = self.session, [], []
        for place, prompt in enumerate(BUNDLED):
            plan = AuditPlan([prompt], AUDIT_KS, self._drafter, AUDIT_TOKENS, temperature=0.0)
            found = run_audit(session, plan, lambda *_: None)
            data["near_tie"] = str(found.rounding)
            data["rounding"].append(found.rounding.to_dict())
            data["findings"] += [_finding(finding.to_dict()) for finding in found.findings]
            if deadline.over() and place + 1 < len(BUNDLED):
                return f"time for {place + 1} of {len(BUNDLED)} prompts"
        return ""

    def drop(self, data: dict[str, Any], deadline: Deadline) -> str:
        """Give both models' memory back: other parts load the pair in a process of its own."""
        from specdec_cli.engine.memory import clear_cache

        self.session  # noqa: B018 - nothing to drop is no measurement
        self._session = None
        clear_cache()
        data |= memory()
        return ""

    @property
    def _drafter(self) -> str:
        """The pair's draft; without one the text itself drafts, so that rollback is exercised all the same."""
        pair = self.session.pair
        return DEFAULT_DRAFTER if pair.has_draft or pair.head_kind else LOOKUP.name

    def _models(self) -> list[tuple[str, CachedModel]]:
        slot = self.session.slot
        return [("target", slot.target), *([("draft", slot.draft)] if slot.draft is not None else [])]


def memory() -> dict[str, Any]:
    """Bytes that mlx holds, and that the machine has wired."""
    from specdec_cli.engine.memory import memory_use

    return asdict(memory_use()) | {"wired_bytes": wired_bytes()}


def _finding(found: dict[str, Any]) -> dict[str, Any]:
    """One answer without any token: result, and where it differs the gap and its limit."""
    kept = {
        name: found.get(name) for name in ("prompt", "k", "result", "tokens_compared", "draft_n", "draft_n_accepted")
    }
    divergence = found.get("divergence") or {}
    return kept | {name: divergence.get(name) for name in ("position", "gap", "limit")}
