"""Answers on their way to a client: one that leaves stops its jobs at once, whatever they are doing."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from specdec_cli.events import Event, Failure, RoundDone
from specdec_cli.jsonfile import shown
from specdec_cli.serve.http.answer import Answer
from specdec_cli.serve.http.dialect import SSE, Dialect
from specdec_cli.serve.http.errors import HttpError, error_body, of_failure, to_json
from specdec_cli.serve.queue import JobHandle

LEFT = 499
ENDING = HttpError(503, "the server is ending")
# Proxies and clients take a silent connection for a dead one.
SILENCE_SECONDS = 12.0
Numbered = tuple[int, Event]
Done = Callable[[Sequence[Answer], int], None]
"""Told of the answers and the status once a reply is over: before the client has the end of it, or has left."""


def json_response(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`values` as JSON."""
    return Response(to_json(values), status, headers, "application/json")


def error_response(path: str, error: HttpError) -> Response:
    """`error` in the shape of the path's dialect."""
    return json_response(error_body(path, error), error.status, dict(error.headers))


@dataclass(frozen=True, slots=True)
class Record:
    """A reply of `path` with its answers; status 499 where the client left, 503 where the server ended.

    `broken` says what failed before there was any, in the operator's words, `refused` names the field or the rule for
    which nothing was done.
    """

    path: str
    status: int
    seconds: float
    answers: tuple[Answer, ...] = ()
    broken: str = ""
    refused: str = ""

    @classmethod
    def of_refusal(cls, path: str, error: HttpError) -> Record:
        """A request that was not let in; what it said is not kept, and its path may be anything."""
        name = shown(path).strip('"')
        return cls(name, error.status, 0.0, broken=error.cause, refused=error.param or error.code or "")

    @property
    def failure(self) -> str:
        """Why the server failed, in the operator's words; empty where it did not."""
        failures = (answer.failure.message for answer in self.answers if answer.failure)
        return self.broken or next(failures, "")

    @property
    def facts(self) -> dict[str, Any]:
        """Figures without words."""
        stats = [answer.stats for answer in self.answers]
        seconds = sum(one.get("decode_seconds") or 0.0 for one in stats)
        emitted = sum(answer.emitted for answer in self.answers)
        return {
            "path": self.path,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "prompt_tokens": sum(len(answer.prompt) for answer in self.answers),
            "cached_tokens": sum(answer.cached for answer in self.answers),
            "emitted_tokens": emitted,
            "tokens_per_second": round((emitted - 1) / seconds, 1) if seconds and emitted > 1 else None,
            "failure": self.failure,
            "refused": self.refused,
            "draft_n": sum(one.get("draft_n", 0) for one in stats),
            "draft_n_accepted": sum(one.get("draft_n_accepted", 0) for one in stats),
        }

    @property
    def words(self) -> dict[str, Any]:
        """Prompt and answers as text; several prompts as a list."""
        if not self.answers:
            return {}
        prompts = [one.model.text(one.prompt) for one in self.answers[:: self.answers[0].ask.choices]]
        return {
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "answers": [answer.finish.text if answer.finish else answer.text for answer in self.answers],
        }


Told = Callable[[Record], None]


class EventQueue:
    """The events of all answers to one request, from the scheduler's thread into the loop.

    `gone` once nobody reads them. The scheduler never waits for a client. Each event comes with its answer's number.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: deque[Numbered] = deque()
        self._arrived = asyncio.Event()
        self.gone = False

    def deliver(self, choice: int, event: Event) -> None:
        """From any thread, at any time."""
        self._events.append((choice, event))
        with suppress(RuntimeError):  # the loop has ended, and its clients with it
            self._loop.call_soon_threadsafe(self._arrived.set)

    def leave(self) -> None:
        """Nobody reads on; from the loop."""
        self.gone = True
        self._arrived.set()

    async def take(self, seconds: float | None) -> list[Numbered]:
        """All that has come; waits for the first, and is empty after so many seconds, or when `gone`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._events and not self.gone:
                    self._arrived.clear()
                    await self._arrived.wait()
        return [] if self.gone else [self._events.popleft() for _ in range(len(self._events))]


class Reply(Response):
    """The answers to one request, at once or as they come."""

    silence_seconds = SILENCE_SECONDS

    def __init__(
        self,
        dialect: Dialect,
        answers: Sequence[Answer],
        handles: Sequence[JobHandle],
        events: EventQueue,
        done: Done,
    ) -> None:
        self._dialect, self._answers, self._handles = dialect, answers, handles
        self._events, self._done = events, done
        self._left = False
        self._status, self._over = LEFT, False
        self._sent = time.monotonic()
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(self._watch(receive))
        try:
            if self._answers[0].ask.stream:
                await self._stream(scope, receive, send)
            else:
                await self._whole(scope, receive, send)
        except OSError:
            pass  # the client left while it was written to
        finally:
            watcher.cancel()
            for handle, answer in zip(self._handles, self._answers, strict=True):
                if not answer.over:
                    handle.cancel()
            self._end()

    def _end(self) -> None:
        """It is over; whoever asks for figures after its last byte finds it among them."""
        if not self._over:
            self._over = True
            self._done(self._answers, self._status)

    async def _watch(self, receive: Receive) -> None:
        """Starlette tells nobody that a client left: it has to be asked."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._events.leave()

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        while not all(answer.over for answer in self._answers):
            for choice, event in await self._events.take(None):
                self._feed(choice, event)
            if self._events.gone:
                return await self._fail(ENDING, scope, receive, send)
            if failed := self._failure():
                return await self._fail(failed, scope, receive, send)
        self._status = 200
        self._end()
        await json_response(self._dialect.whole(self._answers))(scope, receive, send)
        return None

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        events = await self._events.take(self.silence_seconds)
        for choice, event in events:
            if isinstance(event, Failure):
                self._feed(choice, event)
                return await self._fail(of_failure(event), scope, receive, send)
        if self._events.gone:
            return await self._fail(ENDING, scope, receive, send)
        headers = [(b"content-type", SSE.encode()), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._status, self._sent = 200, time.monotonic()
        await self._send(send, self._dialect.begin())
        while True:
            said = b"".join(self._say(choice, event) for choice, event in events)
            last = self._last()
            if last is not None:
                self._end()
            await self._send(send, said + (last or b"") or self._silence())
            if last is not None:
                break
            events = await self._events.take(self._until_silence())
            if self._events.gone:
                self._status = self._gone
                self._end()
                if not self._left:
                    await self._send(send, self._dialect.failed(ENDING))
                break
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b""})
        return None

    def _last(self) -> bytes | None:
        """What ends the stream, which may be nothing; None as long as it is not over."""
        if failed := self._failure():
            return self._dialect.failed(failed)
        return self._dialect.end(self._answers) if all(answer.over for answer in self._answers) else None

    @property
    def _gone(self) -> int:
        """The status of a reply that nobody waits for any more: its client left, or the server ends."""
        return LEFT if self._left else ENDING.status

    def _until_silence(self) -> float:
        """Seconds until the client must hear something: much may happen of which it is told nothing."""
        return max(0.0, self._sent + self.silence_seconds - time.monotonic())

    def _silence(self) -> bytes:
        return b"" if self._until_silence() else self._dialect.silence

    def _say(self, choice: int, event: Event) -> bytes:
        """What one event becomes."""
        answer = self._answers[choice]
        said = b""
        if isinstance(event, RoundDone) and answer.ask.rounds:
            said = self._dialect.show(choice, event)
        unread = answer.prefill is None
        pieces = self._feed(choice, event)
        if unread and answer.prefill is not None:
            said += self._dialect.read(answer)
        said += b"".join(self._dialect.say(choice, piece, answer) for piece in pieces)
        return said + (self._dialect.close(choice, answer) if answer.finish is not None else b"")

    def _feed(self, choice: int, event: Event) -> list[Any]:
        answer = self._answers[choice]
        pieces = answer.feed(event)
        if answer.full and not answer.over:
            self._handles[choice].cancel()
        return pieces

    def _failure(self) -> HttpError | None:
        return next((of_failure(answer.failure) for answer in self._answers if answer.failure), None)

    async def _fail(self, error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
        self._status = self._gone if error is ENDING else error.status
        self._end()
        await error_response(scope["path"], error)(scope, receive, send)

    async def _send(self, send: Send, body: bytes) -> None:
        if body:
            self._sent = time.monotonic()
            await send({"type": "http.response.body", "body": body, "more_body": True})
