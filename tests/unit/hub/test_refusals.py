"""What the Hub says no to, and what answers in its place: two lines with the next step, and nothing left."""

from __future__ import annotations

import pytest

from fakes.hub_client import ask
from fakes.hub_model import NAME, PULL, model, unavailable

pytestmark = pytest.mark.slow  # a server, and a process for each question


GATED = {"X-Error-Code": "GatedRepo"}
NOT_FOUND = {"X-Error-Code": "RepoNotFound"}
LOGIN = "hf auth whoami, then hf auth login with a valid token"
SPELLING = "check the spelling; if it is private: hf auth login"
ACCEPT = "accept it at {page}, then: hf auth login"
LIMITED = "the Hub accepts no more requests from this machine for now (429, asked for {name})"
TROUBLE = "the Hub is in trouble: it answers {status} for {name}"
# What the Hub answers, and the two lines a person reads.
REFUSALS = [
    (403, GATED, "{name} is gated: the Hub answers 403 until you accept its licence", ACCEPT),
    (404, NOT_FOUND, "no such repository on {url}: {name}, or it is private (404)", SPELLING),
    (404, {}, "no such repository on {url}: {name}, or it is private (404)", SPELLING),
    (401, {}, "the Hub refuses {name} to your login (401)", LOGIN),
    (
        403,
        {"X-Error-Message": "Access to this resource is disabled."},
        "the Hub has disabled {name} (403)",
        "read why at {page}",
    ),
    (429, {}, LIMITED, "wait a few minutes; hf auth login raises the limit"),
    (429, {"RateLimit": '"api";r=0;t=55', "Retry-After": "1"}, LIMITED, "wait 55 s"),
    (503, {}, TROUBLE, "try later, {url} has problems right now"),
    (418, {}, "the Hub answers 418 for {name}: Client error '418 I'm a Teapot' for url '{api}'", "look at {page}"),
]


def test_each_refusal_by_the_hub_is_two_lines_with_the_next_step_and_leaves_nothing(server, home):
    asked = {}
    for i, (status, headers, *lines) in enumerate(REFUSALS):
        name = f"org/m{i}"
        server.fail("status", f"{name}$", status=status, headers=headers)
        values = {"name": name, "status": status, "url": server.url, "page": f"{server.url}/{name}"}
        values["api"] = f"{server.url}/api/models/{name}?blobs=true"
        asked[name] = [line.format(**values) for line in lines] + [3]
    code = f"""
result = {{}}
for name in {list(asked)}:
    try: hub.fetch(hub.resolve(name))
    except SpecdecError as error: result[name] = [error.message, error.hint, error.exit_code]
"""
    assert ask(server, home, code) == asked
    assert list((home / "hub").iterdir()) == []


def test_a_revision_that_is_not_there_is_named(server, home):
    server.commit(NAME, model())
    assert ask(server, home, "hub.resolve('org/tiny', 'v9')") == unavailable(
        f"{NAME} has no revision v9", f"see {server.url}/{NAME}/commits/main, or leave the revision out"
    )


def test_a_login_page_in_between_is_not_taken_for_the_hub(server, home):
    server.fail("html")
    assert ask(server, home, PULL) == unavailable(
        f"{server.url} does not answer like a Hub when asked for {NAME}",
        "check HF_ENDPOINT, and whether a proxy or a login page is in between",
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"p"}, "has no model*.safetensors, only pytorch_model.bin"),
        ({"README.md": b""}, "has no model*.safetensors, only 1 other file"),
        ({"model.safetensors": b"w"}, "has weights but no config.json"),
    ],
)
def test_a_repository_without_a_model_is_refused_before_a_byte(server, home, files, message):
    server.commit(NAME, files)
    answer = ask(server, home, PULL)
    assert (answer["error"], answer["message"], server.fetched()) == ("NotAvailable", f"{NAME} {message}", {})
