"""Every failure of Hub, network and disk is two lines and an exit code; the Hub's refusals are in `test_refusals`."""

from __future__ import annotations

import errno
import json

import pytest
from huggingface_hub import errors
from huggingface_hub.utils import httpx

from specdec_cli.core.errors import DoesNotFit, NotAvailable, Unanswered
from specdec_cli.hub.client import AGAIN, as_user_error, explain

NAME = "org/tiny"
pytestmark = pytest.mark.usefixtures("cache")

FETCHED = "org/tiny cannot be fetched from https://hub.test: "
FAILURES = [
    (httpx.ReadTimeout("slow"), Unanswered, FETCHED + "slow", "check the network"),
    (httpx.ReadError("reset"), Unanswered, FETCHED + "reset", AGAIN),
    (errors.OfflineModeIsEnabled("unset HF_HUB_OFFLINE"), Unanswered, FETCHED + "unset HF_HUB_OFFLINE", "--offline"),
    (json.JSONDecodeError("no", "<html>", 0), NotAvailable, "does not answer like a Hub", "a login page"),
    (OSError(errno.EDQUOT, "quota"), DoesNotFit, "is full, and org/tiny is incomplete", "HF_HOME"),
    (RuntimeError("write: (os error 28)"), DoesNotFit, "is full", "free some space"),
    (OSError(errno.EROFS, "no", "/x"), NotAvailable, "cannot hold org/tiny: [Errno 30] no: '/x'", "make it yours"),
    (RuntimeError("open: (os error 13)"), NotAvailable, "cannot hold org/tiny: open", "make it yours"),
    (RuntimeError("cas"), NotAvailable, FETCHED + "cas", "HF_HUB_DISABLE_XET"),
    (ValueError("odd"), NotAvailable, FETCHED + "odd", AGAIN),
]


@pytest.mark.parametrize(("error", "kind", "message", "hint"), FAILURES, ids=lambda v: repr(v)[:40])
def test_a_failure_has_a_kind_and_two_lines(error, kind, message, hint):
    with pytest.raises(kind) as found, as_user_error(NAME):
        raise error
    assert (type(found.value), found.value.__cause__) == (kind, error)
    assert message in found.value.message and hint in found.value.hint
    assert "\n" not in found.value.message + found.value.hint


def test_the_real_reason_is_shown_in_one_short_line_without_a_password():
    error = errors.LocalEntryNotFoundError("check your connection")
    error.__cause__ = httpx.ConnectError("\n\n proxy http://me:secret@p:80 said " + "no " * 200 + "\nand more")
    message = explain(error, NAME).message
    assert message.startswith(FETCHED + "proxy http://p:80 said no")
    assert message.endswith("...") and len(message) < 300 and "and more" not in message
