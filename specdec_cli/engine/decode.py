"""The loop: propose, verify, accept, commit. Law: one read-back a round, and no work that grows with the context.

Leviathan et al. 2023 (arXiv:2211.17192, Algorithm 1) and Chen et al. 2023 (arXiv:2302.01318, Algorithm 2).
Not in the papers, all for speed: (1) no network drafts in the first round, so the first token does not wait for its
prefill; (2) a plain round launches the next pass before its own token is read back; (3) after a drafted round the next
draft's first step is launched before the target is rolled back and the round is yielded, so the device computes while
the host builds the target's graph and the caller prints; (4) a pass may be shared with other replies (`batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from specdec_cli.core.events import Reading, Round
from specdec_cli.engine.batch import Member, Part
from specdec_cli.engine.drafters.base import DraftStep
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock, Pipeline
from specdec_cli.engine.sampling.acceptance import AcceptanceRule


def decode(
    target: CachedModel,
    drafters: Drafters,
    rule: AcceptanceRule,
    context: list[int],
    max_tokens: int,
    stop_tokens: frozenset[int],
    clock: Clock,
    cancelled: Callable[[], bool] = lambda: False,
    logprobs: int | None = None,
    member: Member | None = None,
) -> Generator[Round | Reading | DraftStep | Part]:
    """Rounds until a stop token, `max_tokens` or `cancelled()`; `context` grows in place by what each round emitted.

    Where the draft has a long context to read, a Reading comes between two chunks of it. Where the `member` of a batch
    shares the next pass, the steps of its draft come, and its Part of the pass: each is answered before it goes on.

    `logprobs`: emitted tokens come with their log-probability and that many of the best ones; None: without.

    All rounds' seconds, draft prefill included, sum to the wall time since the call, less what the caller spends after
    the last round. Whenever the iterator is closed or exhausted, the target's memo holds `context` less its last token.
    """
    index, left = 0, max_tokens
    with Pipeline(target, drafters, rule, context, clock, cancelled, logprobs, member) as device:
        if left:
            device.propose(left, first=True)
        while left:
            device.reconsider(left)
            yield from device.read_ahead()  # the draft reads what it has not
            if cancelled():
                break
            if device.shared:  # 1 draft K tokens, 2 verify them in one pass, 3 judge them
                yield from device.ask(ends=left == 1)
            else:
                device.launch()
            if not device.in_flight:  # it was resumed before the pass: nobody waits for it any more
                break
            followed = device.look_ahead(left)
            round, queued = device.read(index, stop_tokens)  # 4 the round's one read-back
            device.commit(round)
            drafters.observe(round, queued, followed)
            left = 0 if round.emitted[-1] in stop_tokens else left - len(round.emitted)
            if left and not followed:
                device.propose(left)
                device.start()
            device.roll_back()  # 5 the target forgets what was rejected
            yield round
            index += 1
