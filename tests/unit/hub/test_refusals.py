"""What the Hub says no to, and what answers in its place: two lines with the next step, and nothing left."""

from __future__ import annotations

import pytest

from fakes.hub_client import ask
from fakes.hub_model import NAME, PULL, model, unavailable

pytestmark = pytest.mark.slow  # a server, and a process for each question


GATED = {"X-Error-Code": "GatedRepo"}
DISABLED = {"X-Error-Message": "Access to this resource is disabled."}
SPENT = {"RateLimit": '"api";r=0;t=55', "Retry-After": "1"}
NOT_FOUND = {"X-Error-Code": "RepoNotFound"}
LOOK = "look at {page}, and at your login: hf auth whoami"
SPELLING = "check the spelling; if it is private: hf auth login"
LATER = "try again in a few minutes; hf auth login raises the limit of requests"
# What the Hub answers, what the library says of it, and what a person can do.
REFUSALS = [
    (403, GATED, "403 Client Error. Cannot access gated repo", "accept its licence at {page}, then: hf auth login"),
    (404, NOT_FOUND, "404 Client Error. Repository Not Found", SPELLING),
    (404, {}, "Client error '404 Not Found'", SPELLING),
    (401, {}, "Client error '401 Unauthorized'", SPELLING),
    (403, DISABLED, "403 Client Error. Cannot access repository", LOOK),
    (429, {}, "429 Too Many Requests", LATER),
    (429, SPENT, "429 Too Many Requests: you have reached your 'api' rate limit. Retry after 55 s", LATER),
    (503, {}, "Server error '503 Service Unavailable'", LATER),
    (418, {}, "Client error '418 I'm a Teapot'", LOOK),
]


def test_each_refusal_by_the_hub_is_two_lines_with_the_next_step_and_leaves_nothing(server, home):
    asked = {f"org/m{i}": refusal for i, refusal in enumerate(REFUSALS)}
    for name, (status, headers, *_) in asked.items():
        server.fail("status", f"{name}$", status=status, headers=headers)
    code = f"""
result = {{}}
for name in {list(asked)}:
    try: hub.fetch(hub.resolve(name))
    except SpecdecError as error: result[name] = [error.message, error.hint, error.exit_code]
"""
    answers = ask(server, home, code)
    for name, (_, _, reason, hint) in asked.items():
        message, *rest = answers[name]
        assert message.startswith(f"{name} cannot be fetched from {server.url}: {reason}")
        assert rest == [hint.format(page=f"{server.url}/{name}"), 3]
    assert list((home / "hub").iterdir()) == []


def test_a_revision_that_is_not_there_is_named(server, home):
    server.commit(NAME, model())
    answer = ask(server, home, "hub.resolve('org/tiny', 'v9')")
    told = f"{NAME} cannot be fetched from {server.url}: 404 Client Error. Revision Not Found"
    assert answer["message"].startswith(told)
    assert "/revision/v9" in answer["message"]
    assert answer["hint"] == f"look at {server.url}/{NAME}/tree/main, or leave the revision out"


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
