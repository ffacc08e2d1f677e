"""A drafted reply and plain decoding of its prompt, in turns of a few rounds: the paired truth about one reply.

The clock of one stands still while the other runs, so both have the same seconds, busy ones included.
"""

import time

from specdec_cli.engine import device
from specdec_cli.events import Finish, RoundDone
from specdec_cli.request import Request

NEVER = -1e9
# Drafted rounds in a turn; plain decoding then catches up.
TURN_ROUNDS = 4


class StoppedClock:
    """Seconds but for those in which it was stopped."""

    def __init__(self):
        self.stopped_seconds = 0.0

    def __call__(self):
        return time.perf_counter() - self.stopped_seconds


class Plain:
    """Plain decoding of the same prompt, some tokens at a time.

    The first step of each turn does not count: it was computed in the turn before, when nothing followed it.
    """

    def __init__(self, pair, prompt, request):
        self._events = pair.session().reply(prompt, request)
        self._done = self.tokens = 0
        self.seconds = 0.0
        self._advance(1)  # the prompt, and its token

    def catch_up(self, tokens):
        if tokens <= self._done:
            return
        self._done += self._advance(1)
        began, counted = time.perf_counter(), self._advance(tokens - self._done)
        self.seconds += time.perf_counter() - began
        device.settle()
        self.tokens += counted
        self._done += counted

    def _advance(self, wanted):
        found = 0
        while found < wanted:
            event = next(self._events)
            found += isinstance(event, RoundDone)
        return found


class Paired:
    """One reply of exactly `tokens` tokens: its `stats`, its tokens, and `truth`, the plain seconds ÷ its own.

    `session` has a StoppedClock; without one the reply has a session of its own, as that of another process has.
    """

    def __init__(self, pair, prompt, tokens, k, drafter, turn_rounds=TURN_ROUNDS, session=None):
        stops = tuple((token, NEVER) for token in pair.tokenizer.stop_tokens)
        self.session = session or pair.session(pair.slot(), StoppedClock())
        self.clock = self.session.clock
        self.request = Request(max_tokens=tokens, k=k, drafter=drafter, logit_bias=stops)
        plain = Plain(pair, prompt, Request(max_tokens=2 * tokens, k=0, logit_bias=stops))
        self.emitted, rounds = [], 0
        for event in self.session.reply(prompt, self.request):
            if isinstance(event, Finish):
                self.stats = event.stats
            if not isinstance(event, RoundDone):
                continue
            self.emitted += event.round.emitted
            rounds += 1
            if rounds % turn_rounds == 0 or len(self.emitted) == tokens:
                device.settle()  # what is queued for the next round is drafting's own time
                stopped = time.perf_counter()
                plain.catch_up(len(self.emitted) - 1)
                self.clock.stopped_seconds += time.perf_counter() - stopped
        seconds = self.stats["decode_seconds"] + self.stats["measuring_seconds"]
        self.truth = plain.seconds / plain.tokens * (len(self.emitted) - 1) / seconds
