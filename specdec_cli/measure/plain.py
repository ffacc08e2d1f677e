"""Plain decoding as mlx-lm does it, to which drafted decoding is compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdec_cli.core.request import Request
from specdec_cli.engine.baseline import baseline
from specdec_cli.session.session import Reply, Session


def plain_tokens(session: Session, prompt: Sequence[int], request: Request) -> Iterator[int]:
    """mlx-lm's plain decoding, token by token, each of them detokenized as an answer's are."""
    reply = Reply(session.pair, session.slot, prompt, request)
    sampling, stream, stops = reply.sampling, session.pair.tokenizer.stream(()), reply.ends
    changed = sampling.counts_tokens or sampling.logit_bias
    if sampling.greedy and not changed:
        network = session.slot.target.network.module
        found = (round.next for round in baseline(network, prompt, reply.max_tokens, stops, session.clock))
    else:
        found = (step.token for step in reply.plain())
    for token in found:
        if token not in stops:
            stream.step(token)
        yield token
