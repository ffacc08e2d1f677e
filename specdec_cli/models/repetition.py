"""When an answer has become a loop (pure). Law: what is found depends on the tokens alone, not on their rounds."""

from __future__ import annotations


class Repetition:
    """Watches an answer for a phrase written again and again.

    Found when the last `tokens` tokens have a period of at most half of them: one phrase, twice or more, and nothing
    else. 0 watches for nothing. A token costs O(`tokens`).
    """

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._recent: list[int] = []
        # [p - 1]: how many of the last tokens were each what stood p before.
        self._runs = [0] * (tokens // 2)

    def feed(self, token: int) -> bool:
        """Takes the next token; whether the answer is now a loop."""
        found = False
        for period, run in enumerate(self._runs, 1):
            if period > len(self._recent):
                break
            run = run + 1 if self._recent[-period] == token else 0
            self._runs[period - 1] = run
            found = found or run + period >= self._tokens
        self._recent = [*self._recent, token][-max(len(self._runs), 1) :]
        return found
