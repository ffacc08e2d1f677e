"""Explains failures of the Hub, the network and the disk in two lines. Law: none of them is a traceback."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specdec_cli.errors import DoesNotFit, NotAvailable, SpecdecError, Unanswered
from specdec_cli.format import duration
from specdec_cli.hub.cache import cache_folder
from specdec_cli.hub.client import asked_wait_seconds, endpoint, library, prepare, without_credentials

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

AGAIN = "the same command again: complete files are kept, the one in progress restarts"
SHORT = re.compile(r"should be of size (\d+) but has size (\d+)")  # the library's only message for a truncated body
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def explained(name: str, revision: str | None = None) -> Iterator[None]:
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
        return _answered(error, name, revision)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return NotAvailable(f"{name} is not all here, and HF_HUB_OFFLINE forbids downloads", "unset HF_HUB_OFFLINE")
    if isinstance(error, errors.HFValidationError):
        return NotAvailable(f"{name} is no Hub id: {_line(error)}", "a Hub id looks like organisation/name")
    if isinstance(error, (errors.FileMetadataError, json.JSONDecodeError)):
        return no_hub(name)
    if isinstance(error, (httpx.TimeoutException, TimeoutError)):
        return Unanswered(f"{endpoint()} stopped answering while {name} was asked for", AGAIN)
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)):
        return Unanswered(f"the connection broke while {name} was coming: {_line(error)}", AGAIN)
    if isinstance(error, (httpx.HTTPError, httpx.InvalidURL, ConnectionError)):
        hint = "check the network; a model that is already here runs with --offline"
        return Unanswered(f"cannot reach {endpoint()} for {name}: {_line(error)}", hint)
    return _broken(error, name)


def no_hub(name: str) -> NotAvailable:
    """The error for an answer that no Hub gives."""
    return NotAvailable(
        f"{endpoint()} does not answer like a Hub when asked for {name}",
        "check HF_ENDPOINT, and whether a proxy or a login page stands in between",
    )


def _answered(error: HfHubHTTPError, name: str, revision: str | None) -> SpecdecError:
    from huggingface_hub import errors

    status, page = error.response.status_code, f"{endpoint()}/{name}"
    absent = (
        f"no such repository on {endpoint()}: {name}, or it is private ({status})",
        "check the spelling; if it is private: hf auth login",
    )
    lines = {
        errors.GatedRepoError: (
            f"{name} is gated: the Hub answers {status} until you accept its licence",
            f"accept it at {page}, then: hf auth login",
        ),
        errors.DisabledRepoError: (
            f"the Hub has disabled {name} ({status})",
            f"read why at {page}, or use another model",
        ),
        errors.RevisionNotFoundError: (
            f"{name} has no revision {revision}",
            f"see {page}/commits/main, or leave the revision out",
        ),
        errors.RemoteEntryNotFoundError: (
            f"{name} lists a file that the Hub does not have ({status})",
            f"look at {page}/tree/main",
        ),
        errors.RepositoryNotFoundError: absent,
    }
    for kind, (message, hint) in lines.items():
        if isinstance(error, kind):
            return NotAvailable(message, hint)
    if status == 404:
        return NotAvailable(*absent)
    if status in (401, 403):
        hint = "hf auth whoami, then hf auth login with a valid token"
        return NotAvailable(f"the Hub refuses {name} to your login ({status})", hint)
    if status == 429:
        wait = asked_wait_seconds(error.response.headers)
        hint = "wait a few minutes; hf auth login raises the limit"
        hint = hint if wait is None else f"wait {duration(wait)} and try again"
        return Unanswered(f"the Hub takes no more requests from here for now (429, asked for {name})", hint)
    if status >= 500:
        hint = f"try later, {endpoint()} is not well now"
        return Unanswered(f"the Hub is in trouble: it answers {status} for {name}", hint)
    return NotAvailable(f"the Hub answers {status} for {name}: {_line(error)}", f"look at {page}")


def _broken(error: BaseException, name: str) -> SpecdecError:
    """The error for a disk failure or a truncated body. The Xet transport gives the disk's errno only in its text."""
    code = error.errno if isinstance(error, OSError) else None
    if code in DISK_FULL or "(os error 28)" in str(error):
        return DoesNotFit(
            f"the disk of {cache_folder()} is full, and {name} is not all there",
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
            f"the Xet transport failed while {name} was coming: {_line(error)}",
            "the same command again, or with HF_HUB_DISABLE_XET=1 to fetch over plain HTTP",
        )
    return NotAvailable(f"{name} did not arrive whole: {_line(error)}", AGAIN)


def _line(error: BaseException) -> str:
    """The first line of a foreign message, at most 160 characters long and without passwords."""
    lines = without_credentials(str(error)).splitlines()
    text = next((line.strip() for line in lines if line.strip()), type(error).__name__)
    return text if len(text) <= 160 else text[:157] + "..."
