"""A desk over tiny networks, and clients that wait for their events."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import cache

from fakes.chat import BYTES, NEVER_STOP, loaded, networks, tokenizer_in
from specdec_cli.apps.serve.job import Job
from specdec_cli.apps.serve.model import Model
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.core.events import Failure, Finish, Prefill, RoundDone
from specdec_cli.core.request import Request
from specdec_cli.engine.model import CachedModel
from specdec_cli.pairs.files import find
from specdec_cli.pairs.pair import PairSpec
from specdec_cli.session.slot import Slot

KINDS = {"plain": "qwen3", "window": "gemma3_text", "recurrent": "qwen3_5"}
WAIT_SECONDS = 60.0


@cache
def _networks(kind, **more):
    return networks(KINDS[kind], **more)


def tiny_loaded(folder, kind="plain", context_limit=None, draft=True, kv_bits=None):
    """A LoadedPair of that kind of cache over bytes, its weights shared by all that are made so."""
    made = _networks(kind, **({"head_dim": 32} if kv_bits else {}))
    target, other = (CachedModel(network, kind, context_limit, kv_bits) for network in made)
    return loaded(Slot(target, other if draft else None), tokenizer_in(folder))


def model_of(pair, base, since):
    """What clients may know of a pair that is loaded."""
    return Model.of(find(PairSpec(pair.pair)), base, since)


def ids(tokens, seed=0):
    """So many ids without a pattern, none of them special."""
    return tuple(3 + (seed * 31 + i * i * 7 + i * (seed + 3)) % (BYTES - 3) for i in range(tokens))


def job(prompt, tokens=12, ends=(), key=None, **more):
    more = {"k": 3, "logit_bias": NEVER_STOP, **more}
    return Job(tuple(prompt), Request(max_tokens=tokens, **more), tuple(ends), key, "test")


# Requests whose text depends on their rounds take turns.
TURNS = {"seed": 5, "rule": "block", "sampling": {"temperature": 0.9}}


class Client:
    """Hands one job in and keeps its events."""

    def __init__(self, desk, job, on_event=lambda client, event: None):
        self.job, self.events, self.done, self._on_event = job, [], threading.Event(), on_event
        self.ticket = None
        self.ticket = desk.submit(job, self._deliver)

    def _deliver(self, event):
        assert not self.done.is_set(), "an event came after the last one"
        self.events.append(event)
        self._on_event(self, event)
        if isinstance(event, Finish | Failure):
            self.done.set()

    def wait(self):
        assert self.done.wait(WAIT_SECONDS), "no last event came"
        return self

    @property
    def end(self):
        return self.events[-1]

    @property
    def prefill(self):
        return next(event for event in self.events if isinstance(event, Prefill))

    @property
    def read_tokens(self):
        """Tokens of the prompt that were read anew."""
        return self.prefill.prompt_tokens - self.prefill.cached_tokens

    @property
    def tokens(self):
        return tuple(t for event in self.events if isinstance(event, RoundDone) for t in event.round.emitted)


class Desk(Scheduler):
    """A scheduler that takes no job on while it is `held`: those that come meanwhile begin together."""

    def __init__(self, *given, **named):
        self._open = threading.Event()
        self._open.set()
        super().__init__(*given, **named)

    @contextmanager
    def held(self):
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def _begin(self):
        self._open.wait()
        super()._begin()


def desk_of(pair, switch=None, **options):
    """Of a pair, or of what loads it; `switch` loads by name."""
    load = switch or (lambda name: pair() if callable(pair) else pair)
    return Desk(load, SchedulerOptions(**{"cache_bytes": 1 << 30, **options}))


def answer(desk, job):
    return Client(desk, job).wait()


def together(desk, jobs, on_event=lambda client, event: None):
    """The clients of `jobs`, which began at once, when all have their last event."""
    with desk.held():
        clients = [Client(desk, one, on_event) for one in jobs]
    return [client.wait() for client in clients]


def alone(pair, job):
    """The tokens of the same request in a session of its own."""
    return list(pair.session().reply(job.prompt, job.request, raw=job.raw))[-1].tokens
