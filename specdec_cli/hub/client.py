"""Prepares huggingface_hub's client: no output, no telemetry, and a token for one host only.

Law: the token goes to the host of HF_ENDPOINT and to no other, even after a redirect. Downloads from other hosts
(a CDN) are fetched without it.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.names import DISTRUST, shown

if TYPE_CHECKING:
    from httpx2 import Client, Request, Response

CREDENTIALS = re.compile(r"//[^/@\s]*@")
PORTS = {"http": 80, "https": 443}


def prepare() -> None:
    """Import huggingface_hub quietly: no telemetry, no log lines on stderr, progress at least once a megabyte."""
    from huggingface_hub import constants
    from huggingface_hub.utils import logging

    constants.HF_HUB_DISABLE_TELEMETRY = True  # it may have been imported before the environment was set
    constants.DOWNLOAD_CHUNK_SIZE = 1 << 20  # its 10 MB steps look like a stall on a slow line
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # the Hub client has no types there
    warnings.filterwarnings("ignore", module="huggingface_hub")  # specdec reports a full disk itself
    _guard()


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
        "response": [*hooks["response"], refuse_local_store],
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
