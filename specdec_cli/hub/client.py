"""Prepares huggingface_hub's client: no output, no telemetry, and a token for one host only.

Law: the token goes to the host of HF_ENDPOINT and to no other, even after a redirect. Downloads from other hosts
(a CDN) are fetched without it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from specdec_cli.errors import NotAvailable, Unanswered
from specdec_cli.format import duration
from specdec_cli.hub.names import DISTRUST, shown

if TYPE_CHECKING:
    from httpx2 import Client, Request, Response

CREDENTIALS = re.compile(r"//[^/@\s]*@")
PORTS = {"http": 80, "https": 443}


def prepare() -> None:
    """Import huggingface_hub quietly: no telemetry, no log lines on stderr, progress at least once a megabyte."""
    from huggingface_hub import constants

    constants.HF_HUB_DISABLE_TELEMETRY = True  # it may have been imported before the environment was set
    constants.DOWNLOAD_CHUNK_SIZE = 1 << 20  # its 10 MB steps look like a stall on a slow line
    library().logging.set_verbosity_error()
    warnings.filterwarnings("ignore", module="huggingface_hub")  # specdec reports a full disk itself
    _guard()


def library() -> Any:
    """`huggingface_hub.utils`, without types: its stub leaves out names that it exports, its HTTP client among them."""
    from huggingface_hub import utils

    return utils


@cache
def _guard() -> None:
    """Install our two hooks on every request of huggingface_hub, including those of later sessions."""
    from huggingface_hub import set_client_factory

    set_client_factory(_client)


def _client() -> Client:
    from huggingface_hub.utils._http import default_client_factory  # its own hooks must stay

    client = default_client_factory()
    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks["request"], keep_token_home],
        "response": [*hooks["response"], refuse_local_store, refuse_long_wait],
    }
    return client


def keep_token_home(request: Request) -> None:
    """Remove the token from a request to any host other than the Hub."""
    if not is_hub(str(request.url)):
        request.headers.pop("authorization", None)


def refuse_local_store(response: Response) -> None:
    """Check that the Xet store is a web address: hf_xet would also open `local:///any/folder`.

    Raises: NotAvailable.
    """
    store = response.headers.get("x-xet-cas-url", "https://")
    if urlsplit(store).scheme not in PORTS:
        raise NotAvailable(f"the Hub names {shown(store)} as its Xet store, which is no web address", DISTRUST)


# In the ratelimit header: r=0 requests left, t seconds until the window ends.
WINDOW = re.compile(r"\br=0\b.*\bt=(\d+)")
MOST_WAIT_SECONDS = 60
# huggingface_hub sleeps as long as these answers ask for, and tries again (utils/_http.py, _http_backoff_base).
RETRIED = (408, 429, 500, 502, 503, 504)
_listeners: list[Callable[[str], None]] = []


@contextmanager
def saying(say: Callable[[str], None]) -> Iterator[None]:
    """In this context `say` is given a line for every wait that the Hub asks for."""
    _listeners.append(say)
    try:
        yield
    finally:
        _listeners.remove(say)


def asked_wait_seconds(headers: Mapping[str, str]) -> int | None:
    """The wait that an answer asks for, None where it asks for none or names a date."""
    window = WINDOW.search(headers.get("ratelimit", ""))
    wait = window.group(1) if window else headers.get("retry-after", "").strip()
    # Python refuses to read a number of thousands of digits.
    return int(wait[:18]) if wait.isascii() and wait.isdigit() else None


def refuse_long_wait(response: Response) -> None:
    """Say how long the Hub asks to wait, and do not wait for hours. Raises: Unanswered above MOST_WAIT_SECONDS."""
    seconds = asked_wait_seconds(response.headers) if response.status_code in RETRIED else None
    if not seconds:
        return
    host = urlsplit(str(response.url)).hostname
    asked = f"{host} asks to wait {duration(seconds)} ({response.status_code})"
    if seconds > MOST_WAIT_SECONDS:
        raise Unanswered(asked, "the same command again then; hf auth login raises the limit")
    for say in _listeners:
        say(asked)


def is_hub(url: str) -> bool:
    """Whether this address has the host, port and scheme of HF_ENDPOINT."""
    from huggingface_hub.constants import ENDPOINT

    return _origin(url) == _origin(ENDPOINT)


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme)
    except ValueError:  # a port that is no number
        return "", url, None


def endpoint() -> str:
    """The Hub's address for messages, without a password."""
    from huggingface_hub.constants import ENDPOINT

    return without_credentials(ENDPOINT)


def without_credentials(text: str) -> str:
    """The text without the `user:password@` of its addresses."""
    return CREDENTIALS.sub("//", text)
