"""The files of the page at `/`. Law: nothing secret is in them, and a browser lets them do nothing but ask this server.

They may be had without the key, which they ask their reader for. `Door` knows them by `PREFIX`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from starlette.responses import Response

Files = Mapping[str, bytes]
"""Address -> content."""

ADDRESS, PREFIX = "/", "/page/"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", "": "text/html"}
POLICY = {
    "default-src": "'none'",
    **dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'"),
    **dict.fromkeys(("base-uri", "form-action", "frame-ancestors"), "'none'"),
    # Text of a model can never become markup, whatever mistake a script makes.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def is_page(path: str) -> bool:
    """Whether the page, or a file of it, is at `path`."""
    return path == ADDRESS or path.startswith(PREFIX)


def file_response(path: str, content: bytes) -> Response:
    """A file of the page."""
    return Response(content, headers=HEADERS, media_type=f"{TYPES[PurePosixPath(path).suffix]}; charset=utf-8")
