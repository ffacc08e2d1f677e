"""Prepares huggingface_hub's client, and explains its failures, the network's and the disk's in two lines.

The token goes to the host of HF_ENDPOINT and to no other, even after a redirect. A header that the library would take
for the commit that was asked for, or for the name of a file, is looked at before the library sees it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import huggingface_hub
from huggingface_hub import constants

from specdec_cli.core.errors import DISK_FULL, DoesNotFit, NotAvailable, SpecdecError, Unanswered
from specdec_cli.core.format import duration
from specdec_cli.core.jsonfile import shown
from specdec_cli.core.readfile import read_file
from specdec_cli.hub.cache import DISTRUST, cache_folder, require_digest

if TYPE_CHECKING:
    from httpx2 import Request, Response
    from huggingface_hub.errors import HfHubHTTPError

OFFICIAL = "https://huggingface.co"
CREDENTIALS = re.compile(r"//[^/@\s]*@")
PORTS = {"http": 80, "https": 443}
# The addresses of a file at a commit: (repository, commit, file).
FILE = re.compile(r"/(?:resolve-cache/models/)?([^/]+/[^/]+)/(?:resolve/)?([0-9a-f]{40})/(.+)")
PART = re.compile(r"bytes=\d+-\d+")
# In the ratelimit header: r=0 requests left, t seconds until the window ends.
WINDOW = re.compile(r"\br=0\b.*\bt=(\d+)")
MOST_WAIT_SECONDS = 60
# huggingface_hub sleeps as long as these answers ask for, and tries again.
RETRIED = (408, 429, 500, 502, 503, 504)
# (repository, commit) -> file -> digest, as the Hub listed them to this process.
LISTED: dict[tuple[str, str], dict[str, str | None]] = {}


def prepare() -> None:
    """Import huggingface_hub quietly: no telemetry, no log lines on stderr, progress at least once a megabyte."""
    constants.HF_HUB_DISABLE_TELEMETRY = True  # it may have been imported before the environment was set
    constants.DOWNLOAD_CHUNK_SIZE = 1 << 20  # its 10 MB steps look like a stall on a slow line
    # A mirror names its own Xet store, and hf_xet takes any folder for one, and the token to any address.
    constants.HF_HUB_DISABLE_XET = constants.HF_HUB_DISABLE_XET or not is_hub(OFFICIAL)
    library().logging.set_verbosity_error()
    warnings.filterwarnings("ignore", module="huggingface_hub")  # specdec reports a full disk itself
    _guard()


def library() -> Any:
    """`huggingface_hub.utils`, without types: its stub leaves out names that it exports, its HTTP client among them."""
    from huggingface_hub import utils

    return utils


@cache
def _guard() -> None:
    """Have every session of huggingface_hub, later ones too, call our hooks after its own."""
    hooks = huggingface_hub.get_session().event_hooks
    hooks = {
        "request": [*hooks["request"], keep_token_home],
        "response": [*hooks["response"], refuse_other_file, refuse_whole_file, refuse_long_wait],
    }
    huggingface_hub.set_client_factory(
        lambda: library().httpx.Client(event_hooks=hooks, follow_redirects=True, timeout=None)
    )


def keep_token_home(request: Request) -> None:
    """Remove the token from a request to any host other than the Hub."""
    if not is_hub(str(request.url)):
        request.headers.pop("authorization", None)


def refuse_other_file(response: Response) -> None:
    """Check the commit and the ETag of a file's answer: the library makes folders and files of these names.

    Under the ETag of another file the library would keep these bytes as that file's, or link that file here.
    Raises: NotAvailable.
    """
    asked = FILE.search(response.request.url.path)
    if asked is None:
        return
    name, commit, path = asked.groups()
    sent = response.headers.get("x-repo-commit", commit)
    if sent != commit:
        raise NotAvailable(
            f"the Hub sends {path} of {name} from commit {shown(sent)}, and {commit} was asked for", DISTRUST
        )
    etag = response.headers.get("x-linked-etag") or response.headers.get("etag")
    if etag is not None and response.request.method == "HEAD" and not _leads_on(response):
        digest, listed = require_digest(name, path, etag.lstrip("W/").strip('"')), LISTED.get((name, commit), {})
        if digest != listed.get(path) and digest in listed.values():
            raise NotAvailable(
                f"the Hub sends {path} of {name} under the digest of another of its files, {digest[:12]}", DISTRUST
            )


def _leads_on(response: Response) -> bool:
    """Whether the library asks again at the address of this redirect, and drops its other headers."""
    target = urljoin(str(response.request.url), response.headers.get("location", ""))
    return response.is_redirect and (is_hub(target) or _origin(target) == _origin(OFFICIAL))


def refuse_whole_file(response: Response) -> None:
    """Check that a part of a file is answered with a part: the library would hold the whole file in memory.

    Its own resuming, which asks for all from a place on, begins anew instead. Raises: NotAvailable.
    """
    if PART.fullmatch(response.request.headers.get("range", "")) and response.status_code == 200:
        raise NotAvailable(
            f"the server of {response.request.url.path[:200]} ignores byte ranges: it sends the whole file",
            "a proxy or HF_ENDPOINT's mirror does that; take a repository that holds the head alone: --draft ID",
        )


def asked_wait_seconds(headers: Mapping[str, str]) -> int | None:
    """The wait that an answer asks for, None where it asks for none or names a date."""
    window = WINDOW.search(headers.get("ratelimit", ""))
    wait = window.group(1) if window else headers.get("retry-after", "").strip()
    return int(wait[:18]) if wait.isascii() and wait.isdigit() else None


def refuse_long_wait(response: Response) -> None:
    """Do not wait for hours where the Hub asks for it. Raises: Unanswered above MOST_WAIT_SECONDS."""
    seconds = asked_wait_seconds(response.headers) if response.status_code in RETRIED else None
    if seconds and seconds > MOST_WAIT_SECONDS:
        raise Unanswered(
            f"{response.request.url.host} asks to wait {duration(seconds)} ({response.status_code})",
            "run the same command again then; hf auth login raises the limit",
        )


def is_hub(url: str) -> bool:
    """Whether this address has the host, port and scheme of HF_ENDPOINT."""
    return _origin(url) == _origin(constants.ENDPOINT)


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme)
    except ValueError:  # a port that is no number
        return "", url, None


def endpoint() -> str:
    """The Hub's address for messages, without a password."""
    return CREDENTIALS.sub("//", constants.ENDPOINT)


AGAIN = "run the same command again: complete files are kept, the one in progress restarts"
SHORT = re.compile(r"should be of size (\d+) but has size (\d+)")  # the library's only message for a truncated body
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def as_user_error(name: str, revision: str | None = None) -> Iterator[None]:
    """Turn failures of huggingface_hub inside this context into SpecdecErrors about `name`."""
    prepare()
    from huggingface_hub.errors import EntryNotFoundError

    httpx = library().httpx
    try:
        yield
    # The Xet transport raises RuntimeError when the connection breaks. An answer that is no JSON is a ValueError.
    except (httpx.HTTPError, httpx.InvalidURL, EntryNotFoundError, OSError, ValueError, RuntimeError) as error:
        raise explain(error, name, revision) from error


def explain(error: BaseException, name: str, revision: str | None = None) -> SpecdecError:
    """The SpecdecError for a failure of huggingface_hub, its HTTP client, hf_xet or the disk."""
    from huggingface_hub import errors

    httpx = library().httpx
    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # its own message, "check your connection", hides the reason
    if isinstance(error, errors.HfHubHTTPError):
        return _explain_answer(error, name, revision)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return NotAvailable(f"{name} is incomplete here, and HF_HUB_OFFLINE forbids downloads", "unset HF_HUB_OFFLINE")
    if isinstance(error, errors.HFValidationError):
        return NotAvailable(f"{name} is not a Hub id: {_line(error)}", "a Hub id looks like organisation/name")
    if isinstance(error, (errors.FileMetadataError, json.JSONDecodeError)):
        return no_hub(name)
    if isinstance(error, (httpx.TimeoutException, TimeoutError)):
        return Unanswered(f"{endpoint()} stopped answering while {name} was asked for", AGAIN)
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)):
        return Unanswered(f"the connection broke while {name} was downloading: {_line(error)}", AGAIN)
    if isinstance(error, (httpx.HTTPError, httpx.InvalidURL, ConnectionError)):
        hint = "check the network; a model that is already here runs with --offline"
        return Unanswered(f"cannot reach {endpoint()} for {name}: {_line(error)}", hint)
    return _explain_disk(error, name)


def no_hub(name: str) -> NotAvailable:
    """The error for an answer that no Hub gives."""
    return NotAvailable(
        f"{endpoint()} does not answer like a Hub when asked for {name}",
        "check HF_ENDPOINT, and whether a proxy or a login page is in between",
    )


def _explain_answer(error: HfHubHTTPError, name: str, revision: str | None) -> SpecdecError:
    from huggingface_hub import errors

    status, page = error.response.status_code, f"{endpoint()}/{name}"
    kinds = {
        errors.GatedRepoError: (
            f"{name} is gated: the Hub answers {status} until you accept its licence",
            f"accept it at {page}, then: hf auth login",
        ),
        errors.DisabledRepoError: (f"the Hub has disabled {name} ({status})", f"read why at {page}"),
        errors.RevisionNotFoundError: (
            f"{name} has no revision {revision}",
            f"see {page}/commits/main, or leave the revision out",
        ),
        errors.RemoteEntryNotFoundError: (
            f"{name} lists a file that the Hub does not have ({status})",
            f"look at {page}/tree/main",
        ),
    }
    for kind, lines in kinds.items():
        if isinstance(error, kind):
            return NotAvailable(*lines)
    if status == 404 or isinstance(error, errors.RepositoryNotFoundError):
        return NotAvailable(
            f"no such repository on {endpoint()}: {name}, or it is private ({status})",
            "check the spelling; if it is private: hf auth login",
        )
    if status in (401, 403):
        hint = "hf auth whoami, then hf auth login with a valid token"
        return NotAvailable(f"the Hub refuses {name} to your login ({status})", hint)
    if status == 429:
        wait = asked_wait_seconds(error.response.headers)
        hint = "wait a few minutes; hf auth login raises the limit" if wait is None else f"wait {duration(wait)}"
        return Unanswered(f"the Hub accepts no more requests from this machine for now (429, asked for {name})", hint)
    if status >= 500:
        hint = f"try later, {endpoint()} has problems right now"
        return Unanswered(f"the Hub is in trouble: it answers {status} for {name}", hint)
    return NotAvailable(f"the Hub answers {status} for {name}: {_line(error)}", f"look at {page}")


def _explain_disk(error: BaseException, name: str) -> SpecdecError:
    """The error for a disk failure or a truncated body. The Xet transport gives the disk's errno only in its text."""
    code = error.errno if isinstance(error, OSError) else None
    if code in DISK_FULL or "(os error 28)" in str(error):
        return DoesNotFit(
            f"the disk of {cache_folder()} is full, and {name} is incomplete",
            "free some space, or set HF_HOME to a folder on a bigger disk; " + AGAIN,
        )
    if code in FORBIDDEN or "(os error 13)" in str(error):
        path = error.filename if isinstance(error, OSError) and error.filename else cache_folder()
        return NotAvailable(
            f"no permission for {path}, where {name} belongs", "make it yours, or set HF_HOME to a folder of yours"
        )
    if code is not None:
        return NotAvailable(f"the cache cannot hold {name}: {_line(error)}", "check HF_HOME and HF_HUB_CACHE")
    if sizes := SHORT.search(str(error)):
        return NotAvailable(f"a file of {name} ended after {sizes[2]} of its {sizes[1]} bytes", AGAIN)
    if isinstance(error, RuntimeError):
        return NotAvailable(
            f"the Xet transport failed while {name} was downloading: {_line(error)}",
            "run the same command again, or with HF_HUB_DISABLE_XET=1 to fetch over plain HTTP",
        )
    return NotAvailable(f"{name} did not arrive complete: {_line(error)}", AGAIN)


def _line(error: BaseException) -> str:
    """The first line of a foreign message, at most 160 characters long and without passwords."""
    lines = CREDENTIALS.sub("//", str(error)).splitlines()
    text = next((line.strip() for line in lines if line.strip()), type(error).__name__)
    return text if len(text) <= 160 else text[:157] + "..."


TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def settings() -> Iterator[tuple[str, str, str]]:
    """(variable, effective value, what it means) of what is set. No network call, and no part of the token."""
    if endpoint() != OFFICIAL:
        yield "HF_ENDPOINT", endpoint(), "not the official Hub: what it lists is believed"
    source = token_source()
    sent = f"from {source}; goes to {endpoint()} and to no other host" if source else "only open models can be fetched"
    yield "HF_TOKEN", "present" if source else "none", sent
    for variable in ("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET"):
        if os.environ.get(variable):
            yield variable, os.environ[variable], "set in the environment"


def token_source() -> str | None:
    """The source of the token, None without one. huggingface_hub's own function may use the network."""
    for variable in TOKENS:
        if os.environ.get(variable, "").strip():
            return variable
    try:
        return "hf auth login" if read_file(constants.HF_TOKEN_PATH).decode().strip() else None
    except (OSError, ValueError):
        return None
