"""The hooks on every request, failures in two lines, what the Hub says no to, and where a token goes."""

from __future__ import annotations

import errno
import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from huggingface_hub import constants, errors
from huggingface_hub.utils import httpx

from fakes.hub_client import ask
from specdec_cli.core.errors import DoesNotFit, NotAvailable
from specdec_cli.hub import client
from specdec_cli.hub.client import AGAIN, OFFICIAL, as_user_error, explain

NAME = "org/tiny"
PULL = "result = hub.fetch(hub.resolve('org/tiny')).name"
SECRET = "hf_a_persons_own_token"
ELSEWHERE = ["https://cdn.hub.test/x", "https://hub.test.evil.test/x", "http://hub.test/x", "https://hub.test:8443/x"]
ELSEWHERE += ["https://hub.test@evil.test/x"]


@pytest.mark.parametrize("url", ["https://hub.test:443/x", "https://HUB.test/x", *ELSEWHERE])
def test_the_hub_hears_the_token_and_no_other_host(cache, url):
    request = httpx.Request("GET", url, headers={"Authorization": SECRET})
    client.keep_token_home(request)
    assert request.headers.get("authorization") == (None if url in ELSEWHERE else SECRET)


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (429, {"retry-after": "1000000000"}, "31 years"),
        (429, {"ratelimit": '"api";r=0;t=7200'}, "2 h"),
        (503, {"ratelimit": '"api";r=0;t=1', "retry-after": "7200"}, "2 h"),
        (429, {"retry-after": "9" * 400}, "years"),
        (429, {"retry-after": "17"}, ""),
        (429, {"ratelimit": '"api";r=0;t=1', "retry-after": "7200"}, ""),
        (200, {"retry-after": "9999"}, ""),
        (429, {"retry-after": "soon"}, ""),
    ],
)
def test_a_wait_of_hours_or_years_is_refused_and_a_short_one_left_to_the_library(status, headers, said):
    """huggingface_hub slept as long as it was told, without a word."""
    request = httpx.Request("GET", "https://huggingface.co/api/models/o/n")
    answer = httpx.Response(status, headers=headers, request=request)
    told = rf"huggingface.co asks to wait .*{said} \({status}\)"
    with pytest.raises(NotAvailable, match=told) if said else nullcontext():
        client.refuse_long_wait(answer)


def test_no_private_module_of_the_library_is_imported():
    """They break with a release."""
    texts = [path.read_text("utf-8") for path in Path(client.__file__).parent.glob("*.py")]
    assert any("from huggingface_hub import" in text for text in texts)
    assert not any(re.search(r"huggingface_hub\S*(\._|\.file_download)|huggingface_hub\S* import _", t) for t in texts)


FETCHED = "org/tiny cannot be fetched from https://hub.test: "
EXPIRED = httpx.Response(
    401,
    headers={"X-Error-Message": 'User Access Token "ci" is expired'},
    request=httpx.Request("GET", "https://hub.test"),
)
FAILURES = [
    (httpx.ReadTimeout("slow"), NotAvailable, FETCHED + "slow", "check the network"),
    (httpx.ReadError("reset"), NotAvailable, FETCHED + "reset", AGAIN),
    (errors.OfflineModeIsEnabled("unset HF_HUB_OFFLINE"), NotAvailable, FETCHED + "unset HF_HUB_OFFLINE", "--offline"),
    # Behind an address and an id it was cut off, and the hint was about the spelling.
    (errors.RepositoryNotFoundError(240 * "x", response=EXPIRED), NotAvailable, '"ci" is expired', "auth logout"),
    (json.JSONDecodeError("no", "<html>", 0), NotAvailable, "does not answer like a Hub", "a login page"),
    (OSError(errno.EDQUOT, "quota"), DoesNotFit, "is full, and org/tiny is incomplete", "HF_HOME"),
    (RuntimeError("write: (os error 28)"), DoesNotFit, "is full", "free some space"),
    (OSError(errno.EROFS, "no", "/x"), NotAvailable, "cannot hold org/tiny: [Errno 30] no: '/x'", "make it yours"),
    (RuntimeError("open: (os error 13)"), NotAvailable, "cannot hold org/tiny: open", "make it yours"),
    (RuntimeError("cas"), NotAvailable, FETCHED + "cas", "HF_HUB_DISABLE_XET"),
    (ValueError("odd"), NotAvailable, FETCHED + "odd", AGAIN),
]


@pytest.mark.parametrize(("error", "kind", "message", "hint"), FAILURES, ids=lambda v: repr(v)[:40])
def test_a_failure_has_a_kind_and_two_lines(cache, error, kind, message, hint):
    with pytest.raises(kind) as found, as_user_error(NAME):
        raise error
    assert (type(found.value), found.value.__cause__) == (kind, error)
    assert message in found.value.message and hint in found.value.hint
    assert "\n" not in found.value.message + found.value.hint


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (errno.ENOSPC, DoesNotFit, "the disk of /heads is full, and org/tiny is incomplete"),
        (errno.EROFS, NotAvailable, "the folder /heads cannot hold org/tiny: [Errno 30] no"),
    ],
)
def test_a_head_is_on_the_disk_of_heads(cache, code, kind, message):
    """The disk of the cache was blamed, and HF_HOME named, which moves no head."""
    found = explain(OSError(code, "no"), NAME, Path("/heads"))
    assert (type(found), found.message, "HF_HOME" in found.hint) == (kind, message, False)


def test_the_real_reason_is_shown_in_one_short_line_without_a_password(cache):
    error = errors.LocalEntryNotFoundError("check your connection")
    error.__cause__ = httpx.ConnectError("\n\n proxy http://me:secret@p:80 said " + "no " * 200 + "\nand more")
    message = explain(error, NAME).message
    assert message.startswith(FETCHED + "proxy http://p:80 said no")
    assert message.endswith("...") and len(message) < 300 and "and more" not in message


VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE")
NOTHING = {"HF_TOKEN": ("none", "only open models can be fetched")}


def from_variable(name):
    return {"HF_TOKEN": ("present", f"from {name}; goes to {OFFICIAL} and to no other host")}


@pytest.mark.parametrize(
    ("variable", "value", "rows"),
    [
        ("HF_HUB_CACHE", "", NOTHING),
        ("HF_TOKEN", SECRET, from_variable("HF_TOKEN")),
        ("HUGGING_FACE_HUB_TOKEN", SECRET, from_variable("HUGGING_FACE_HUB_TOKEN")),
        ("HF_HOME", "/a home", NOTHING | {"HF_HOME": ("/a home", "set in the environment")}),
    ],
)
def test_what_is_set_is_shown_and_of_a_token_only_its_source(monkeypatch, tmp_path, variable, value, rows):
    for name in (*VARIABLES, "HF_HUB_DISABLE_XET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "ENDPOINT", OFFICIAL)
    monkeypatch.setenv(variable, value)
    assert {name: (shown, means) for name, shown, means in client.settings()} == rows


# What the Hub answers, what the library says of it, and what a person can do.
LOOK = "look at {page}, and at your login: specdec doctor"
SPELLING = f"check the spelling; if it is private, {client.LOG_IN}"
LATER = f"try again in a few minutes; a login raises the limit: {client.LOG_IN}"
GATED, NOT_FOUND = {"X-Error-Code": "GatedRepo"}, {"X-Error-Code": "RepoNotFound"}
DISABLED = {"X-Error-Message": "Access to this resource is disabled."}
INVALID = {"X-Error-Message": "Invalid credentials in Authorization header"}
LOG_OUT = f"uvx --from huggingface_hub hf auth logout (open models need no token), or a new one: {client.LOG_IN}"
SPENT = {"RateLimit": '"api";r=0;t=55', "Retry-After": "1"}
REFUSALS = [
    (403, GATED, "403 Client Error. Cannot access gated repo", f"accept its licence at {{page}}, then {client.LOG_IN}"),
    (404, NOT_FOUND, "404 Client Error. Repository Not Found", SPELLING),
    (404, {}, "Client error '404 Not Found'", SPELLING),
    (401, {}, "Client error '401 Unauthorized'", SPELLING),
    (401, INVALID, "401 Invalid credentials in Authorization header", LOG_OUT),
    (401, {"X-Error-Message": "Invalid username or password."}, "401 Invalid username or password.", SPELLING),
    (403, DISABLED, "403 Access to this resource is disabled.", LOOK),
    (429, {}, "429 Too Many Requests", LATER),
    (429, SPENT, "429 Too Many Requests: you have reached your 'api' rate limit. Retry after 55 s", LATER),
    (503, {}, "Server error '503 Service Unavailable'", LATER),
    (418, {}, "Client error '418 I'm a Teapot'", LOOK),
]


@pytest.mark.slow
@pytest.mark.parametrize(("status", "headers", "reason", "hint"), REFUSALS)
def test_each_refusal_by_the_hub_is_two_lines_with_the_next_step_and_leaves_nothing(
    hub, person, status, headers, reason, hint
):
    hub.fail("status", f"{NAME}$", status=status, headers=headers)
    answer = person(PULL)
    assert answer["message"].startswith(f"{NAME} cannot be fetched from {hub.url}: {reason}")
    assert (answer["hint"], answer["exit"]) == (hint.format(page=f"{hub.url}/{NAME}"), 3)
    assert not (person.home / "hub").exists()


HOSTS = "check HF_ENDPOINT, and whether a proxy or a login page is in between"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"p"}, "has no model*.safetensors, only pytorch_model.bin"),
        ({"README.md": b""}, "has no model*.safetensors, only 1 other file"),
        ({"model.safetensors": b"w"}, "has weights but no config.json"),
    ],
)
def test_what_is_no_model_no_revision_and_no_hub_is_refused_before_a_byte(hub, person, files, message):
    hub.commit(NAME, files)
    answer = person(PULL)
    assert (answer["error"], answer["message"], hub.fetched()) == ("NotAvailable", f"{NAME} {message}", {})
    answer = person("hub.resolve('org/tiny', 'v9')")
    assert answer["message"].startswith(
        f"{NAME} cannot be fetched from {hub.url}: 404 Client Error. Revision Not Found"
    )
    assert answer["hint"] == f"look at {hub.url}/{NAME}/tree/main, or leave the revision out"
    hub.fail("html")
    told = f"{hub.url} does not answer like a Hub when asked for {NAME}"
    assert person(PULL) == {"error": "NotAvailable", "message": told, "hint": HOSTS, "exit": 3}


FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"w" * 5000}


@pytest.mark.slow
def test_the_cdn_that_holds_the_weights_never_hears_the_token_and_a_mirrors_xet_store_is_not_asked(server, home):
    """hf_xet takes any folder for a store, and the token to any address that a header names.

    The Hub and its CDN are two servers on two ports of the loopback, as two hosts are in life.
    """
    commit = server.commit(NAME, FILES)
    server.xet_url = f"local://{home.parent / 'neighbour'}"
    assert ask(server, home, PULL, HF_HUB_DISABLE_XET="0", HF_TOKEN=SECRET) == commit
    assert not any("xet-read-token" in call for call in server.calls())
    told = {(request.host, request.token) for request in server.log}
    hosts = (url.removeprefix("http://") for url in (server.url, server.cdn_url))
    assert told == set(zip(hosts, (f"Bearer {SECRET}", None), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("status", [503, 418])
def test_a_password_in_the_hubs_address_is_in_no_message(server, home, status):
    server.fail("status", status=status)
    answer = ask(server, home, PULL, HF_ENDPOINT=server.url.replace("http://", "http://me:secret@"))
    assert answer["exit"] == 3 and "secret" not in str(answer)
