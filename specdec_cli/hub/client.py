"""Prepares huggingface_hub's client, and explains its failures, the network's and the disk's in two lines.

The token goes to the host of HF_ENDPOINT and to no other, even after a redirect. A header that the library would take
for the commit that was asked for, or for the name of a file, is looked at before the library sees it.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import huggingface_hub
from huggingface_hub import constants

from specdec_cli.core.errors import DISK_FULL, DoesNotFit, NotAvailable, SpecdecError
from specdec_cli.core.format import duration
from specdec_cli.core.jsonfile import shown
from specdec_cli.hub.cache import DISTRUST, cache_folder, require_digest

if TYPE_CHECKING:
    from httpx2 import Request, Response

OFFICIAL = "https://huggingface.co"
CREDENTIALS = re.compile(r"//[^/@\s]*@")
PORTS = {"http": 80, "https": 443}
# The addresses of a file at a commit: (repository, commit, file).
FILE = re.compile(r"/(?:resolve-cache/models/)?([^/]+/[^/]+)/(?:resolve/)?([0-9a-f]{40})/(.+)")
PART = re.compile(r"bytes=\d+-\d+")
MOST_WAIT_SECONDS = 60
# `hf` is on no path where specdec was installed as a tool.
LOG_IN = "set HF_TOKEN=hf_… (huggingface.co/settings/tokens), or: uvx --from huggingface_hub hf auth login"
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
INVALID_TOKEN = re.compile(r"invalid credentials|\btoken\b", re.I)  # without one the Hub says "username or password"
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


def refuse_long_wait(response: Response) -> None:
    """Do not wait for hours where the Hub asks for it: huggingface_hub would, without a word.

    Raises: NotAvailable above MOST_WAIT_SECONDS.
    """
    window = library().parse_ratelimit_headers(response.headers) if response.status_code == 429 else None
    asked = response.headers.get("retry-after", "")
    wait = str(window.reset_in_seconds) if window is not None and window.remaining == 0 else asked
    seconds = int(wait[:18]) if response.is_error and wait.isdecimal() else 0
    if seconds > MOST_WAIT_SECONDS:
        raise NotAvailable(
            f"{response.request.url.host} asks to wait {duration(seconds)} ({response.status_code})",
            f"run the same command again then; a login raises the limit: {LOG_IN}",
        )


def is_hub(url: str) -> bool:
    """Whether this address has the host, port and scheme of HF_ENDPOINT."""
    return _origin(url) == _origin(constants.ENDPOINT)


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)  # the library's own parser: where another disagrees, it takes an ETag that nobody saw
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme)
    except ValueError:  # a port that is no number
        return "", url, None


def endpoint() -> str:
    """The Hub's address for messages, without a password."""
    return CREDENTIALS.sub("//", constants.ENDPOINT)


ELSEWHERE = ", or set HF_HOME to a folder on a bigger disk"
AGAIN = "run the same command again: complete files are kept, the one in progress restarts"


@contextmanager
def as_user_error(name: str, heads: Path | None = None) -> Iterator[None]:
    """Turn failures of huggingface_hub inside this context into SpecdecErrors about `name`; as `explain`."""
    from huggingface_hub.errors import EntryNotFoundError

    prepare()
    httpx = library().httpx
    try:
        yield
    # The Xet transport raises RuntimeError when the connection breaks. An answer that is no JSON is a ValueError.
    except (httpx.HTTPError, httpx.InvalidURL, EntryNotFoundError, OSError, ValueError, RuntimeError) as error:
        raise explain(error, name, heads) from error


def explain(error: BaseException, name: str, heads: Path | None = None) -> SpecdecError:
    """What a failure of huggingface_hub, its HTTP client, hf_xet or the disk says of itself, with the next command.

    The disk is that of the cache, or of the folder of `heads`.
    """
    from huggingface_hub import errors

    httpx = library().httpx
    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # its own message, "check your connection", hides the reason
    text, page = f"{name} cannot be fetched from {endpoint()}: {_line(error)}", f"{endpoint()}/{name}"
    if isinstance(error, errors.HfHubHTTPError):
        status, said = error.response.status_code, error.response.headers.get("x-error-message", "")
        if said:  # the library puts an address and an id of a request before it
            text = f"{name} cannot be fetched from {endpoint()}: {_line(f'{status} {said}')}"
        if isinstance(error, errors.GatedRepoError):
            return NotAvailable(text, f"accept its licence at {page}, then {LOG_IN}")
        if status == 401 and INVALID_TOKEN.search(said):
            source = next(filter(os.environ.get, TOKENS), None)
            leave = f"unset {source}" if source else "uvx --from huggingface_hub hf auth logout"
            return NotAvailable(text, f"{leave} (open models need no token), or a new one: {LOG_IN}")
        if isinstance(error, (errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError)):
            return NotAvailable(text, f"look at {page}/tree/main, or leave the revision out")
        if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 404):
            return NotAvailable(text, f"check the spelling; if it is private, {LOG_IN}")
        if status == 429 or status >= 500:
            return NotAvailable(text, f"try again in a few minutes; a login raises the limit: {LOG_IN}")
        return NotAvailable(text, f"look at {page}, and at your login: specdec doctor")
    if isinstance(error, (errors.FileMetadataError, json.JSONDecodeError)):
        return no_hub(name)
    if isinstance(error, (httpx.HTTPError, httpx.InvalidURL, ConnectionError, TimeoutError)):
        return NotAvailable(text, f"check the network, then {AGAIN}; whole models run with --offline")
    code = error.errno if isinstance(error, OSError) else None
    place = heads or cache_folder()
    if code in DISK_FULL or "(os error 28)" in str(error):  # the Xet transport gives the errno in its text alone
        text = f"the disk of {place} is full, and {name} is incomplete"
        again = ", then run the same command again" if heads else f"{ELSEWHERE}; {AGAIN}"
        return DoesNotFit(text, f"free some space{again}")
    if code is not None or "(os error " in str(error):
        hint = f"make {heads} yours" if heads else "make it yours, or set HF_HOME to a folder of yours"
        return NotAvailable(f"the {'folder' if heads else 'cache'} {place} cannot hold {name}: {_line(error)}", hint)
    return NotAvailable(text, f"{AGAIN}; HF_HUB_DISABLE_XET=1 fetches over plain HTTP")


def no_hub(name: str) -> NotAvailable:
    """The error for an answer that no Hub gives."""
    return NotAvailable(
        f"{endpoint()} does not answer like a Hub when asked for {name}",
        "check HF_ENDPOINT, and whether a proxy or a login page is in between",
    )


def _line(error: BaseException | str) -> str:
    """A foreign message in one line of at most 240 characters, without passwords."""
    text = " ".join(CREDENTIALS.sub("//", str(error)).split()) or type(error).__name__
    return text if len(text) <= 240 else text[:237] + "..."


def settings() -> Iterator[tuple[str, str, str]]:
    """(variable, effective value, what it means) of what is set. No network call, and no part of the token."""
    if endpoint() != OFFICIAL:
        yield "HF_ENDPOINT", endpoint(), "not the official Hub: what it lists is believed"
    # huggingface_hub's own function may use the network.
    kept = "hf auth login" if os.access(constants.HF_TOKEN_PATH, os.R_OK) else None
    source = next(filter(os.environ.get, TOKENS), kept)
    sent = f"from {source}; goes to {endpoint()} and to no other host" if source else "only open models can be fetched"
    yield "HF_TOKEN", "present" if source else "none", sent
    for variable in ("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_XET"):
        if os.environ.get(variable):
            yield variable, os.environ[variable], "set in the environment"
