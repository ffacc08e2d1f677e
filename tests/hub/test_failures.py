"""Every failure of Hub, network and disk is two lines and an exit code."""

from __future__ import annotations

import errno
import json

import pytest
from huggingface_hub import errors
from huggingface_hub.utils import httpx

from specdec_cli.errors import DoesNotFit, NotAvailable, SpecdecError, Unanswered
from specdec_cli.hub.failures import AGAIN, explain, explained

NAME = "org/tiny"
pytestmark = pytest.mark.usefixtures("cache")


def answered(status: int, kind: type = errors.HfHubHTTPError, **headers: str) -> Exception:
    request = httpx.Request("GET", "https://hub.test/api")
    return kind("the Hub's words", response=httpx.Response(status, headers=headers, request=request))


PAGE = f"https://hub.test/{NAME}"
ANSWERS = [
    (answered(401, errors.GatedRepoError), NotAvailable, "is gated: the Hub answers 401", f"accept it at {PAGE}"),
    (answered(403, errors.DisabledRepoError), NotAvailable, "has disabled", f"read why at {PAGE}"),
    (answered(404, errors.RevisionNotFoundError), NotAvailable, "has no revision v9", f"see {PAGE}/commits/main"),
    (
        answered(404, errors.RemoteEntryNotFoundError),
        NotAvailable,
        "lists a file that the Hub does not have",
        "look at",
    ),
    (answered(404, errors.RepositoryNotFoundError), NotAvailable, "no such repository", "check the spelling"),
    (answered(404), NotAvailable, "no such repository", "check the spelling"),
    (answered(401), NotAvailable, "refuses org/tiny to your login (401)", "hf auth whoami"),
    (answered(403), NotAvailable, "refuses org/tiny to your login (403)", "hf auth whoami"),
    (answered(429), Unanswered, "takes no more requests", "wait a few minutes"),
    (answered(429, **{"retry-after": "17"}), Unanswered, "takes no more requests", "wait 17 s and try again"),
    (answered(429, **{"retry-after": "soon"}), Unanswered, "takes no more requests", "wait a few minutes"),
    (answered(429, ratelimit='"api";r=0;t=55'), Unanswered, "takes no more requests", "wait 55 s and try again"),
    (answered(500), Unanswered, "the Hub is in trouble: it answers 500", "try later"),
    (answered(418), NotAvailable, "the Hub answers 418 for org/tiny", f"look at {PAGE}"),
]
NETWORK = [
    (httpx.ConnectError("no route"), Unanswered, "cannot reach https://hub.test for org/tiny: no route", "--offline"),
    (httpx.ReadTimeout("slow"), Unanswered, "https://hub.test stopped answering", AGAIN),
    (TimeoutError(), Unanswered, "stopped answering", AGAIN),
    (httpx.ReadError("reset"), Unanswered, "the connection broke while org/tiny was coming: reset", AGAIN),
    (httpx.RemoteProtocolError("eof"), Unanswered, "the connection broke while org/tiny was coming: eof", AGAIN),
    (httpx.InvalidURL("bad"), Unanswered, "cannot reach https://hub.test", "check the network"),
    (errors.OfflineModeIsEnabled("off"), NotAvailable, "HF_HUB_OFFLINE forbids downloads", "unset HF_HUB_OFFLINE"),
    (errors.HFValidationError("bad"), NotAvailable, "org/tiny is no Hub id: bad", "organisation/name"),
    (errors.FileMetadataError("none"), NotAvailable, "does not answer like a Hub", "check HF_ENDPOINT"),
    (json.JSONDecodeError("no", "<html>", 0), NotAvailable, "does not answer like a Hub", "a login page"),
]
DISK = [
    (OSError(errno.ENOSPC, "full"), DoesNotFit, "is full, and org/tiny is not all there", "HF_HOME"),
    (OSError(errno.EDQUOT, "quota"), DoesNotFit, "is full, and org/tiny is not all there", "HF_HOME"),
    (RuntimeError("write: (os error 28)"), DoesNotFit, "is full", "free some space"),
    (OSError(errno.EACCES, "no", "/x"), NotAvailable, "no permission for /x, where org/tiny belongs", "make it yours"),
    (OSError(errno.EROFS, "no", "/x"), NotAvailable, "no permission for /x", "make it yours"),
    (RuntimeError("open: (os error 13)"), NotAvailable, "no permission for ", "make it yours"),
    (OSError(errno.EIO, "broken"), NotAvailable, "the cache cannot hold org/tiny: ", "check HF_HOME"),
    (OSError("file should be of size 9 but has size 4"), NotAvailable, "ended after 4 of its 9 bytes", AGAIN),
    (
        RuntimeError("cas"),
        NotAvailable,
        "the Xet transport failed while org/tiny was coming: cas",
        "HF_HUB_DISABLE_XET",
    ),
    (OSError("odd"), NotAvailable, "org/tiny did not arrive whole: odd", AGAIN),
    (ValueError("odd"), NotAvailable, "org/tiny did not arrive whole: odd", AGAIN),
]


@pytest.mark.parametrize(("error", "kind", "message", "hint"), [*ANSWERS, *NETWORK, *DISK], ids=lambda v: repr(v)[:40])
def test_a_failure_has_a_kind_and_two_lines(error, kind, message, hint):
    found = explain(error, NAME, "v9")
    assert type(found) is kind
    assert message in found.message
    assert hint in found.hint
    assert "\n" not in found.message + found.hint


@pytest.mark.parametrize("error", [case[0] for case in [*ANSWERS, *NETWORK, *DISK]], ids=lambda v: repr(v)[:40])
def test_inside_explained_every_failure_is_a_specdec_error_with_its_cause(error):
    with pytest.raises(SpecdecError) as found, explained(NAME):
        raise error
    assert found.value.__cause__ is error


def test_the_real_reason_is_shown_instead_of_check_your_connection():
    error = errors.LocalEntryNotFoundError("check your connection")
    error.__cause__ = httpx.ConnectError("no route")
    assert explain(error, NAME).message == "cannot reach https://hub.test for org/tiny: no route"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DoesNotFit("full", "free some"), ZeroDivisionError()])
def test_what_is_no_failure_of_theirs_passes_as_it_is(error):
    with pytest.raises(type(error)) as found, explained(NAME):
        raise error
    assert found.value is error


def test_a_long_or_many_lined_message_becomes_one_short_line_without_a_password():
    long = "\n\n  proxy http://me:secret@p:80 said " + "no " * 200 + "\nand more"
    message = explain(httpx.ConnectError(long), NAME).message
    assert "secret" not in message
    assert "and more" not in message
    assert message.endswith("...")
    assert len(message) < 250


def test_an_error_without_words_is_named():
    assert explain(httpx.ConnectError(""), NAME).message.endswith(": ConnectError")
