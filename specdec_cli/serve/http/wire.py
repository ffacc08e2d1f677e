"""uvicorn's HTTP, with a limit to how slowly a request's head may come, and errors of its own in JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from specdec_cli.serve.http.errors import HttpError, encoded, shaped

HEAD_SECONDS = 10.0


class Wire(H11Protocol):
    """A connection that is closed where a head is begun and not ended in time, or none is sent at all."""

    head_seconds = HEAD_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """The first head is due."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more."""
        self._expected()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head that goes on does not get more time for it."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            if self._deadline is None:
                self._expect()
        else:
            self._expected()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is answered as everything else is."""
        body = encoded(shaped("/", HttpError(400, msg)))
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()

    def _expect(self) -> None:
        self._deadline = self.loop.call_later(self.head_seconds, self._late)

    def _expected(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
