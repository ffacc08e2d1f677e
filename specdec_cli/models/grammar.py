"""Schema, regular expression or grammar -> which tokens may come next. The only door to llguidance.

Law: a matcher never raises later what could be refused before generation, and it never moves but by `advance`.
Letters: K drafted tokens, V the target's vocabulary size, W = ceil(V / 32) words of a packed row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer
from llguidance.numpy import fill_next_token_bitmask, fill_next_token_bitmask_par_with_draft_tokens

from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.request import Constraint

WORD_BITS = 32
EVERYTHING = np.int32(-1)
# The blanks of Python's json.dumps and no others: where they are free, nothing is forced, and a model that likes
# blanks can write them for ever.
JSON_OPTIONS: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Matcher:
    """Where one answer stands in its grammar, behind the tokens that `advance` was given."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, stop_tokens: frozenset[int]) -> None:
        self._matcher, self._vocab_size, self._stops = matcher, vocab_size, stop_tokens
        self._ended = False

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return bool(self._matcher.is_accepting())

    def forced(self) -> list[int]:
        """Tokens that spell what must come next. Only a guess: other tokens may spell the same bytes."""
        return [] if self._ended else list(self._matcher.compute_ff_tokens())

    def legal(self, draft: Sequence[int]) -> int:
        """How many of the `draft` tokens may follow, the first stop token included and nothing after it."""
        words = next((place for place, token in enumerate(draft) if token in self._stops), len(draft))
        valid = self._validated(draft[:words])
        if valid < words or words == len(draft):
            return valid
        return valid + self._may_end_after(draft[:words], draft[words])

    def masks(self, draft: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
        """[K + 1, W] packed bits: row i says which tokens may follow the first i of the `draft` tokens [K].

        Rows after an illegal token or a stop token allow everything: nothing of them is ever emitted.
        """
        rows = np.full((len(draft) + 1, -(-self._vocab_size // WORD_BITS)), EVERYTHING, dtype=np.int32)
        words = draft[: next((place for place, token in enumerate(draft) if token in self._stops), len(draft))]
        if self._ended:
            return rows
        if words:
            fill_next_token_bitmask_par_with_draft_tokens(_executor(), [(self._matcher, 0, list(words))], rows)
        else:
            fill_next_token_bitmask(self._matcher, rows)
        self._require_sound()
        return rows

    def advance(self, emitted: Sequence[int]) -> None:
        """These tokens are the answer's next ones. Raises: SpecdecError for one that the grammar forbids."""
        for place, token in enumerate(emitted):
            if token in self._stops:
                self._ended = True
                return
            if self._matcher.try_consume_tokens([token]) != 1:
                raise SpecdecError(
                    f"token {token}, number {place + 1} of a round, is not in the grammar", "please report this"
                )
        self._require_sound()

    def _validated(self, tokens: Sequence[int]) -> int:
        return 0 if self._ended else int(self._matcher.validate_tokens(list(tokens)))

    def _may_end_after(self, words: Sequence[int], stop: int) -> bool:
        row = self.masks(words)[-1]
        return bool(row[stop // WORD_BITS] >> (stop % WORD_BITS) & 1)

    def _require_sound(self) -> None:
        """Raises: SpecdecError where the library gave up, as for a grammar of too many states."""
        if self._matcher.is_error():
            raise SpecdecError(
                f"the grammar cannot be followed any further: {_line(self._matcher.get_error())}",
                "simplify the schema or grammar",
            )


class Vocabulary:
    """One tokenizer, as grammars need it. Building it takes about a second for 150,000 tokens, once a model."""

    def __init__(self, tokenizer_json: str, vocab_size: int, stop_tokens: frozenset[int]) -> None:
        """`vocab_size` is the width of the target's logits. Raises: UsageError for a tokenizer of another kind."""
        self._vocab_size, self._stops = vocab_size, stop_tokens
        try:
            self._tokenizer = LLTokenizer(tokenizer_json, n_vocab=vocab_size, eos_token=sorted(stop_tokens))
        except ValueError as error:
            raise UsageError(
                f"this model's tokenizer cannot be constrained: {_line(str(error))}", "take another model"
            ) from error

    def matcher(self, constraint: Constraint) -> Matcher:
        """A matcher at the beginning of an answer.

        Raises: UsageError for a constraint that cannot be read, contradicts itself or uses what is not enforced.
        """
        try:
            grammar = _GRAMMARS[constraint.kind](constraint.text)
        except ValueError as error:
            raise _refused(constraint, str(error)) from error
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        warnings = [] if matcher.is_error() else matcher.get_grammar_warnings()
        if matcher.is_error() or warnings:
            raise _refused(constraint, matcher.get_error() or "; ".join(warnings))
        return Matcher(matcher, self._vocab_size, self._stops)


def _refused(constraint: Constraint, reason: str) -> UsageError:
    return UsageError(
        f"this {constraint.noun} cannot be enforced: {_line(reason)}", f"change it, or leave {constraint.flag} out"
    )


def _schema(text: str) -> str:
    return LLMatcher.grammar_from_json_schema(text, overrides=JSON_OPTIONS)


_GRAMMARS = {"schema": _schema, "regex": LLMatcher.grammar_from_regex, "grammar": LLMatcher.grammar_from_lark}


@cache
def _executor() -> LLExecutor:
    """One thread: a round's rows take some tens of microseconds, less than waking others."""
    return LLExecutor(1)


def _line(text: str) -> str:
    """A foreign message on one line of at most 160 characters."""
    words = " ".join(text.split())
    return words if len(words) <= 160 else words[:157] + "..."
