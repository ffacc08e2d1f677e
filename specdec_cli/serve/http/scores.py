"""Log-probabilities as OpenAI's two endpoints have them (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec_cli.events import TokenLogprob
from specdec_cli.models.tokenizer import Tokenizer


def chat_scores(tokenizer: Tokenizer, scores: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """One entry a token, the stop token included where it was generated, each with its best alternatives."""
    return [
        {
            **_entry(tokenizer, score.token, score.logprob),
            "top_logprobs": [_entry(tokenizer, token, logprob) for token, logprob in score.top],
        }
        for score in scores
    ]


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    spelled = tokenizer.table().tokens.get(token, b"")
    return {"token": tokenizer.piece(token), "logprob": finite(logprob), "bytes": list(spelled)}


def text_scores(tokenizer: Tokenizer, scores: Sequence[TokenLogprob]) -> dict[str, Any]:
    """The parallel lists of /v1/completions."""
    texts = [tokenizer.piece(score.token) for score in scores]
    offsets = [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    return {
        "tokens": texts,
        "token_logprobs": [finite(score.logprob) for score in scores],
        "top_logprobs": [{tokenizer.piece(token): finite(logprob) for token, logprob in score.top} for score in scores],
        "text_offset": offsets[:-1],
    }


def finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI says -9999 for it."""
    return max(logprob, -9999.0)
