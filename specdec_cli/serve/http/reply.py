"""Answers on their way to a client. Law: a client that leaves stops its jobs at once, whatever they are doing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from specdec_cli.events import Failure, RoundDone
from specdec_cli.serve.http.answer import Answer
from specdec_cli.serve.http.errors import HttpError, encoded, of_failure, shaped
from specdec_cli.serve.http.mailbox import Mailbox
from specdec_cli.serve.http.voice import SSE, Voice
from specdec_cli.serve.job import Ticket

LEFT = 499
ENDING = HttpError(503, "the server is ending")
# Proxies and clients take a silent connection for a dead one.
SILENCE_SECONDS = 12.0
Done = Callable[[Sequence[Answer], int], None]
"""Told of the answers and the status once a reply is over: before the client has the end of it, or has left."""


def json_response(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`values` as JSON."""
    return Response(encoded(values), status, headers, "application/json")


def error_response(path: str, error: HttpError) -> Response:
    """`error` in the shape of the path's dialect."""
    return json_response(shaped(path, error), error.status, dict(error.headers))


class Reply(Response):
    """The answers to one request, at once or as they come."""

    silence_seconds = SILENCE_SECONDS

    def __init__(
        self,
        voice: Voice,
        answers: Sequence[Answer],
        tickets: Sequence[Ticket],
        mailbox: Mailbox,
        done: Done,
    ) -> None:
        self._voice, self._answers, self._tickets = voice, answers, tickets
        self._mailbox, self._done = mailbox, done
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
            for ticket, answer in zip(self._tickets, self._answers, strict=True):
                if not answer.over:
                    ticket.cancel()
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
        self._mailbox.leave()

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        while not all(answer.over for answer in self._answers):
            for choice, event in await self._mailbox.take(None):
                self._feed(choice, event)
            if self._mailbox.gone:
                return await self._fail(ENDING, scope, receive, send)
            if failed := self._failure():
                return await self._fail(failed, scope, receive, send)
        self._status = 200
        self._end()
        await json_response(self._voice.whole(self._answers))(scope, receive, send)
        return None

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        letters = await self._mailbox.take(self.silence_seconds)
        for choice, event in letters:
            if isinstance(event, Failure):
                self._feed(choice, event)
                return await self._fail(of_failure(event), scope, receive, send)
        if self._mailbox.gone:
            return await self._fail(ENDING, scope, receive, send)
        headers = [(b"content-type", SSE.encode()), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._status, self._sent = 200, time.monotonic()
        await self._send(send, self._voice.begin())
        while True:
            said = b"".join(self._say(choice, event) for choice, event in letters)
            last = self._last()
            if last is not None:
                self._end()
            await self._send(send, said + (last or b"") or self._silence())
            if last is not None:
                break
            letters = await self._mailbox.take(self._until_silence())
            if self._mailbox.gone:
                self._status = self._gone
                self._end()
                if not self._left:
                    await self._send(send, self._voice.failed(ENDING))
                break
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b""})
        return None

    def _last(self) -> bytes | None:
        """What ends the stream, which may be nothing; None as long as it is not over."""
        if failed := self._failure():
            return self._voice.failed(failed)
        return self._voice.end(self._answers) if all(answer.over for answer in self._answers) else None

    @property
    def _gone(self) -> int:
        """The status of a reply that nobody waits for any more: its client left, or the server ends."""
        return LEFT if self._left else ENDING.status

    def _until_silence(self) -> float:
        """Seconds until the client must hear something: much may happen of which it is told nothing."""
        return max(0.0, self._sent + self.silence_seconds - time.monotonic())

    def _silence(self) -> bytes:
        return b"" if self._until_silence() else self._voice.silence

    def _say(self, choice: int, event: Any) -> bytes:
        """What one event becomes."""
        answer = self._answers[choice]
        said = b""
        if isinstance(event, RoundDone) and answer.ask.rounds:
            said = self._voice.show(choice, event)
        unread = answer.prefill is None
        pieces = self._feed(choice, event)
        if unread and answer.prefill is not None:
            said += self._voice.read(answer)
        said += b"".join(self._voice.say(choice, piece, answer) for piece in pieces)
        return said + (self._voice.close(choice, answer) if answer.finish is not None else b"")

    def _feed(self, choice: int, event: Any) -> list[Any]:
        answer = self._answers[choice]
        pieces = answer.feed(event)
        if answer.full and not answer.over:
            self._tickets[choice].cancel()
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
