"""Schema, regular expression, grammar or bans -> which tokens may come next. The only module that imports llguidance.

A matcher never raises later what could be refused before generation, and it never moves but by `advance`.
Letters: K drafted tokens, V the vocabulary size, W = ceil(V / 32) words of a packed row.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import takewhile
from types import MappingProxyType
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import fill_next_token_bitmask

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.core.readfile import expanded
from specdec_cli.core.request import MAX_DRAFT, Constraint, ShapeKind
from specdec_cli.core.textfile import text_of_file
from specdec_cli.models import schema, shape
from specdec_cli.models.text import Thinking
from specdec_cli.models.vocab import require_characters

WORD_BITS = 32
# Below this a row costs less than waking a thread.
LEAST_VOCAB = 16_384
Row = np.ndarray[Any, np.dtype[np.int32]]


class MaskLookahead:
    """Goes ahead of an answer along its drafts, and back."""

    def __init__(self, make: Callable[[], LLMatcher], vocab_size: int) -> None:
        """`make` is called once, at the first question: a matcher that stands where the answer begins."""
        self._make, self._words = cache(make), -(-vocab_size // WORD_BITS)
        # By the tokens before it.
        self._rows: dict[tuple[int, ...], Row] = {}

    def begin(self, draft: Sequence[int]) -> None:
        """`rows` of these tokens will be asked for."""

    def rows(self, draft: Sequence[int]) -> list[Row]:
        """Rows [W] after the first i of the `draft` tokens [K]; K + 1, or those up to the first illegal token.

        Raises: SpecdecError where the library gives up, as for a grammar of too many states.
        """
        matcher, found, taken = self._make(), [self._row(())], 0
        try:
            while taken < len(draft) and matcher.try_consume_tokens([draft[taken]]) == 1:
                taken += 1
                found.append(self._row(tuple(draft[:taken])))
        finally:
            matcher.rollback(taken)
        return found

    def advance(self, emitted: Sequence[int]) -> None:
        """The answer stands behind these tokens now, which are legal; rows beyond them are kept."""
        self._make().try_consume_tokens(list(emitted))
        past, rows = len(emitted), self._rows.items()
        self._rows = {ahead[past:]: row for ahead, row in rows if ahead[:past] == tuple(emitted)}

    def _row(self, ahead: tuple[int, ...]) -> Row:
        """That of the matcher, which stands behind the tokens `ahead` of the answer."""
        if ahead not in self._rows:
            matcher, row = self._make(), np.zeros((1, self._words), dtype=np.int32)
            fill_next_token_bitmask(matcher, row)
            if matcher.is_error():
                raise SpecdecError(
                    f"the grammar cannot be followed any further: {one_line(matcher.get_error())}",
                    "simplify the schema or grammar",
                )
            self._rows[ahead] = row[0]
        return self._rows[ahead]


class ThreadedLookahead(MaskLookahead):
    """A lookahead whose work is done by `thread`, one question after the other; `begin` does not wait for it."""

    def __init__(self, make: Callable[[], LLMatcher], vocab_size: int, thread: Executor) -> None:
        super().__init__(make, vocab_size)
        self._thread = thread

    def begin(self, draft: Sequence[int]) -> None:
        self._thread.submit(super().rows, list(draft))  # an error shows when `rows` are asked for

    def rows(self, draft: Sequence[int]) -> list[Row]:
        return self._thread.submit(super().rows, list(draft)).result()

    def advance(self, emitted: Sequence[int]) -> None:
        self._thread.submit(super().advance, list(emitted))


def one_line(text: str) -> str:
    """A foreign message on one line of at most 160 characters."""
    words = " ".join(text.split())
    return words if len(words) <= 160 else words[:157] + "..."


EVERYTHING = np.int32(-1)
# How the library says that a grammar is too wide for it.
CROWDED = re.compile(r"row has (\d+) items; max is (\d+)")
# Forced bytes at the beginning of an answer; what forces more has no end, or none that a model would reach.
MOST_FORCED_BYTES = 20_000
# An added token of this form is special to the library, whatever its file says.
TAG = re.compile(r"<.*>", re.DOTALL)
# Tokens of plain letters up to so many characters are judged all at once where that many more may come: the library's
# own lengths are 10 and 30, and between them a text of bounded length costs a 150k vocabulary 1.1 ms a row; so 0.4.
SLICES = tuple(rf'[^"\\\x00-\x1F\x7F]{{1,{length}}}' for length in (10, 14, 20, 30))


class Matcher:
    """Where one answer stands in its grammar, behind the tokens that `advance` was given."""

    def __init__(
        self, matcher: LLMatcher, vocab_size: int, stop_tokens: frozenset[int], lookahead: MaskLookahead
    ) -> None:
        """`lookahead` stands where `matcher` does; nothing else moves either."""
        self._matcher, self._vocab_size, self._stops, self._lookahead = matcher, vocab_size, stop_tokens, lookahead
        self._ended = False
        self._forced: list[int] | None = None

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return bool(self._matcher.is_accepting())

    def forced(self) -> list[int]:
        """Tokens that spell what must come next. Only a guess: other tokens may spell the same bytes."""
        if self._forced is None:
            self._forced = [] if self._ended else list(self._matcher.compute_ff_tokens())
            if self._forced:
                self._lookahead.begin(self._forced[:MAX_DRAFT])
        return self._forced

    def legal(self, draft: Sequence[int]) -> int:
        """How many of the `draft` tokens may follow, the first stop token included and nothing after it."""
        words = next((place for place, token in enumerate(draft) if token in self._stops), len(draft))
        valid = self._count_legal(draft[:words])
        if not self._ended:
            self._lookahead.begin(draft[:valid])
        if valid < words or words == len(draft):
            return valid
        return valid + self._may_end_after(draft[:words], draft[words])

    def masks(self, draft: Sequence[int]) -> Row:
        """[K + 1, W] packed bits: row i says which tokens may follow the first i of the `draft` tokens [K].

        Rows after an illegal token or a stop token allow everything: nothing of them is ever emitted.
        """
        rows = np.full((len(draft) + 1, -(-self._vocab_size // WORD_BITS)), EVERYTHING, dtype=np.int32)
        words = draft[: next((place for place, token in enumerate(draft) if token in self._stops), len(draft))]
        if not self._ended:
            found = self._lookahead.rows(words)
            rows[: len(found)] = found
        return rows

    def advance(self, emitted: Sequence[int]) -> None:
        """These tokens are the answer's next ones. Raises: SpecdecError for one that the grammar forbids.

        That may be one which its mask allowed: for what it forces without end the library's own masks are wrong.
        """
        self._forced = None
        words = list(takewhile(lambda token: token not in self._stops, emitted))
        for place, token in enumerate(words):
            if self._matcher.try_consume_tokens([token]) != 1:
                raise SpecdecError(
                    f"the grammar cannot be followed any further: it refuses token {token}, number {place + 1} of a "
                    "round",
                    "simplify the schema or grammar; if it is simple, please report this",
                )
        self._ended |= len(words) < len(emitted)
        self._lookahead.advance(words)
        if not self._ended:
            self._lookahead.begin([])

    def _count_legal(self, tokens: Sequence[int]) -> int:
        return 0 if self._ended else int(self._matcher.validate_tokens(list(tokens)))

    def _may_end_after(self, words: Sequence[int], stop: int) -> bool:
        row = self.masks(words)[-1]
        return bool(row[stop // WORD_BITS] >> (stop % WORD_BITS) & 1)


class Bans:
    """What one answer may not say: a word anywhere, or an end before it is long enough; beside its constraint `inner`.

    A token is banned by the bytes that it adds, so that a word cannot be spelled by other tokens either. Masks are
    those of a constraint: packed bits, one row a position, exact also for drafts.
    """

    def __init__(
        self,
        tokens: Mapping[int, bytes],
        vocab_size: int,
        words: Sequence[bytes] = (),
        ends: frozenset[int] = frozenset(),
        least: int = 0,
        inner: Matcher | None = None,
    ) -> None:
        """No word of `words` is said, and no token of `ends` among the first `least` tokens."""
        self._tokens, self._words, self._inner = tokens, words, inner
        self._least, self._vocab_size = least, vocab_size
        self._ends = self._packed(ends)
        self._tail, self._said = b"", 0
        self._keep = max(map(len, words), default=1) - 1
        self._banned = lru_cache(maxsize=256)(self._find_banned)

    @property
    def complete(self) -> bool | None:
        """Whether the answer has its constraint's shape; None without one."""
        return None if self._inner is None else self._inner.complete

    def forced(self) -> list[int]:
        """As the constraint's."""
        return [] if self._inner is None else self._inner.forced()

    def legal(self, draft: Sequence[int]) -> int:
        """How many of the `draft` tokens may follow."""
        many = len(draft) if self._inner is None else self._inner.legal(draft)
        rows = self.masks(draft[:many])
        legal = (bool(rows[at, token // WORD_BITS] >> (token % WORD_BITS) & 1) for at, token in enumerate(draft[:many]))
        return next((at for at, may in enumerate(legal) if not may), many)

    def masks(self, draft: Sequence[int]) -> Row:
        """[K + 1, W] packed bits, as a constraint's; one that would allow nothing is the constraint's own."""
        width = -(-self._vocab_size // WORD_BITS)
        rows = np.full((len(draft) + 1, width), EVERYTHING) if self._inner is None else self._inner.masks(draft).copy()
        tail = self._tail
        for at in range(len(rows)):
            left = rows[at]
            for word in self._words:
                left = left & ~self._banned(word, _begun(word, tail))
            if self._said + at < self._least:
                left = left & ~self._ends
            if left.any():
                rows[at] = left
            if at < len(draft):
                tail = self._after(tail, draft[at])
        return rows

    def advance(self, emitted: Sequence[int]) -> None:
        """These tokens are the answer's next ones."""
        for token in emitted:
            self._tail = self._after(self._tail, token)
        self._said += len(emitted)
        if self._inner is not None:
            self._inner.advance(emitted)

    def _after(self, tail: bytes, token: int) -> bytes:
        """The last bytes of what was said, as many as a word may begin with."""
        return (tail + self._tokens.get(token, b""))[-self._keep :] if self._keep else b""

    def _find_banned(self, word: bytes, begun: int) -> Row:
        """[W]: the tokens that would complete `word`, of which the first `begun` bytes were said."""
        said = word[:begun]
        return self._packed(token for token, spelled in self._tokens.items() if word in said + spelled)

    def _packed(self, tokens: Iterable[int]) -> Row:
        """[W]: a bit for each of `tokens` that has a row."""
        bits = np.zeros(-(-self._vocab_size // WORD_BITS), dtype=np.uint32)
        for token in tokens:
            if token < self._vocab_size:
                bits[token // WORD_BITS] |= np.uint32(1 << token % WORD_BITS)
        return bits.view(np.int32)


def _begun(word: bytes, tail: bytes) -> int:
    """How many bytes of `word`, at most, `tail` ends with."""
    return next((many for many in range(min(len(word) - 1, len(tail)), 0, -1) if tail.endswith(word[:many])), 0)


class Vocabulary:
    """One tokenizer, as grammars need it. Building it takes about a second for 150,000 tokens, once a model."""

    def __init__(
        self,
        tokenizer: LLTokenizer,
        vocab_size: int,
        stop_tokens: frozenset[int],
        specials: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`vocab_size` is the width of the target's logits, `specials` are the special tokens by their text."""
        self._tokenizer, self._vocab_size, self.stop_tokens = tokenizer, vocab_size, stop_tokens
        self._specials = specials
        self._thread = ThreadPoolExecutor(1, "masks") if vocab_size >= LEAST_VOCAB else None

    @classmethod
    def of_model(cls, tokenizer_json: str, vocab_size: int, stop_tokens: frozenset[int]) -> Vocabulary:
        """Raises: UsageError for a tokenizer of another kind."""
        stop_tokens = frozenset(token for token in stop_tokens if 0 <= token < vocab_size)
        tokenizer_json, specials = _plain(tokenizer_json, vocab_size)
        try:
            tokenizer = LLTokenizer(tokenizer_json, vocab_size, sorted(stop_tokens), _slices())
        except ValueError as error:
            raise UsageError(
                f"this model's tokenizer cannot be constrained: {one_line(str(error))}", "use another model"
            ) from error
        return cls(tokenizer, vocab_size, stop_tokens, specials)

    @classmethod
    @cache
    def of_bytes(cls) -> Vocabulary:
        """A token for every byte: what can be said of a constraint without a model. It is made once."""
        tokenizer = LLTokenizer("byte")
        return cls(tokenizer, tokenizer.vocab_size, frozenset({tokenizer.eos_token}))

    def matcher(self, constraint: Constraint, thinking: Thinking | None = None, before: str = "") -> Matcher:
        """A matcher at the beginning of an answer, which may think first where the model does.

        What is wrong is looked for behind `before`, with which the answer may begin.
        Raises: UsageError for a constraint that cannot be read, contradicts itself or uses what is not enforced.
        """
        if thinking is not None:
            # Where an answer may think first, what is wrong behind it does not show.
            self._require_enforceable(constraint, None)
        matcher = self._require_enforceable(constraint, thinking, before)
        return Matcher(matcher, self._vocab_size, self.stop_tokens, self._lookahead(matcher, constraint, thinking))

    def _require_enforceable(self, constraint: Constraint, thinking: Thinking | None, before: str = "") -> LLMatcher:
        """Raises: UsageError as `matcher`."""
        matcher = self._make_matcher(constraint, thinking)
        reason = "; ".join([_reason(matcher.get_error())] if matcher.is_error() else matcher.get_grammar_warnings())
        if reason := reason or _impossible(matcher, constraint, self._tokenizer.tokenize_str(before)):
            raise UsageError(
                f"this {constraint.noun} cannot be enforced: {one_line(reason)}",
                "change it, or leave it out",
            )
        return matcher

    def _make_matcher(self, constraint: Constraint, thinking: Thinking | None) -> LLMatcher:
        require_characters(constraint.text)
        return LLMatcher(self._tokenizer, shape.grammar(constraint, thinking, self._tag), log_level=0)

    def _lookahead(self, matcher: LLMatcher, constraint: Constraint, thinking: Thinking | None) -> MaskLookahead:
        if self._thread is None:
            copy = matcher.deep_copy()
            return MaskLookahead(lambda: copy, self._vocab_size)
        lookahead = ThreadedLookahead(lambda: self._make_matcher(constraint, thinking), self._vocab_size, self._thread)
        lookahead.begin([])
        return lookahead

    def _tag(self, tag: str) -> shape.Tag:
        """The pieces of a tag: its special tokens by id, and the text between them."""
        longest_first = sorted(self._specials, key=len, reverse=True)
        pieces = re.split(f"({'|'.join(map(re.escape, longest_first))})", tag) if longest_first else [tag]
        return tuple(self._specials.get(piece, piece) for piece in pieces if piece)


def _plain(tokenizer_json: str, vocab_size: int) -> tuple[str, dict[str, int]]:
    """(a tokenizer.json that encodes text without special tokens, those tokens by their text).

    The library spells what is forced with special tokens where their text is in it, allows them alone, and then refuses
    them. Under names that no text has, they stay where a grammar asks for them by id, and their text is spelled like
    any other. Ids that the target has no row for are left out: they could never be chosen.
    """
    values = jsonfile.parse_object(tokenizer_json)
    model, added = values["model"], [one for one in values["added_tokens"] if one["id"] < vocab_size]
    specials = {one["content"]: one["id"] for one in added if one["special"] or TAG.fullmatch(one["content"])}
    secret = secrets.token_hex(8)
    names = {text: f"<|{secret} {token}|>" for text, token in specials.items()}
    for one in added:
        one["content"] = names.get(one["content"], one["content"])
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        model["vocab"] = {names.get(text, text): token for text, token in vocab.items() if token < vocab_size}
    elif isinstance(vocab, list):
        model["vocab"] = [[names.get(text, text), score] for text, score in vocab[:vocab_size]]
    return json.dumps(values | {"added_tokens": added}), specials


def require_possible(constraint: Constraint, stops: Sequence[str] = (), before: str = "") -> None:
    """What can be refused without a model; an answer that may begin with `before` is looked at behind that.

    Raises: UsageError for a constraint that no model could keep, and for `stops` that could cut its answer.
    """
    Vocabulary.of_bytes().matcher(constraint, before=before)
    require_uncut(constraint, stops)


def require_uncut(constraint: Constraint, stops: Sequence[str], thinks: bool = False) -> None:
    """Raises: UsageError for one of `stops` that could end an answer before its shape is complete.

    JSON as it comes here has no control character, so one that holds some ends nothing; where the model `thinks`, any
    could, for its thinking may hold anything.
    """
    for stop in stops:
        if thinks or constraint.kind != "schema" or not any(letter < " " for letter in stop):
            raise UsageError(
                f"the stop text {stop!r} could cut an answer that must match a {constraint.noun}",
                "leave one of them out",
            )


def unenforced(constraint: Constraint | None) -> tuple[str, ...]:
    """Words of a schema that hold nothing, because no draft of JSON Schema knows them."""
    if constraint is None or constraint.kind != "schema":
        return ()
    return schema.unknown_keywords(schema.parse(constraint.text))


def _impossible(matcher: LLMatcher, constraint: Constraint, before: Sequence[int]) -> str:
    """Why no answer is sure to keep the shape, or none can end, as far as its beginning shows; empty where one may."""
    if constraint.kind == "schema" and (reason := schema.unenforceable(schema.parse(constraint.text))):
        return reason
    if len(matcher.compute_ff_bytes()) > MOST_FORCED_BYTES:
        return f"it begins with more than {MOST_FORCED_BYTES:,} bytes that are forced"
    ahead = matcher.deep_copy()
    ahead.try_consume_tokens(list(before))
    forced = ahead.compute_ff_tokens()
    ahead.try_consume_tokens(forced)
    ahead.compute_bitmask()
    if not ahead.is_error():  # some token may come next, or the end
        return ""
    if crowded := CROWDED.search(ahead.get_error()):
        return f"at one place {crowded[1]} things may follow, by the grammar's count, and {crowded[2]} are the most"
    return "nothing may follow what it forces" if forced else "it allows nothing"


def _slices() -> list[str]:
    """The library's kinds of tokens that it judges together, with SLICES in the place of its own lengths."""
    blanks, *_, rest = LLTokenizer.general_slices()
    return [blanks, *SLICES, rest]


def _reason(error: str) -> str:
    """The library's message without the grammar, which is ours for all but a grammar."""
    if "oneOf constraints are not supported" in error:
        return "two branches of a oneOf may fit one document, as far as their type, const and enum tell; try anyOf"
    said = error.partition("\n   1 | ")[0].partition("; following special tokens")[0]
    return said.rpartition("\nerror: ")[2].rpartition("failed to compile JSON schema: ")[2].partition(". Enable ")[0]


def read_constraint(kind: ShapeKind, value: str, option: str) -> Constraint:
    """What `value` says after `option`, such as --schema: a regular expression itself, a schema itself or its file, and
    a grammar's file.
    Raises: UsageError for no value at all, and for a file that cannot be read as UTF-8.
    """
    if not value.strip():
        raise UsageError(f"{option} is empty", "leave it out, or say what the answer must be")
    if kind == "regex" or (kind == "schema" and value.lstrip().startswith(("{", "["))):
        return Constraint(kind, value)
    path, hint = expanded(value), "name a file"
    if kind == "schema":
        hint = f'give a file, or the JSON itself: {option} \'{{"type": "object"}}\''
    return Constraint(kind, text_of_file(path, f"{option} {path}", hint))
