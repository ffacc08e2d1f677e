"""The door. Law: whoever is not this machine's user is turned away before anything is read, in the dialect's shape.

A web page can make a browser talk to a port of this machine. It cannot change the `Host` that it does so under, nor
send JSON elsewhere without asking first, nor know the key.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdec_cli.jsonfile import shown
from specdec_cli.serve.http.errors import HttpError
from specdec_cli.serve.http.page import is_page
from specdec_cli.serve.http.record import Record, Told
from specdec_cli.serve.http.reply import error_response

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
MOST_BODY_BYTES = 32_000_000
# From the first byte of a body to its last.
BODY_SECONDS = 30.0
DRAIN_SECONDS = 1.0
METHODS = "GET, POST, OPTIONS"


@dataclass(frozen=True, slots=True)
class Door:
    """Who may come in: by which names of this server, from which pages, with which key.

    `hosts` are further names, each at one port or, without one, at any.
    """

    port: int
    host: str = "127.0.0.1"
    key: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    most_body_bytes: int = MOST_BODY_BYTES
    body_seconds: float = BODY_SECONDS

    @property
    def url(self) -> str:
        """Where this machine's clients find it."""
        anywhere = self.host in ("0.0.0.0", "::")
        name = "127.0.0.1" if anywhere else f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}"

    def require(self, method: str, path: str, headers: Headers) -> None:
        """Raises: HttpError for a request that may not come in."""
        self._require_host(headers.get("host", "").lower())
        self._require_origin(headers.get("origin"), headers.get("host", "").lower())
        if "content-length" in headers and "transfer-encoding" in headers:
            raise HttpError(400, "a body has a Content-Length or comes in chunks: with both, proxies differ on its end")
        if method == "OPTIONS":
            return
        if self.key is not None and path != "/health" and not is_page(path):
            self._require_key(headers)
        if method == "POST":
            self._require_json(headers)

    def _require_host(self, host: str) -> None:
        """The port is ours, and the name is one that no other machine's owner can have pointed here."""
        name, port = host_and_port(host)
        if port == str(self.port) and (name in LOOPBACK or (self.foreign and self._is_ours(name))):
            return
        if host in self.hosts or name in self.hosts:
            return
        ours = f"it is localhost:{self.port}, and --allow-host gives it more names"
        raise HttpError(403, f"the Host {shown(host)} is not this server's: {ours}", code="host")

    @property
    def foreign(self) -> bool:
        """Whether other machines can reach it."""
        return not is_loopback(self.host)

    def _is_ours(self, name: str) -> bool:
        if name == self.host.lower():
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _require_origin(self, origin: str | None, host: str) -> None:
        if origin is None or origin in self.origins or origin in (f"http://{host}", f"https://{host}"):
            return
        raise HttpError(
            403, f"pages of {shown(origin)} may not use this server; --allow-origin lets them", code="origin"
        )

    def _require_key(self, headers: Headers) -> None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else "")
        assert self.key is not None
        if not hmac.compare_digest(given.encode(), self.key.encode()):
            raise HttpError(401, "this server wants its key: as Authorization: Bearer, or as x-api-key")

    def _require_json(self, headers: Headers) -> None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HttpError(415, f"the content type {shown(kind)} is not read; send application/json")
        if headers.get("content-encoding", "identity") != "identity":
            raise HttpError(415, "a compressed body is not read; send it as it is")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.most_body_bytes:
            raise self.too_large(length)

    def too_large(self, length: object) -> HttpError:
        """For a body of more bytes than are read."""
        return HttpError(413, f"a body of {length} bytes is more than the {self.most_body_bytes} that are read")

    def allowing(self, origin: str | None) -> Mapping[bytes, bytes]:
        """Headers of an answer to a page that may read it; none for any other."""
        if origin is None or origin not in self.origins:
            return {}
        return {b"access-control-allow-origin": origin.encode(), b"vary": b"Origin"}


def host_and_port(host: str) -> tuple[str, str]:
    """The name in a `Host`, and its port, empty where it has none."""
    name, _, port = host.rpartition(":")
    return (name, port) if port.isdigit() else (host, "")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the interface `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """The app behind its door; `tell` hears of who was not let in."""

    def __init__(self, app: ASGIApp, door: Door, tell: Told) -> None:
        self._app, self._door, self._tell = app, door, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        allowed = self._door.allowing(headers.get("origin"))

        async def answer(message: Message) -> None:
            if allowed and message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *allowed.items()]}
            await send(message)

        try:
            self._door.require(scope["method"], scope["path"], headers)
        except HttpError as error:
            self._tell(Record.of_refusal(scope["path"], error))
            await drain(receive)
            await error_response(scope["path"], closing(error))(scope, receive, answer)
            return
        if scope["method"] == "OPTIONS":
            await preflight(scope, receive, answer)
            return
        await self._app(scope, receive, answer)


async def preflight(scope: Scope, receive: Receive, send: Send) -> None:
    """What a browser asks before it lets a page send JSON."""
    headers = [
        (b"access-control-allow-methods", METHODS.encode()),
        (b"access-control-allow-headers", b"content-type, authorization, x-api-key, anthropic-version, anthropic-beta"),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def closing(error: HttpError) -> HttpError:
    """The same error, and the end of the connection: what is left of the body is not read."""
    return HttpError(error.status, error.message, error.param, error.code, {**error.headers, "Connection": "close"})


async def drain(receive: Receive) -> None:
    """Let a client say a little of what nobody reads: cut off while it sends, it would not see the answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass


async def read_body(receive: Receive, door: Door) -> bytes:
    """The whole body. Raises: HttpError for one that is too large, comes too slowly, or breaks off."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(door.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HttpError(400, "the body breaks off")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > door.most_body_bytes:
                    await drain(receive)
                    raise closing(door.too_large(f"over {size - 1}"))
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError as error:
        raise closing(HttpError(408, f"the body did not come within {door.body_seconds:g} s")) from error
