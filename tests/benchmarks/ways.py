"""Ways to answer a prompt with the same two models: mlx-lm's own loops, and ours by the session that users have.

Seconds are those of the whole answer, reading the prompt included. Greedy answers are compared token for token.
"""

import sys
import time

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler

UNCUT = {"top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0, "seed": None}


class Ways:
    """Each way takes the ids of a prompt, and returns seconds a token.

    `rounds` are those of our last answer, `differed` the prompts to which two greedy answers were not the same.
    """

    def __init__(self, pair, tokens, clock=time.perf_counter, ends=True):
        """An answer has at most `tokens` tokens; unless it `ends`, stop tokens are tokens as any other."""
        self.pair, self.tokens, self.clock, self.ends = pair, tokens, clock, ends
        self.rounds, self.said, self.differed = [], {}, []

    def warm_up(self, ways, prompt):
        """A few tokens in each of these ways, discarded."""
        tokens, self.tokens = self.tokens, 6
        for way in ways:
            way(prompt)
        self.tokens, self.said = tokens, {}

    def plain(self, temperature=0.0):
        """mlx-lm's plain decoding."""
        return self._theirs(generate_step, (self.pair.first.target,), temperature)

    def mlx_lm(self, k, temperature=0.0):
        """mlx-lm's speculative loop."""
        both = self.pair.first.target, self.pair.first.draft
        return self._theirs(speculative_generate_step, both, temperature, num_draft_tokens=k)

    def ours(self, temperature=0.0, cold=False, **options):
        """A session of its own; what it learned stays with the pair. `cold`: as if nothing had been learned before."""

        def answer(prompt):
            if cold:
                self.pair.costs.clear()
            session = self.pair.session(clock=self.clock)
            asked = UNCUT | {"max_tokens": self.tokens, "ignore_eos": not self.ends, "temperature": temperature}
            began = self.clock()
            events = list(session.reply(prompt, **asked, **options))
            self.rounds = [event.round for event in events if event.event == "round"]
            return self._took(began, prompt, [token for one in self.rounds for token in one.emitted], temperature)

        return answer

    def _theirs(self, loop, models, temperature, **options):
        networks = [model.network.module for model in models]
        stops = self.pair.tokenizer.stop_tokens if self.ends else ()
        sampler = make_sampler(temp=temperature) if temperature else None

        def answer(prompt):
            mx.random.seed(0)
            began, said = self.clock(), []
            for token, *_ in loop(mx.array(prompt), *networks, max_tokens=self.tokens, sampler=sampler, **options):
                said.append(int(token))
                if said[-1] in stops:
                    break
            return self._took(began, prompt, said, temperature)

        return answer

    def _took(self, began, prompt, said, temperature):
        seconds = self.clock() - began
        known = said if temperature else self.said.setdefault(tuple(prompt), said)
        if known != said:
            at = next((i for i, both in enumerate(zip(known, said, strict=False)) if len({*both}) > 1), len(known))
            print(f"  answers differ at token {at}: a near-tie, or a fault", file=sys.stderr, flush=True)
            self.differed.append(prompt)
        return seconds / len(said)
