"""Between the ids of two tokenizers, by the bytes they mean (pure).

Timor et al. 2025 (arXiv:2502.05202, "token-level intersection"); not in the paper: tokens are compared as bytes, which
finds newlines and other scripts where the spellings of two kinds of tokenizer differ. Special tokens have no bytes:
they are translated by equal role alone.
Law: what a context is for the draft depends on each of its tokens alone. So the ids of a longer context begin with
those of a shorter one, and the draft's caches are kept and rolled back as any draft's, by its own ids.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from importlib import resources

from specdec_cli.models.vocab import TokenTable


def sample_text() -> str:
    """Prose, code, JSON and other scripts, about as much of each as is asked for."""
    return (resources.files("specdec_cli.models") / "sample.txt").read_text(encoding="utf-8")


class Translation:
    """`said[target id]` is the draft's id of the same word or end: what the draft can say, one id for one id."""

    def __init__(self, target: TokenTable, draft: TokenTable, begin: Sequence[int] = ()) -> None:
        """`begin` are the draft's ids before every text."""
        self._target, self._words, self.begin = target, _ids_of(draft), tuple(begin)
        self._longest = max(map(len, self._words), default=0)
        ours = _ids_of(target)
        words = ((ours[word], token) for word, token in self._words.items() if word in ours)
        self.said: Mapping[int, int] = dict(words) | _of_role("eos", target, draft)
        # Other ids of a word that have a better one, such as a byte's own, stand in a context all the same.
        self._spelled: dict[int, tuple[int, ...]] = {
            one: (other,) for one, other in (self.said | _of_role("bos", target, draft)).items()
        }

    def spelled(self, token: int) -> tuple[int, ...]:
        """The draft's ids of one `token` of the target's, at least one: its own, else the longest words it is made of.

        A special token without one of equal role is its name; a byte that the draft cannot say is left out.
        """
        if token not in self._spelled:
            self._spelled[token] = self._spell(self._target.tokens.get(token, b""))
        return self._spelled[token]

    def _spell(self, word: bytes) -> tuple[int, ...]:
        found, at = [], 0
        while at < len(word):
            ends = range(min(len(word), at + self._longest), at, -1)
            end = next((end for end in ends if word[at:end] in self._words), None)
            found += [self._words[word[at:end]]] if end else []
            at = end or at + 1
        return tuple(found) or (self.begin or (0,))[:1]

    def share(self, tokens: Sequence[int]) -> float:
        """The share of the target's `tokens` that the draft can say."""
        return sum(token in self.said for token in tokens) / len(tokens)


def _ids_of(table: TokenTable) -> dict[bytes, int]:
    """The id of each word: of several, the first that is no fallback for a byte, which a tokenizer would take."""
    no_words = table.special.union(table.roles.values())
    words = (token for token, word in table.tokens.items() if word and token not in no_words)
    return {table.tokens[token]: token for token in sorted(words, key=lambda one: (one not in table.fallback, -one))}


def _of_role(role: str, target: TokenTable, draft: TokenTable) -> dict[int, int]:
    ours, theirs = target.roles.get(role), draft.roles.get(role)
    return {} if ours is None or theirs is None else {ours: theirs}


class TranslatedText:
    """A context that grows, in the draft's ids: `ids`; its first n tokens end at `ends[n]`."""

    def __init__(self, translation: Translation, context: Sequence[int] = ()) -> None:
        self._translation = translation
        self.ids: list[int] = []
        self.ends = [0]
        self.follow(context)

    def follow(self, context: Sequence[int]) -> list[int]:
        """Read on what `context` has more; all of its ids."""
        for token in context[len(self.ends) - 1 :]:
            spelled = self._translation.spelled(token)
            if not self.ids and spelled != self._translation.begin:
                self.ids += self._translation.begin
            self.ids += spelled
            self.ends.append(len(self.ids))
        return self.ids

    def tokens_at(self, length: int) -> int:
        """How many tokens of the context end within the first `length` ids."""
        return bisect_right(self.ends, length) - 1
