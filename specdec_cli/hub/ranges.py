"""Reads a range of a file's bytes from the Hub. Law: a server that sends anything but that range is refused before
its bytes flow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.client import library
from specdec_cli.hub.layout import size_text
from specdec_cli.hub.snapshot import RemoteFile, Snapshot
from specdec_cli.hub.transfer import located

if TYPE_CHECKING:
    from httpx2 import Response

# Connections in a row that may break without a byte having come.
TRIES = 4
CHUNK_BYTES = 1 << 20
CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `begin` to `end` (exclusive) of a file."""

    file: RemoteFile
    begin: int
    end: int


def read_span(snapshot: Snapshot, span: Span) -> Iterator[bytes]:
    """The bytes of `span`, as they come. After a broken connection the rest is asked for anew.

    Raises: NotAvailable for another commit, another size, or a server that knows no ranges; what the client raises
    once it broke TRIES times without a byte.
    """
    httpx = library().httpx

    at, failures = span.begin, 0
    while at < span.end:
        asked = Span(span.file, at, span.end)
        try:
            for piece in _pieces(snapshot, asked):
                at += len(piece)
                failures = 0
                yield piece
        except httpx.TransportError:
            failures += 1
            if failures == TRIES:
                raise
        else:
            if at == asked.begin:
                raise _another_range(snapshot, asked, "nothing")


def _pieces(snapshot: Snapshot, span: Span) -> Iterator[bytes]:
    """One request. Raises: as `read_span`, and the client's TransportError for a body that ends early."""
    from huggingface_hub import get_session

    url, headers = located(snapshot, span.file)
    headers = {**headers, "range": f"bytes={span.begin}-{span.end - 1}", "accept-encoding": "identity"}
    with get_session().stream("GET", url, headers=headers, follow_redirects=True) as response:
        if response.status_code not in (200, 206, 416):
            response.read()
            library().hf_raise_for_status(response)
        _require_range(response, snapshot, span)
        left = span.end - span.begin
        for piece in response.iter_raw(CHUNK_BYTES):
            if len(piece) > left:
                raise _another_range(snapshot, span, "more bytes than that")
            left -= len(piece)
            yield piece


def _require_range(response: Response, snapshot: Snapshot, span: Span) -> None:
    """Raises: NotAvailable unless the answer is exactly `span` of a file of the listed size."""
    if response.status_code == 200:
        size = response.headers.get("content-length", "")
        sent = size_text(int(size)) if size.isdigit() else "the whole file"
        raise NotAvailable(
            f"the server of {span.file.path} of {snapshot.name} ignores byte ranges: it sends {sent} instead of "
            f"{size_text(span.end - span.begin)}",
            "a proxy or HF_ENDPOINT's mirror does that; take a repository that holds the head alone: --draft ID",
        )
    if response.status_code == 416:
        raise _another_range(snapshot, span, "no such bytes (416)")
    told = CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
    if told is None or (int(told[1]), int(told[2])) != (span.begin, span.end - 1):
        raise _another_range(snapshot, span, response.headers.get("content-range", "no range")[:80])
    if told[3] != "*" and span.file.size_bytes not in (0, int(told[3])):
        raise _another_range(snapshot, span, f"a file of {told[3]} bytes instead of {span.file.size_bytes}")


def _another_range(snapshot: Snapshot, span: Span, sent: str) -> NotAvailable:
    return NotAvailable(
        f"bytes {span.begin} to {span.end - 1} of {span.file.path} of {snapshot.name} were asked for, and the "
        f"server sends {sent}",
        "the same command again; if it says so again, check HF_ENDPOINT and proxies",
    )
