"""Answers on their way to a client: one that leaves stops its jobs at once, whatever they are doing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from specdec_cli.apps.serve.http.answer import Delta, ServedAnswer
from specdec_cli.apps.serve.http.dialect import Dialect
from specdec_cli.apps.serve.http.errors import HttpError, error_body, of_failure, to_json
from specdec_cli.apps.serve.job import JobHandle
from specdec_cli.core.events import Event, RoundDone
from specdec_cli.core.jsonfile import shown

LEFT = 499
ENDING = HttpError(503, "the server is shutting down")
# Proxies and clients take a silent connection for a dead one.
SILENCE_SECONDS = 12.0
Numbered = tuple[int, Event]
Done = Callable[[Sequence[ServedAnswer], int], None]
"""Told of the answers and the status once a reply is over: before the client has the end of it, or has left."""


def json_response(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`values` as JSON."""
    return Response(to_json(values), status, headers, "application/json")


def error_response(path: str, error: HttpError, closing: bool = False) -> Response:
    """`error` in the shape of the path's dialect; `closing` the connection, what is left of the body is not read."""
    headers = {**error.headers, **({"Connection": "close"} if closing else {})}
    return json_response(error_body(path, error), error.status, headers)


@dataclass(frozen=True, slots=True)
class Record:
    """A reply of `path` with its answers; status 499 where the client left, 503 where the server ended.

    `broken` says what failed before there was any, in the operator's words, `refused` names the field or the rule for
    which nothing was done. `note` is what its operator should know once.
    """

    path: str
    status: int
    seconds: float
    answers: tuple[ServedAnswer, ...] = ()
    broken: str = ""
    refused: str = ""
    note: str = ""

    @classmethod
    def of_refusal(cls, path: str, error: HttpError) -> Record:
        """A request that was not let in; what it said is not kept, and its path may be anything."""
        name = shown(path).strip('"')
        return cls(name, error.status, 0.0, broken=error.cause, refused=error.param or error.code or "")

    @property
    def failure(self) -> str:
        """Why the server failed, in the operator's words; empty where it did not."""
        return self.broken or next((answer.failure.message for answer in self.answers if answer.failure), "")

    @property
    def facts(self) -> dict[str, Any]:
        """Figures without words."""
        stats = [answer.stats for answer in self.answers]
        seconds = sum(one.get("decode_seconds") or 0.0 for one in stats)
        timed = sum(one.get("timed_tokens", 0) for one in stats)
        return {
            "path": self.path,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "prompt_tokens": sum(len(answer.prompt) for answer in self.answers),
            "cached_tokens": sum(answer.cached for answer in self.answers),
            "disk_tokens": sum(answer.from_disk for answer in self.answers),
            "emitted_tokens": sum(answer.emitted for answer in self.answers),
            "tokens_per_second": round(timed / seconds, 1) if seconds and timed else None,
            "failure": self.failure,
            "refused": self.refused,
            "note": self.note,
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
    """The events of all answers to one request, from the scheduler's thread into the loop, each with its answer's
    number. The scheduler never waits for a client. `gone` once nobody reads on."""

    def __init__(self) -> None:
        self._loop, self._events = asyncio.get_running_loop(), asyncio.Queue[Numbered | None]()
        self.gone = False

    def deliver(self, choice: int, event: Event) -> None:
        """From any thread, at any time."""
        with suppress(RuntimeError):  # the loop has ended, and its clients with it
            self._loop.call_soon_threadsafe(self._events.put_nowait, (choice, event))

    def leave(self) -> None:
        """Nobody reads on; from the loop."""
        self.gone = True
        self._events.put_nowait(None)

    async def take(self, seconds: float | None) -> list[Numbered]:
        """All that has come; waits for the first, and is empty after so many seconds, or when `gone`."""
        found: list[Numbered | None] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                found.append(await self._events.get())
        while not self._events.empty():
            found.append(self._events.get_nowait())
        return [] if self.gone else [one for one in found if one is not None]


class ReplyResponse(Response):
    """The answers to one request, at once or as they come."""

    silence_seconds = SILENCE_SECONDS
    background = None

    def __init__(
        self,
        dialect: Dialect,
        answers: Sequence[ServedAnswer],
        handles: Sequence[JobHandle],
        events: EventQueue,
        done: Done,
    ) -> None:
        self._dialect, self._answers, self._handles = dialect, answers, handles
        self._events, self._done = events, done
        self._left, self._over = False, False
        self._sent = time.monotonic()

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
            self._end(LEFT)

    async def _watch(self, receive: Receive) -> None:
        await until_left(receive)
        self._left = True
        self._events.leave()

    def _end(self, status: int) -> None:
        """It is over; whoever asks for figures after its last byte finds it among them."""
        if not self._over:
            self._over = True
            self._done(self._answers, LEFT if self._left else status)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        while not self._finished:
            for choice, event in await self._events.take(None):
                self._feed(choice, event)
            if error := self._error():
                self._end(error.status)
                return await error_response(scope["path"], error)(scope, receive, send)
        self._end(200)
        return await json_response(self._dialect.whole(self._answers))(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = self._dialect.begin()
        said += self._say(await self._events.take(self.silence_seconds))
        if error := self._error():
            self._end(error.status)
            return await error_response(scope["path"], error)(scope, receive, send)
        media_type = self._dialect.media_type.encode()
        headers = [(b"content-type", media_type), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while True:
            error = self._error()
            over = error is not None or self._finished
            if over:
                said += self._dialect.failed(error) if error else self._dialect.end(self._answers)
                self._end(ENDING.status if error is ENDING else 200)
            if not self._left and (said := said or (b"" if self._until_silence else self._dialect.silence)):
                self._sent = time.monotonic()
                await send({"type": "http.response.body", "body": said, "more_body": True})
            if over:
                return await send({"type": "http.response.body", "body": b""})
            said = self._say(await self._events.take(self._until_silence))

    @property
    def _finished(self) -> bool:
        return all(answer.over for answer in self._answers)

    @property
    def _until_silence(self) -> float:
        """Seconds until the client must hear something: much may happen of which it is told nothing."""
        return max(0.0, self._sent + self.silence_seconds - time.monotonic())

    def _error(self) -> HttpError | None:
        """Why there will be no whole answer."""
        if self._events.gone:
            return ENDING
        return next((of_failure(answer.failure) for answer in self._answers if answer.failure), None)

    def _say(self, events: Sequence[Numbered]) -> bytes:
        """What events become."""
        said = b""
        for choice, event in events:
            answer = self._answers[choice]
            if isinstance(event, RoundDone) and answer.ask.rounds:
                said += self._dialect.show(choice, event)
            unread = answer.prefill is None
            deltas = self._feed(choice, event)
            if unread and answer.prefill is not None:
                said += self._dialect.read(answer)
            said += b"".join(self._dialect.say(choice, delta, answer) for delta in deltas)
            said += self._dialect.close(choice, answer) if answer.finish is not None else b""
        return said

    def _feed(self, choice: int, event: Event) -> list[Delta]:
        answer = self._answers[choice]
        deltas = answer.feed(event)
        if answer.full and not answer.over:
            self._handles[choice].cancel()
        return deltas


async def until_left(receive: Receive) -> None:
    """Until the client has disconnected. Starlette tells nobody of it: it has to be asked."""
    while (await receive())["type"] != "http.disconnect":
        pass
