"""Who may come in: whoever is not this machine's user is turned away before anything is read, in the dialect's shape.

A web page can make a browser talk to a port of this machine. It cannot change the `Host` that it does so under, nor
leave out what names it (`is_page`), nor send JSON elsewhere without asking first, nor know the key.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from specdec_cli.apps.serve.http.errors import HttpError, dialect_path
from specdec_cli.apps.serve.http.reply import Record, Told, error_response
from specdec_cli.core.jsonfile import shown

# What programs say that do not declare their JSON: nothing, or what curl and HTTP libraries add. A page's form
# says the same.
UNDECLARED = ("", "application/octet-stream", "application/x-www-form-urlencoded", "text/plain")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
MOST_BODY_BYTES, MOST_HEAD_BYTES = 32_000_000, 65_536
DRAIN_SECONDS = 1.0
# The page at `/` may be had without the key, which it asks its reader for.
PAGE_PREFIX = "/page/"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """By which names of this server, from which pages and with which key one comes in.

    `hosts` are further names, each at one port or, without one, at any. `SCHEME://*` among `origins` is any of it.
    """

    port: int
    host: str = "127.0.0.1"
    key: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    most_body_bytes: int = MOST_BODY_BYTES

    @property
    def url(self) -> str:
        """Where this machine's clients find it."""
        anywhere = self.host in ("0.0.0.0", "::")
        name = "127.0.0.1" if anywhere else f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}"

    def require_place(self, scope: Scope, headers: Headers) -> None:
        """Raises: HttpError for a `Host` that is not this server's, or a page that may not use it."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        name = host_and_port(host)[0]
        # On an open interface any address will do: no page's owner can have pointed that here.
        ours = name in (*LOOPBACK, self.host.lower()) or (not is_loopback(self.host) and is_address(name))
        if not ours and host not in self.hosts and name not in self.hosts:
            names = f"it is localhost:{self.port}, and --allow-host gives it more names"
            raise HttpError(403, f"the Host {shown(host)} is not this server's: {names}", code="host")
        pages = (*self.origins, f"http://{host}", f"https://{host}")
        scheme = (origin or "").partition("://")[0]
        if origin is not None and origin not in pages and f"{scheme}://*" not in self.origins:
            message = f"pages from {shown(origin)} may not use this server; --allow-origin permits them"
            raise HttpError(403, message, code="origin")

    def require_rights(self, scope: Scope, headers: Headers) -> None:
        """Raises: HttpError for a request without the key, or whose head is too long."""
        size, path = sum(len(name) + len(value) for name, value in headers.raw), scope["path"]
        if size > MOST_HEAD_BYTES:
            raise HttpError(431, f"a head of {size} bytes exceeds the limit of {MOST_HEAD_BYTES}")
        if self.key is not None and path not in ("/health", "/") and not path.startswith(PAGE_PREFIX):
            scheme, _, token = headers.get("authorization", "").partition(" ")
            given = headers.get("x-api-key", ""), token.strip() if scheme.lower() == "bearer" else ""
            if not any(hmac.compare_digest(one.encode(), self.key.encode()) for one in given):
                raise HttpError(401, "this server requires its key: as Authorization: Bearer, or as x-api-key")


def is_page(headers: Headers) -> bool:
    """Whether a browser may have sent this for a page, as what no page can leave out or change says.

    `Origin` is in every POST of a browser, whoever asks; newer ones name the page's place besides. A program sends
    neither. Source: https://fetch.spec.whatwg.org/#origin-header, https://w3c.github.io/webappsec-fetch-metadata/
    """
    return "origin" in headers or "sec-fetch-site" in headers


def host_and_port(host: str) -> tuple[str, str]:
    """The name in a `Host`, and its port, empty where it has none."""
    name, _, port = host.rpartition(":")
    return (name, port) if port.isdigit() else (host, "")


def is_address(name: str) -> bool:
    """Whether `name` is an IP address."""
    try:
        return bool(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the interface `host`."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


class Guard:
    """The app behind a rule; whoever `require` refuses hears why, and so does `tell`."""

    def __init__(self, app: ASGIApp, require: Callable[[Scope, Headers], None], tell: Told) -> None:
        self._app, self._require, self._tell = app, require, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, headers = self._app, Headers(scope=scope)
        try:
            self._require(scope, headers)
        except HttpError as error:
            self._tell(Record.of_refusal(scope["path"], error))
            await drain(receive)
            app = error_response(dialect_path(scope["path"], headers), error, closing=True)
        await app(scope, receive, send)


async def drain(receive: Receive) -> None:
    """Read and drop some of the body: a client that is cut off while it sends would not see the refusal."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
