"""The loop: propose, verify, accept, commit. Law: one read-back a round, and no work that grows with the context.

Leviathan et al. 2023 (arXiv:2211.17192, Algorithm 1) and Chen et al. 2023 (arXiv:2302.01318, Algorithm 2).
Not in the papers, all for speed: (1) the first round drafts nothing, so the first token does not wait for the draft's
prefill; (2) a plain round launches the next pass before its own token is read back; (3) after a drafted round the next
draft's first step is launched before the target is rolled back and the round is yielded, so the device computes while
the host builds the target's graph and the caller prints.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator

from specdec_cli.core.events import Reading, Round
from specdec_cli.core.request import MAX_DRAFT
from specdec_cli.engine.draft_length.adaptive import DraftLength
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock, Pipeline
from specdec_cli.engine.sampling.acceptance import AcceptanceRule


def rounds_of(steps: Iterable[Round | Reading]) -> Iterator[Round]:
    """The rounds alone, for a caller that has nothing else to do while a context is read."""
    return (step for step in steps if isinstance(step, Round))


def decode(
    target: CachedModel,
    drafter: Drafter,
    rule: AcceptanceRule,
    length: DraftLength,
    context: list[int],
    max_tokens: int,
    stop_tokens: frozenset[int],
    clock: Clock,
    cancelled: Callable[[], bool] = lambda: False,
    logprobs: int | None = None,
) -> Generator[Round | Reading]:
    """Rounds until a stop token, `max_tokens` or `cancelled()`; `context` grows in place by what each round emitted.

    Where the draft has a long context to read, a Reading comes between two chunks of it.

    `logprobs`: emitted tokens come with their log-probability and that many of the best ones; None: without.

    All rounds' seconds, draft prefill included, sum to the wall time since the call, less what the caller spends after
    the last round. Whenever the iterator is closed or exhausted, the target's memo holds `context` less its last token.
    """
    index, k, left = 0, 0, max_tokens

    def next_k(in_flight: int) -> int:
        """K of the next round, such that it cannot emit more than is left after the tokens `in_flight`."""
        return max(min(length.next(), left - 1 - in_flight, MAX_DRAFT), 0)

    with Pipeline(target, drafter, rule, length, context, clock, cancelled, logprobs) as device:
        while left:
            yield from device.prefill(k)
            if not device.launch(k):  # 1 draft K tokens, 2 verify them in one pass, 3 judge them
                break
            if device.plain:
                k = next_k(in_flight=1)
                if not k and left > 1:
                    device.launch_plain()
            round = device.read(index, stop_tokens)  # 4 the round's one read-back
            device.commit(round)
            length.observe(round)
            left = 0 if round.emitted[-1] in stop_tokens else left - len(round.emitted)
            if left and round.draft:
                k = next_k(in_flight=0)
            if length.released:
                drafter.release()
            elif left:
                device.start(k)
            device.roll_back()  # 5 the target forgets what was rejected
            yield round
            index += 1
