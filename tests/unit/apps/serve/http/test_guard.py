"""Who is not let in, and in which words: foreign hosts and pages, forms, large bodies."""

import json
from contextlib import ExitStack

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local, raw, serving

ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
CHAT = "/v1/chat/completions"
PATHS = {CHAT: "openai", "/v1/messages": "anthropic", "/tokenize": "llama"}


@pytest.fixture
def behind(tooled):
    """Starts a client of a server with such a policy, or with `serving` its address; its model says `ok` for ever."""
    with ExitStack() as stack:

        def start(how=local, **policy):
            desk = ScriptedDesk(["ok"] * 50)
            stack.callback(desk.close)
            made = stack.enter_context(how(tooled, desk, **policy))
            return made[0] if how is serving else made

        yield start


def shape_of(body):
    """Whose error it is."""
    if body.get("type") == "error":
        assert set(body["error"]) == {"type", "message"}
        return "anthropic"
    if isinstance(body["error"].get("code"), int):
        return "llama"
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return "openai"


OWN, PAGE, KEY = "http://127.0.0.1:8040", "http://localhost:3000", {"x-api-key": "secret"}
POLICIES = {
    "alone": {},
    "a key": {"host": "0.0.0.0", "key": "secret"},
    "a page": {"origins": (PAGE,), "key": "secret"},
    # A webview of VS Code has another origin at every start: none that could be named let it in.
    "applications": {"origins": ("vscode-webview://*", "app://obsidian.md", "tauri+x://*")},
    # With the key there was still no way in by a .local name, through a proxy or a forwarded port.
    "hosts": {
        "host": "0.0.0.0",
        "key": "secret",
        "hosts": ("mac-studio.local", "box.example:9999", "127.0.0.1:9999"),
    },
}


def hosts(*names, **more):
    return [{"Host": name, **more} for name in names]


def origins(*names, **more):
    return [{"Origin": name, **more} for name in names]


# Under each policy, the status of a request with such headers. A page cannot change the name of a host, but ssh -L and
# containers give this machine's own name another port.
ACCESS = {
    ("alone", 200): [
        *hosts("localhost:8040", "LOCALHOST:8040", "127.0.0.1:8040", "[::1]:8040", "localhost:9999"),
        *origins(OWN),
    ],
    ("alone", 403): hosts("evil.example", "", "[::1", "localhost.evil.com:8040", "192.168.1.9:8040"),
    ("a key", 200): [{"Authorization": "Bearer secret"}, {"Authorization": "bearer secret"}, KEY],
    ("a key", 401): [
        *({"Authorization": wrong} for wrong in ("Bearer secre", "Basic secret", "Bearersecret")),
        *({"x-api-key": wrong} for wrong in ("secrets", b"\xff\xfe")),
        {},
    ],
    ("a page", 200): origins(PAGE, OWN, **KEY),
    ("a page", 401): origins(PAGE),
    ("a page", 403): origins("https://evil.example", "null", "http://localhost:3001", "file://", **KEY),
    ("applications", 200): origins(
        "vscode-webview://1q2w3e", "vscode-webview://", "app://obsidian.md", "tauri+x://localhost"
    ),
    ("applications", 403): origins(
        "vscode-webviewx://1", "app://evil", "https://vscode-webview", "null", "vscode-webview:", "tauri://x"
    ),
    ("hosts", 200): [
        *hosts("192.168.1.9:8040", "MAC-studio.local", "mac-studio.local:1", "box.example:9999", **KEY),
        *hosts("127.0.0.1:9999", **KEY),
        {"Host": "mac-studio.local", "Origin": "https://mac-studio.local", **KEY},
    ],
    ("hosts", 403): [
        *hosts("box.example", "box.example:8040", "evil.example:8040", "x.mac-studio.local", "", **KEY),
        {"Host": "mac-studio.local", "Origin": "https://evil.example", **KEY},
    ],
}


@pytest.mark.parametrize(("policy", "status"), ACCESS)
def test_who_is_let_in_and_which_page_hears_of_it(behind, policy, status):
    """Only a page that was named is told that it may read the answer; before it asks, the same holds."""
    client, named = behind(**POLICIES[policy]), "origins" in POLICIES[policy]
    for headers in ACCESS[policy, status]:
        reply = client.post(CHAT, json=ASKED, headers=headers)
        assert reply.status_code == status, headers
        origin = headers.get("Origin")
        told = origin if named and status != 403 and origin != OWN else None
        assert reply.headers.get("access-control-allow-origin") == told, headers
        if told or (named and origin != OWN):
            preflight = client.options(CHAT, headers={**headers, "Access-Control-Request-Method": "POST"})
            assert preflight.status_code == (200 if told else 403), headers
            assert preflight.headers.get("access-control-allow-origin") == told, headers


@pytest.mark.parametrize("path, dialect", PATHS.items())
def test_a_foreign_host_is_refused_before_the_key_is_looked_at_in_the_shape_of_the_dialect(behind, path, dialect):
    refused = behind(key="secret").post(path, json=ASKED, headers={"Host": "evil.example:8040"})
    assert (refused.status_code, shape_of(refused.json())) == (403, dialect)


def test_what_a_page_s_sdk_sends_is_let_in(behind):
    """A fixed list of headers lacked OpenAI's own."""
    sent = "authorization, content-type, x-stainless-lang"
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": sent}
    preflight = behind(origins=(PAGE,)).options(CHAT, headers=asked)
    assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (200, sent)


def test_with_a_key_nothing_but_its_health_is_told_without(behind):
    client = behind(host="0.0.0.0", key="secret")
    found = {path: client.get(path).status_code for path in ("/v1/models", "/props", "/metrics", "/health")}
    assert found == {"/v1/models": 401, "/props": 401, "/metrics": 401, "/health": 200}


@pytest.mark.parametrize("page", [{"Origin": "http://127.0.0.1:8040"}, {"Sec-Fetch-Site": "cross-site"}])
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", None])
def test_what_a_page_can_send_without_asking_is_refused(behind, kind, page):
    """A page's Blob has no content type, and each of the others is one that a form may have."""
    headers = page | ({"Content-Type": kind} if kind else {})
    refused = behind().post("/v1/messages", content=json.dumps(ASKED), headers=headers)
    assert (refused.status_code, shape_of(refused.json())) == (415, "anthropic")


@pytest.mark.parametrize("kind", [None, "", "application/octet-stream", "application/x-www-form-urlencoded; a=b"])
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/api/chat", "/api/show", "/v1/messages/count_tokens"])
def test_a_program_need_not_declare_its_json(behind, kind, path):
    """litellm's names for Ollama send no content type, and every `curl -d` of Ollama's documents a form's: all got
    415. A body that is none is still refused."""
    client, headers = behind(), {"Content-Type": kind} if kind is not None else {}
    assert client.post(path, content=json.dumps(ASKED), headers=headers).status_code == 200
    refused = client.post(path, content="model=demo&prompt=Hi", headers=headers)
    assert refused.status_code == 400 and "the body cannot be read" in refused.text


def test_what_says_that_it_is_no_json_is_refused(behind):
    for kind in ("application/jsonp", "application/xml", "image/png"):
        refused = behind().post(CHAT, content=json.dumps(ASKED), headers={"Content-Type": kind})
        assert refused.status_code == 415 and kind in refused.json()["error"]["message"]


def test_a_head_that_is_too_long_is_refused_whole_or_not(behind):
    """One that came whole was read at any length: only what was not ended yet was counted."""
    refused = behind().get("/health", headers={"X": "x" * 70_000})
    assert refused.status_code == 431 and "65536" in refused.json()["error"]["message"]
    assert behind().get("/health", headers={"X": "x" * 60_000}).status_code == 200


@pytest.mark.slow
def test_a_body_that_is_too_large_is_refused_announced_or_not(behind):
    client = behind(most_body_bytes=1000)
    text = json.dumps({**ASKED, "user": "x" * 3000})
    headers = {"Content-Type": "application/json"}
    for content in (text, iter([text.encode()])):
        refused = client.post(CHAT, content=content, headers=headers)
        assert refused.status_code == 413 and "1000" in refused.json()["error"]["message"]
    parts = (json.dumps(ASKED)[at : at + 7].encode() for at in range(0, 200, 7))
    assert client.post(CHAT, content=parts, headers=headers).status_code == 200


@pytest.mark.parametrize("path, dialect", PATHS.items())
def test_an_address_or_method_that_is_not_taken_is_an_error_of_the_dialect(behind, path, dialect):
    client = behind()
    wrong = client.get(path)
    assert (wrong.status_code, shape_of(wrong.json())) == (405, dialect)
    assert client.get("/v1/nothing").status_code == 404


@pytest.mark.slow
def test_requests_in_a_row_on_one_connection_are_answered_in_order_and_what_is_no_http_is_refused(behind):
    url, body = behind(serving), json.dumps(ASKED).encode()
    one = b"POST /v1/chat/completions HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"
    one += b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = b"GET /health HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"
    answer, closed = raw(url, one * 3 + last)
    assert closed and answer.count(b"HTTP/1.1 200") == 4
    assert answer.rindex(b"chat.completion") < answer.index(b'"status":"ok"')
    answer, closed = raw(url, b"\x16\x03\x01 hello\r\n\r\n")
    assert closed and answer.startswith(b"HTTP/1.1 400")
