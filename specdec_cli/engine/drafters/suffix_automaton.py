"""The earlier occurrence of a text's end (pure), by O(1) work a token (amortised).

An index of every substring of a growing text: the suffix automaton (Blumer et al. 1985). Its suffix link from the whole
text is the longest end of the text that occurred earlier, which is what prompt lookup (Saxena 2023) looks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# No token: what was predicted ends there, and no match runs across.
BREAK = -1
# Tokens of the prompt's end that what was predicted is found by, before anything was emitted.
REMEMBERED = 8
# Tokens of a long beginning that are taken in at once, some 20 ms of work: between two steps a reply may be cancelled.
STEP_TOKENS = 8192


class SuffixMatch(NamedTuple):
    """The last `length` tokens occurred before, and were followed by position `start`."""

    length: int
    start: int


class SuffixAutomaton:
    """A text that only grows, and its automaton. State 0 is the empty word."""

    def __init__(self, prompt: Sequence[int] = (), predicted: Sequence[int] = ()) -> None:
        """The text begins with `prompt`, taken in as it is opened or followed.

        With ids that are `predicted` to follow `prompt`, it begins as if they had done so once before.
        """
        self._opening = [*prompt, *predicted, BREAK, *prompt[-REMEMBERED:]] if predicted else list(prompt)
        self._beside = len(self._opening) - len(prompt)
        self._predicted = range(len(prompt), len(prompt) + len(predicted)) if predicted else range(0)
        self._text: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._longest = [0]
        # The position after an earlier occurrence of the state's words: the first, or the latest that was looked up.
        self._after = [0]
        self._whole = 0
        self.match = SuffixMatch(0, 0)

    @property
    def predicts(self) -> bool:
        """Whether what followed the match is what was predicted."""
        return self.match.start in self._predicted

    def __len__(self) -> int:
        return len(self._text)

    def open(self) -> bool:
        """Take in a step of what the text begins with; whether that is all of it. Until then there is no match."""
        done = len(self._text)
        for token in self._opening[done : done + STEP_TOKENS]:
            self.append(token)
        if done < len(self._opening) and not (self._predicted and len(self._text) == len(self._opening)):
            self.match = SuffixMatch(0, 0)  # how a prompt repeats itself is not how the answer repeats it
        return len(self._text) >= len(self._opening)

    def follow(self, context: Sequence[int]) -> None:
        """The text is now `context`, which begins with the old one; `match` is of its new end.

        Unless it is still being opened: then only a step of that is done.
        """
        if self.open():
            for token in self.unread(context):
                self.append(token)

    def unread(self, context: Sequence[int]) -> Sequence[int]:
        """What `context` has that the text has not."""
        return context[len(self._text) - self._beside :]

    def continuation(self, k: int) -> list[int]:
        """`k` tokens after the earlier occurrence; where the text ends first, what repeated goes round again."""
        length, start = self.match
        if not length:
            return []
        if start < self._predicted.stop:
            return self._text[start : min(start + k, self._predicted.stop)]
        period = len(self._text) - start
        return [self._text[start + i % period] for i in range(k)]

    def append(self, token: int) -> None:
        """The text is one token longer; `match` is of its new end."""
        self._text.append(token)
        whole = self._add(len(self._text), {}, len(self._text))
        state = self._whole
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = whole
            state = self._link[state]
        self._link[whole] = self._find_or_split(state, token) if state >= 0 else 0
        self._whole = whole
        found = self._link[whole]
        self.match = SuffixMatch(self._longest[found], self._after[found])
        if self._predicted and self.match.start == self._predicted.stop:
            self.match = SuffixMatch(0, 0)  # nothing is predicted beyond the end
        self._after[found] = len(self._text)

    def _find_or_split(self, state: int, token: int) -> int:
        """The state of the longest word that ends in `token` after `state`; split off if it holds longer words."""
        reached = self._next[state][token]
        if self._longest[reached] == self._longest[state] + 1:
            return reached
        split = self._add(self._longest[state] + 1, dict(self._next[reached]), self._after[reached])
        self._link[split], self._link[reached] = self._link[reached], split
        while state >= 0 and self._next[state].get(token) == reached:
            self._next[state][token] = split
            state = self._link[state]
        return split

    def _add(self, longest: int, following: dict[int, int], after: int) -> int:
        self._next.append(following)
        self._link.append(-1)
        self._longest.append(longest)
        self._after.append(after)
        return len(self._next) - 1
