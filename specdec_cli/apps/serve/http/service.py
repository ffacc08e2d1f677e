"""From a body to a reply: the loop never waits for a tokenizer, a template or a grammar.

A few threads do this work: a long text is encoded a piece at a time, and lets the others run meanwhile.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from specdec_cli.apps.serve.http.access import UNDECLARED, AccessPolicy, drain, is_page
from specdec_cli.apps.serve.http.answer import ChatRequest, ServedAnswer
from specdec_cli.apps.serve.http.dialect import Dialect
from specdec_cli.apps.serve.http.errors import HttpError, as_http_error, bad_field
from specdec_cli.apps.serve.http.reply import LEFT, EventQueue, Record, ReplyResponse, Told, until_left
from specdec_cli.apps.serve.http.schema import ModelBody, parse
from specdec_cli.apps.serve.http.tools import constrain, describe
from specdec_cli.apps.serve.job import Job, JobHandle, TooLong
from specdec_cli.apps.serve.model import Model, Switch
from specdec_cli.apps.serve.scheduler import Scheduler
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.core.jsonfile import NotJson, parse_object, shown
from specdec_cli.core.request import Constraint, looks_up
from specdec_cli.hub import GGUF
from specdec_cli.models.grammar import require_possible
from specdec_cli.pairs.limits import too_long
from specdec_cli.pairs.names import settle
from specdec_cli.session.text import predicted_tokens

T = TypeVar("T")
Body = Mapping[str, Any]
Read = Callable[[Body, Model], ChatRequest]
Write = Callable[[ChatRequest], Dialect]
# A hint for whoever must shorten a body is the message itself.
NO_HINT = "shorten it"
# Threads that read requests: so many long texts are encoded at once, and a short one finds one beside them.
READERS = 8
# A prompt that is too long is counted to its end, for whoever must shorten it, unless it is so many times too long.
COUNTED_CONTEXTS = 2


@dataclass(slots=True)
class Service:
    """A pair at its scheduler, and those of `switch`, for all clients; `tell` hears of every reply once it is over."""

    model: Model
    scheduler: Scheduler
    policy: AccessPolicy
    tell: Told
    switch: Switch | None = None
    open: set[EventQueue] = field(default_factory=set)
    _said: set[tuple[str, str]] = field(default_factory=set)
    _reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(READERS, "reader"))

    async def body(self, request: HttpRequest) -> Body:
        """The body of a request, which says that it is JSON where a page may have sent it. Raises: HttpError."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and (kind not in UNDECLARED or is_page(request.headers)):
            await drain(request.receive)
            raise HttpError(415, f"the content type {shown(kind)} is not read; send application/json")
        found, most = bytearray(), self.policy.most_body_bytes
        try:
            async for part in request.stream():
                found += part
                if len(found) > most:
                    await drain(request.receive)
                    raise HttpError(413, f"a body of over {len(found) - 1} bytes exceeds the limit of {most}")
        except ClientDisconnect as error:
            raise HttpError(LEFT, "the client has disconnected") from error
        try:
            return parse_object(_decoded(bytes(found), request.headers.get("content-encoding", ""), most))
        except NotJson as error:
            raise HttpError(400, f"the body cannot be read: {error}") from error

    async def aside(self, work: Callable[[], T]) -> T:
        """What `work` gives, done in a reader's thread. Raises: HttpError."""

        def explaining() -> T:
            try:
                return work()
            except SpecdecError as error:
                raise as_http_error(error) from error

        return await asyncio.get_running_loop().run_in_executor(self._reader, explaining)

    async def while_there(self, request: HttpRequest, work: Callable[[Callable[[], bool]], T]) -> T:
        """What `work` gives, which may ask whether the client has disconnected. Raises: HttpError."""
        watcher = asyncio.create_task(until_left(request.receive))
        try:
            return await self.aside(lambda: work(watcher.done))
        finally:
            watcher.cancel()

    async def answer(self, request: HttpRequest, read: Read, write: Write) -> Response:
        """The reply to a request for an answer. Raises: HttpError."""
        began, events = time.monotonic(), EventQueue()
        start = partial(self._start, await self.body(request), read, write, events)
        dialect, answers, handles = await self.while_there(request, start)
        self.open.add(events)

        def done(answers: Sequence[ServedAnswer], status: int) -> None:
            self.open.discard(events)
            note = self._unread(answers[0].ask) if answers else ""
            self.tell(Record(request.url.path, status, time.monotonic() - began, tuple(answers), note=note))

        return ReplyResponse(dialect, answers, handles, events, done)

    def _start(
        self, body: Body, read: Read, write: Write, events: EventQueue, left: Callable[[], bool]
    ) -> tuple[Dialect, list[ServedAnswer], list[JobHandle]]:
        """Hand in the jobs of a body, unless its client has `left`."""
        ask = self.ask(body, read)
        dialect, request, model = write(ask), ask.request, self.find(ask.model)
        prompts = [self.prompt(one, left) for one in ask.each]
        jobs = [(attempt, *prompt) for prompt in prompts for attempt in range(ask.choices)]
        if not looks_up(request.drafter, request.k):  # the operator's choice: no client is to blame for it
            request = replace(request, predict="")
        if isinstance(request.predict, str) and request.predict:
            there = partial(require_there, left)
            predicted = predicted_tokens(model.tokenizer, request.predict, model.context_limit, there)
            request = replace(request, predict=predicted)
        if request.constraint is not None:
            require(request.constraint, ask)
        answers = [ServedAnswer(model, ask, prompt) for _, prompt, _ in jobs]
        handles: list[JobHandle] = []
        try:
            for choice, (attempt, prompt, prefixes) in enumerate(jobs):
                each, raw = replace(request, attempt=attempt), ask.text is not None or ask.begun
                whose = ask.conversation_id, ask.endpoint, raw, model.pair
                job = Job(prompt, each, prefixes, *whose, ask.unloads, ask.open_ended)
                handles.append(self.scheduler.submit(job, partial(events.deliver, choice)))
        except SpecdecError as error:
            for handle in handles:
                handle.cancel()
            raise as_http_error(error, ask.source) from error
        return dialect, answers, handles

    def ask(self, body: Body, read: Read) -> ChatRequest:
        """What the body asks of its model. Raises: HttpError, SpecdecError."""
        name = parse(ModelBody, body).model
        model = self.find(name)
        ask = replace(read(body, model), model=name or model.name)
        describe(ask.tools, model)
        if ask.begun and ask.request.constraint is not None:
            raise bad_field(ask.shape, "it constrains a whole answer, but the last message begins one")
        ask = constrain(ask, model)
        if ask.request.ignore_eos and ask.request.constraint is not None:
            raise bad_field("ignore_eos", f"the answer ends where {ask.shape} says")
        return ask

    def _unread(self, ask: ChatRequest) -> str:
        """What was asked of a template that reads nothing of it, once for each name."""
        model = self.find(ask.model)
        unread = dict.fromkeys(ask.template.unread_by(model.tokenizer.template_names), model.name)
        told = {name: whose for name, whose in unread.items() if (name, whose) not in self._said}
        self._said.update(told.items())
        return f"{', '.join(told)} had no effect: the template reads none" if told else ""

    def find(self, name: str | None) -> Model:
        """The model of that name. Raises: HttpError with those that there are; NotAvailable, Refused."""
        name = name and name.removesuffix(":latest")  # as Ollama's clients say that they name no other
        if self.model.answers_to(name):
            return self.model
        other = self.switch.find(str(name), settled) if self.switch else None
        if other is not None:
            return other
        here = [self.model.name, *(self.switch.here() if self.switch else ())]
        what = "here" if self.switch else "loaded"
        message = f"the model {shown(name)} is not {what}; what is: {', '.join(here)}"
        raise HttpError(404, message, "model", "model_not_found")

    def prompt(self, ask: ChatRequest, left: Callable[[], bool]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(ids, lengths of prefixes worth keeping), unless the client has `left`. Raises: HttpError."""
        model = self.find(ask.model)
        tools, there, limit = describe(ask.tools, model), partial(require_there, left), model.context_limit

        def look(tokens: int) -> None:
            there()
            if limit is not None and tokens >= COUNTED_CONTEXTS * limit and ask.truncated is None:
                raise TooLong(too_long(f"at least {tokens}", limit), NO_HINT)

        try:
            if ask.text is None:
                ids = model.prompt(ask.messages, ask.template, tools, look)
            else:
                ids = model.tokenizer.encode(ask.text, look) if isinstance(ask.text, str) else list(ask.text)
            if not ids:
                raise bad_field(ask.source, "it is empty: 0 tokens")
            ids = _last(ids, ask, limit)
            if limit is not None and len(ids) >= limit:
                raise TooLong(too_long(len(ids), limit), NO_HINT)
        except SpecdecError as error:
            raise as_http_error(error, ask.source) from error
        if ask.text is not None:
            return tuple(ids), ask.reusable_prefixes
        return tuple(ids), model.reusable_prefixes(ids, ask.messages, ask.template, tools, there)

    def leave(self) -> None:
        """End every reply, as if its client had left; from the loop."""
        for events in tuple(self.open):
            events.leave()


def settled(name: str) -> str:
    """As `settle`, but a name of several models is none. Raises: HttpError for GGUF."""
    try:
        return settle(name)
    except SpecdecError as error:
        if GGUF not in error.message:
            return name
        raise HttpError(404, f"{error.message}; {error.hint}", "model", "model_not_found") from error


def _decoded(data: bytes, encoding: str, most: int) -> bytes:
    """A body as it was before it was packed, up to `most` bytes of it. Raises: HttpError."""
    if encoding.lower() in ("", "identity"):
        return data
    if encoding.lower() not in ("gzip", "x-gzip", "deflate"):
        raise HttpError(415, f"the content encoding {shown(encoding)} is not read; send it as gzip, or as it is")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # of gzip or zlib, as the data says
    try:
        found = unpacker.decompress(data, most + 1)
    except zlib.error as error:
        raise HttpError(400, f"the body cannot be unpacked as {encoding}") from error
    if len(found) > most:
        raise HttpError(413, f"a body of over {most} bytes exceeds the limit of {most}")
    return found


def _last(ids: list[int], ask: ChatRequest, limit: int | None) -> list[int]:
    """The tokens that are read, the last ones."""
    if ask.truncated is None:
        return ids
    most = ask.truncated if ask.truncated >= 0 else limit and limit - min(ask.request.max_tokens, limit // 2) - 1
    return ids if most is None else ids[-most:] if most else []


def require_there(left: Callable[[], bool], tokens: int = 0) -> None:
    """Raises: HttpError, which nobody hears, once the client has `left`."""
    if left():
        raise HttpError(LEFT, "the client has disconnected")


def require(constraint: Constraint, ask: ChatRequest) -> None:
    """Raises: HttpError for a shape that cannot be enforced, under the name of the field that asked for it.

    A grammar of calls holds ids of this model's, and is made of parts that were looked at one by one.
    """
    if constraint.kind == "grammar":
        return
    try:
        require_possible(constraint, ask.request.stop)
    except UsageError as error:
        message = error.message.replace("--stop", "stop")
        raise HttpError(400, message, ask.shape, "invalid_schema") from error
