"""Who may come in: whoever is not this machine's user is turned away before anything is read, in the dialect's shape.

A web page can make a browser talk to a port of this machine. It cannot change the `Host` that it does so under, nor
send JSON elsewhere without asking first, nor know the key.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from specdec_cli.jsonfile import shown
from specdec_cli.serve.http.errors import HttpError
from specdec_cli.serve.http.reply import Record, Told, error_response

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
MOST_BODY_BYTES, MOST_HEAD_BYTES = 32_000_000, 65_536
# From the first byte of a body to its last.
BODY_SECONDS = 30.0
DRAIN_SECONDS = 1.0
# The page at `/` may be had without the key, which it asks its reader for.
PAGE_PREFIX = "/page/"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """By which names of this server, from which pages and with which key one comes in.

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

    def require_place(self, headers: Headers) -> None:
        """Raises: HttpError for a `Host` that is not this server's, or a page that may not use it."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        name, port = host_and_port(host)
        ours = port == str(self.port) and (name in LOOPBACK or (not is_loopback(self.host) and self._is_ours(name)))
        if not ours and host not in self.hosts and name not in self.hosts:
            names = f"it is localhost:{self.port}, and --allow-host gives it more names"
            raise HttpError(403, f"the Host {shown(host)} is not this server's: {names}", code="host")
        if origin is not None and origin not in (*self.origins, f"http://{host}", f"https://{host}"):
            message = f"pages of {shown(origin)} may not use this server; --allow-origin lets them"
            raise HttpError(403, message, code="origin")

    def _is_ours(self, name: str) -> bool:
        """Whether `name` is the interface's, or an address: no page's owner can have pointed that here."""
        if name == self.host.lower():
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def require_rights(self, method: str, path: str, headers: Headers) -> None:
        """Raises: HttpError for a request without the key, or whose head or announced body is not read."""
        size = sum(len(name) + len(value) for name, value in headers.raw)
        if size > MOST_HEAD_BYTES:
            raise HttpError(431, f"a head of {size} bytes is more than the {MOST_HEAD_BYTES} that are read")
        if "content-length" in headers and "transfer-encoding" in headers:
            raise HttpError(400, "a body has a Content-Length or comes in chunks: with both, proxies differ on its end")
        if self.key is not None and path not in ("/health", "/") and not path.startswith(PAGE_PREFIX):
            scheme, _, token = headers.get("authorization", "").partition(" ")
            given = headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else "")
            if not hmac.compare_digest(given.encode(), self.key.encode()):
                raise HttpError(401, "this server wants its key: as Authorization: Bearer, or as x-api-key")
        if method == "POST":
            self._require_json(headers)

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


class AccessMiddleware:
    """The app behind its policy; `tell` hears of who was not let in.

    Pages that may use the server get their headers from Starlette's CORSMiddleware, also with a refusal. No name of a
    host with its port is known to Starlette's TrustedHostMiddleware, so the policy looks at it.
    """

    def __init__(self, app: ASGIApp, policy: AccessPolicy, tell: Told) -> None:
        self._app, self._policy, self._tell = app, policy, tell
        self._allowed: ASGIApp = self._let_in
        if policy.origins:
            self._allowed = CORSMiddleware(
                self._let_in, allow_origins=policy.origins, allow_methods=("GET", "POST"), allow_headers=("*",)
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        require = self._policy.require_place
        await self._guard(self._allowed, lambda: require(headers), scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, require = Headers(scope=scope), self._policy.require_rights
        await self._guard(self._app, lambda: require(scope["method"], scope["path"], headers), scope, receive, send)

    async def _guard(
        self, app: ASGIApp, require: Callable[[], None], scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            require()
        except HttpError as error:
            self._tell(Record.of_refusal(scope["path"], error))
            await drain(receive)
            app = error_response(scope["path"], closing(error))
        await app(scope, receive, send)


def closing(error: HttpError) -> HttpError:
    """The same error, and the end of the connection: what is left of the body is not read."""
    return HttpError(error.status, error.message, error.param, error.code, {**error.headers, "Connection": "close"})


async def drain(receive: Receive) -> None:
    """Let a client say a little of what nobody reads: cut off while it sends, it would not see the answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass


async def read_body(receive: Receive, policy: AccessPolicy) -> bytes:
    """The whole body. Raises: HttpError for one that is too large, comes too slowly, or breaks off."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(policy.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HttpError(400, "the body breaks off")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > policy.most_body_bytes:
                    await drain(receive)
                    raise closing(policy.too_large(f"over {size - 1}"))
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError as error:
        raise closing(HttpError(408, f"the body did not come within {policy.body_seconds:g} s")) from error
