"""A Hub on loopback, speaking what huggingface_hub 2 uses, with faults that can be switched on.

Two real HTTP servers: the Hub itself (model info, tree, resolve with HEAD and GET) and, on another port as in life,
the CDN that big files are redirected to. Commits are whole folders kept in memory; small files are named by git's
sha-1, big ones (`*.safetensors`, `*.bin`) by their sha256. Everything comes over plain HTTP
unless `xet_url` is set; no Xet store is spoken here. A hostile mirror is a Hub whose `lie_listed` and `lie_headers`
change what it would say, and whose commits' blobs are replaced by others.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BIG = (".safetensors", ".bin")
TREE_PAGE = 3  # entries a page, so that pagination happens
REQUEST_PATTERNS = {
    "info": re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?"),
    "tree": re.compile(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)"),
    "token": re.compile(r"/api/models/([^/]+/[^/]+)/xet-read-token/([^/]+)"),
    "resolve": re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)"),
    "cache": re.compile(r"/api/resolve-cache/models/([^/]+/[^/]+)/([^/]+)/(.+)"),
    "cdn": re.compile(r"/cdn/([0-9a-f]{64})/(.+)"),
}


@dataclass
class Blob:
    """A file's bytes, with the digests the Hub would give."""

    path: str
    data: bytes

    @property
    def is_big(self) -> bool:
        return self.path.endswith(BIG)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def git_sha1(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.is_big else self.git_sha1


class Claimed(bytes):
    """Bytes that say they are ten terabytes."""

    def __len__(self) -> int:
        return 10**13


@dataclass
class Fault:
    """What to do to requests whose `METHOD PATH` matches; `times` counts down, None is for ever.

    kind: status, html, cut (stop after `at` bytes of the file), short (a shorter file, honestly announced),
    corrupt (a byte flipped), slow (`seconds` before every piece).
    """

    kind: str
    match: str = ""
    times: int | None = None
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    at: int = 0
    seconds: float = 0.0


@dataclass
class Request:
    """One logged request; `token` is its Authorization, `sent` counts the bytes of its body that were a file's."""

    method: str
    path: str
    range: str | None
    host: str
    token: str | None
    sent: int = 0


class HubServer:
    """`with HubServer() as hub:`; `hub.url` is the HF_ENDPOINT."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, dict[str, Blob]]] = {}
        self.refs: dict[tuple[str, str], str] = {}
        self.faults: list[Fault] = []
        self.log: list[Request] = []
        self.lie_listed: Callable[[dict[str, Any]], object] = lambda info: info
        self.lie_headers: Callable[[str, dict[str, str]], dict[str, str]] = lambda path, headers: headers
        self.xet_url: str | None = None  # where Xet chunks are said to be; None is a Hub without Xet
        self.lock = threading.Lock()
        self.servers = [_server(self), _server(self)]
        self.url, self.cdn_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in self.servers)
        self.threads = [threading.Thread(target=s.serve_forever, args=(0.02,), daemon=True) for s in self.servers]

    def __enter__(self) -> HubServer:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def commit(self, name: str, files: Path | dict[str, bytes], *refs: str) -> str:
        """Publish a folder (or names and bytes) as a new commit of `name`, and point main and `refs` to it."""
        if isinstance(files, Path):
            files = {p.relative_to(files).as_posix(): p.read_bytes() for p in files.rglob("*") if p.is_file()}
        commits = self.repos.setdefault(name, {})
        sha = hashlib.sha1(f"{name} {len(commits)}".encode()).hexdigest()
        commits[sha] = {path: Blob(path, data) for path, data in files.items()}
        for ref in ("main", *refs):
            self.refs[name, ref] = sha
        return sha

    def fail(self, kind: str, match: str = "", **values: object) -> None:
        self.faults.append(Fault(kind, match, **values))

    def fault(self, line: str) -> Fault | None:
        """The fault for this request, counted down."""
        with self.lock:
            for fault in self.faults:
                if re.search(fault.match, line) and fault.times != 0:
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    def calls(self) -> list[str]:
        """`METHOD path` of every request so far, in order of arrival."""
        return [f"{request.method} {request.path}" for request in self.log]

    def fetched(self) -> dict[str, int]:
        """Bytes of file bodies sent so far, by file name."""
        sent: dict[str, int] = {}
        for request in self.log:
            if request.sent:
                file = request.path.rsplit("/", 1)[-1]
                sent[file] = sent.get(file, 0) + request.sent
        return sent

    def forget(self) -> None:
        """Empty the log and heal all faults."""
        self.log.clear()
        self.faults.clear()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    hub: HubServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up (killed, or cut on purpose) is no news."""


def _server(hub: HubServer) -> _Quiet:
    server = _Quiet(("127.0.0.1", 0), _Handler)
    server.hub = hub
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Quiet

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.handle_request()

    def do_POST(self) -> None:
        """Nothing here is ever posted to; the log shows who tried."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.handle_request()

    def do_GET(self) -> None:
        self.handle_request()

    def handle_request(self) -> None:
        path = unquote(urlsplit(self.path).path)
        heard = [self.headers.get(name) for name in ("Range", "Host", "Authorization")]
        self.entry = Request(self.command, path, *heard)
        with self.server.hub.lock:
            self.server.hub.log.append(self.entry)
        fault = self.server.hub.fault(f"{self.command} {path}")
        if fault is not None and fault.kind == "status":
            return self.refuse(fault.status, fault.headers)
        if fault is not None and fault.kind == "html":
            return self.answer(200, b"<html>log in to the hotel's network</html>", {"Content-Type": "text/html"})
        for kind, pattern in REQUEST_PATTERNS.items():
            if match := pattern.fullmatch(path):
                return getattr(self, f"do_{kind}")(fault, *match.groups())
        return self.refuse(404, {})

    def find(self, name: str, revision: str | None) -> tuple[str, dict[str, Blob]] | None:
        """The commit, or None after the Hub's own 404."""
        hub = self.server.hub
        name = self.spelled(name)
        if name not in hub.repos:
            self.refuse(404, {"X-Error-Code": "RepoNotFound"})
            return None
        sha = hub.refs.get((name, revision or "main"), revision or "")
        if sha not in hub.repos[name]:
            self.refuse(404, {"X-Error-Code": "RevisionNotFound"})
            return None
        return sha, hub.repos[name][sha]

    def spelled(self, name: str) -> str:
        """The repository's own spelling: the Hub ignores case."""
        return next((known for known in self.server.hub.repos if known.lower() == name.lower()), name)

    def do_info(self, fault: Fault | None, name: str, revision: str | None) -> None:
        if found := self.find(name, revision):
            sha, files = found
            siblings = [{"rfilename": b.path, "size": len(b.data), "blobId": b.git_sha1} for b in files.values()]
            for sibling, blob in zip(siblings, files.values(), strict=True):
                if blob.is_big:
                    sibling["lfs"] = {"sha256": blob.sha256, "size": len(blob.data), "pointerSize": 134}
            info = {"id": self.spelled(name), "sha": sha, "siblings": siblings}
            self.answer(200, json.dumps(self.server.hub.lie_listed(info)).encode())

    def do_tree(self, fault: Fault | None, name: str, revision: str) -> None:
        if found := self.find(name, revision):
            entries = [
                {"type": "file", "path": b.path, "size": len(b.data), "oid": b.git_sha1}
                | ({"lfs": {"oid": b.sha256, "size": len(b.data), "pointerSize": 134}} if b.is_big else {})
                for b in found[1].values()
            ]
            url = urlsplit(self.path)
            start = int(parse_qs(url.query).get("cursor", ["0"])[0])
            more = start + TREE_PAGE < len(entries)
            link = f'<{self.server.hub.url}{url.path}?recursive=True&cursor={start + TREE_PAGE}>; rel="next"'
            body = json.dumps(entries[start : start + TREE_PAGE]).encode()
            self.answer(200, body, {"Link": link} if more else {})

    def do_resolve(self, fault: Fault | None, name: str, revision: str, path: str) -> None:
        """Big files are elsewhere; small ones are a relative redirect away, as on today's Hub."""
        if found := self.find(name, revision):
            sha, files = found
            if path not in files:
                self.refuse(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
                return
            blob = files[path]
            headers = {
                "X-Repo-Commit": sha,
                "X-Linked-Etag": f'"{blob.etag}"',
                "X-Linked-Size": str(len(blob.data)),
                "Location": f"/api/resolve-cache/models/{name}/{sha}/{path}",
            }
            if blob.is_big:
                headers["Location"] = f"{self.server.hub.cdn_url}/cdn/{blob.sha256}/{path}"
            if blob.is_big and self.server.hub.xet_url:
                token = f"{self.server.hub.url}/api/models/{name}/xet-read-token/{sha}"
                headers |= {"X-Xet-Hash": blob.sha256, "Link": f'<{token}>; rel="xet-auth"'}
            self.answer(302 if blob.is_big else 307, b"", headers)

    def do_token(self, fault: Fault | None, name: str, revision: str) -> None:
        url = str(self.server.hub.xet_url)
        keys = {"X-Xet-Cas-Url": url, "X-Xet-Access-Token": "t", "X-Xet-Token-Expiration": "4102444800"}
        self.answer(200, b"{}", keys)

    def do_cache(self, fault: Fault | None, name: str, revision: str, path: str) -> None:
        if found := self.find(name, revision):
            blob = found[1][path]
            self.send_blob(blob, fault, {"ETag": f'"{blob.etag}"', "X-Repo-Commit": found[0]})

    def do_cdn(self, fault: Fault | None, sha256: str, path: str) -> None:
        for commits in self.server.hub.repos.values():
            for files in commits.values():
                if path in files and files[path].sha256 == sha256:
                    return self.send_blob(files[path], fault, {"ETag": f'"{sha256}"'})
        return self.refuse(404, {})

    def send_blob(self, blob: Blob, fault: Fault | None, headers: dict[str, str]) -> None:
        data, kind = blob.data, fault.kind if fault else ""
        if fault and kind == "corrupt":
            data = data[: fault.at] + bytes([data[fault.at] ^ 1]) + data[fault.at + 1 :]
        if fault and kind == "short":
            data = data[: fault.at]
        start, end = 0, len(data)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked:
            start, end = int(asked.group(1)), min(int(asked.group(2) or len(data)) + 1, len(data))
            if start >= len(data):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            headers = headers | {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
        self.send_response(206 if asked else 200)
        headers = {"Content-Length": str(end - start), "Accept-Ranges": "bytes"} | headers
        for key, value in self.server.hub.lie_headers(self.entry.path, headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.send_body(data[:end], start, fault if kind in {"cut", "slow"} else None)

    def send_body(self, data: bytes, start: int, fault: Fault | None) -> None:
        end = fault.at if fault and fault.kind != "slow" else len(data)
        step = 1 << 16
        for at in range(start, max(start, end), step):
            piece = data[at : min(at + step, end)]
            self.entry.sent += len(piece)  # before it is read: who asks after an answer must find all of it counted
            self.wfile.write(piece)
            if fault and fault.kind == "slow":
                time.sleep(fault.seconds)
        if fault and fault.kind != "slow":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def refuse(self, status: int, headers: dict[str, str]) -> None:
        body = json.dumps({"error": headers.get("X-Error-Message", "refused")}).encode()
        self.answer(status, body, headers)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": "application/json"} | (headers or {})
        for key, value in self.server.hub.lie_headers(self.entry.path, headers).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
