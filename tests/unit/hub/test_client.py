"""The hooks on every request: the token stays at home, and a Xet store is a web address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import httpx

from specdec_cli.core.errors import Unanswered
from specdec_cli.hub import client

AUTHORIZATION = {"Authorization": "Bearer hf_a_persons_own_token"}


@pytest.fixture(autouse=True)
def _hub(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.test")


@pytest.mark.parametrize("url", ["https://hub.test:443/x", "https://HUB.test/x"])
def test_the_hub_hears_the_token(url):
    request = httpx.Request("GET", url, headers=AUTHORIZATION)
    client.keep_token_home(request)
    assert request.headers["authorization"] == AUTHORIZATION["Authorization"]


@pytest.mark.parametrize(
    "url",
    [
        "https://cdn.hub.test/x",
        "https://hub.test.evil.test/x",
        "http://hub.test/x",
        "https://hub.test:8443/x",
        "https://hub.test@evil.test/x",
    ],
)
def test_no_other_host_hears_it(url):
    request = httpx.Request("GET", url, headers=AUTHORIZATION)
    client.keep_token_home(request)
    assert "authorization" not in request.headers


def answer(status, **headers):
    request = httpx.Request("GET", "https://huggingface.co/api/models/o/n")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=named, request=request)


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (429, {"retry_after": "1000000000"}, "31 years"),
        (429, {"ratelimit": '"api";r=0;t=7200'}, "2 h"),
        (503, {"ratelimit": '"api";r=0;t=1', "retry_after": "7200"}, "2 h"),
        (429, {"retry_after": "9" * 400}, "years"),
    ],
)
def test_a_wait_of_hours_or_years_is_refused_and_said(status, headers, said):
    """huggingface_hub slept as long as it was told, without a word."""
    with pytest.raises(Unanswered, match=rf"huggingface.co asks to wait .*{said} \({status}\)"):
        client.refuse_long_wait(answer(status, **headers))


def test_a_short_wait_or_none_is_left_to_the_library():
    for status, headers in (
        (429, {"retry_after": "17"}),
        (429, {"ratelimit": '"api";r=0;t=1', "retry_after": "7200"}),
        (200, {"retry_after": "9999"}),
        (429, {"retry_after": "soon"}),
    ):
        client.refuse_long_wait(answer(status, **headers))


def test_no_private_module_of_the_library_is_imported():
    """They break with a release."""
    texts = [path.read_text("utf-8") for path in Path(client.__file__).parent.glob("*.py")]
    assert any("from huggingface_hub import" in text for text in texts)
    assert not any(re.search(r"huggingface_hub\S*(\._|\.file_download)|huggingface_hub\S* import _", t) for t in texts)
