"""Who is not let in, and in which words: foreign hosts and pages, forms, addresses that nothing answers."""

import json

import httpx
import pytest

from fakes.server import opened, received, serving
from specdec_cli.apps.serve.build import reply_line
from specdec_cli.apps.serve.http.access import is_loopback

ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
CHAT = "/v1/chat/completions"
PATHS = {CHAT: "openai", "/v1/messages": "anthropic", "/tokenize": "llama"}


def shape_of(body):
    """Whose error it is."""
    if isinstance(body["error"], str):
        return "ollama"
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
    "a loopback of its own": {"host": "127.0.0.2"},
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
    ("alone", 403): [
        *hosts("evil.example", "", "[::1", "localhost.evil.com:8040", "192.168.1.9:8040"),
        *origins("http://127.0.0.1:8041", "http://localhost:8040", f"{OWN}.evil.example", f"{OWN}/", "null"),
    ],
    ("a loopback of its own", 200): hosts("127.0.0.2:8040", "127.0.0.2", "localhost:8040"),
    ("a loopback of its own", 403): hosts("127.0.0.3:8040", "evil.example"),
    ("a key", 200): [
        *({"Authorization": right} for right in ("Bearer secret", "bearer secret")),
        # A client that has a key of another server's in its environment sends both.
        *({"Authorization": f"Bearer {one}", "x-api-key": other} for one, other in (("secret", "x"), ("x", "secret"))),
        KEY,
    ],
    ("a key", 401): [
        *({"Authorization": wrong} for wrong in ("Bearer secre", "Basic secret", "Bearersecret")),
        *({"x-api-key": wrong} for wrong in ("secrets", b"\xff\xfe")),
        {"Authorization": "Bearer x", "x-api-key": "x"},
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
def test_who_is_let_in_and_which_page_hears_of_it(scripted, policy, status):
    """Only a page that was named is told that it may read the answer; before it asks, the same holds."""
    (client, _), named = scripted(**POLICIES[policy]), "origins" in POLICIES[policy]
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


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_only_addresses_of_the_loopback_need_no_key(host):
    assert is_loopback(host) and not any(map(is_loopback, ("0.0.0.0", "192.168.0.9", "example.org")))


@pytest.mark.parametrize("path, dialect", PATHS.items())
def test_a_foreign_host_is_refused_before_the_key_is_looked_at_in_the_shape_of_the_dialect(scripted, path, dialect):
    refused = scripted(key="secret")[0].post(path, json=ASKED, headers={"Host": "evil.example:8040"})
    assert (refused.status_code, shape_of(refused.json())) == (403, dialect)


def test_what_a_page_s_sdk_sends_is_let_in_from_another_network_too(scripted):
    """A fixed list of headers lacked OpenAI's own; without the last one a browser asks no private network."""
    sent = "authorization, content-type, x-stainless-lang"
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": sent}
    preflight = scripted(origins=(PAGE,))[0].options(
        CHAT, headers={**asked, "Access-Control-Request-Private-Network": "true"}
    )
    assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (200, sent)
    assert preflight.headers["access-control-allow-private-network"] == "true"


FORM = "application/x-www-form-urlencoded"
FROM_PAGES = ({"Origin": OWN}, {"Sec-Fetch-Site": "cross-site"})


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/api/chat", "/api/show", "/v1/messages/count_tokens"])
def test_a_program_need_not_declare_its_json_and_a_page_must(asked, path):
    """litellm's names for Ollama send no content type, and every `curl -d` of Ollama's documents a form's: all got
    415. A page's Blob has none either, and each of the others is one that a form may have."""
    client, _ = asked
    for kind in (None, "", "application/octet-stream", f"{FORM}; a=b", "text/plain", "multipart/form-data"):
        headers = {} if kind is None else {"Content-Type": kind}
        status = 415 if kind == "multipart/form-data" else 200
        assert client.post(path, content=json.dumps(ASKED), headers=headers).status_code == status, kind
        for page in FROM_PAGES:
            refused = client.post(path, content=json.dumps(ASKED), headers=headers | page)
            assert (refused.status_code, shape_of(refused.json()) == "anthropic") == (415, "messages" in path), kind
    for kind in ("application/jsonp", "application/xml", "image/png"):
        refused = client.post(path, content=json.dumps(ASKED), headers={"Content-Type": kind})
        assert refused.status_code == 415 and kind in refused.text
    refused = client.post(path, content="model=demo&prompt=Hi", headers={"Content-Type": FORM})
    assert refused.status_code == 400 and "the body cannot be read" in refused.text


# (method, path, status, dialect, the way on)
NOWHERE = [
    ("POST", "/api/pull", 404, "ollama", "specdec pull"),
    ("POST", "/api/blobs/sha256:0", 404, "ollama", "neither made nor sent"),
    ("POST", "/api/embed", 404, "ollama", "embeddings are not made here"),
    ("POST", "/api/none", 404, "ollama", "chat, generate, tags, show, ps and version"),
    ("POST", "/v1/chat/completions/", 404, "openai", "there is at /v1/chat/completions"),
    ("POST", "/v1/messages/", 404, "anthropic", "there is at /v1/messages"),
    ("GET", "/v1/models/", 404, "openai", "there is at /v1/models"),  # it was the server's own model
    ("GET", "/v1/models//", 404, "openai", "there is at /v1/models"),
    *(
        ("POST", f"/v1/{path}", 404, "openai", "")
        for path in ("files", "embeddings", "rerank", "responses/compact", "responses/input_tokens")
    ),
    ("POST", "/slots", 404, "llama", ""),
    ("POST", "/completion", 404, "openai", ""),
    *(
        ("GET", f"/v1/{path}", 404, "openai", "")  # what openai's clients would fetch again
        for path in ("responses/resp_1", "conversations/conv_1", "files/file_1", "threads/thread_1", "nothing")
    ),
    ("POST", "/", 405, "openai", ""),
    *(("GET", path, 405, dialect, "") for path, dialect in PATHS.items()),
]


def test_where_nothing_is_a_404_or_405_says_so_whatever_came_and_names_the_way_on(asked):
    """A request without a type was told 415, and one with a slash too many was sent on to http, behind TLS too."""
    for method, path, status, dialect, way_on in NOWHERE:
        for kind in ("application/json", FORM, None):
            headers = {"Content-Type": kind} if kind else {}
            body = b"{}" if method == "POST" else None
            reply = asked[0].request(method, path, content=body, headers=headers, follow_redirects=False)
            assert (reply.status_code, shape_of(reply.json())) == (status, dialect), path
            assert way_on in reply.text, path


def test_a_head_that_is_too_long_is_refused_whole_or_not(asked):
    """One that came whole was read at any length: only what was not ended yet was counted."""
    refused = asked[0].get("/health", headers={"X": "x" * 70_000})
    assert refused.status_code == 431 and "65536" in refused.json()["error"]["message"]
    assert asked[0].get("/health", headers={"X": "x" * 60_000}).status_code == 200


@pytest.mark.slow  # what is left of a body is waited for
def test_a_body_that_is_too_large_is_refused_announced_or_not(scripted):
    client, _ = scripted(most_body_bytes=1000)
    text = json.dumps({**ASKED, "user": "x" * 3000})
    headers = {"Content-Type": "application/json"}
    for content in (text, iter([text.encode()])):
        refused = client.post(CHAT, content=content, headers=headers)
        assert refused.status_code == 413 and "1000" in refused.json()["error"]["message"]
    parts = (json.dumps(ASKED)[at : at + 7].encode() for at in range(0, 200, 7))
    assert client.post(CHAT, content=parts, headers=headers).status_code == 200
    assert scripted()[0].post(CHAT, content=text, headers=headers).status_code == 200


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        *(b"Content-Length: %b\r\n" % value for value in (b"+5", b"1_0", b"-1", b"0x5", b"5\r\nContent-Length: 6")),
        b"Transfer-Encoding: identity, chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Bad Name: y\r\n",
    ],
    ids=lambda head: head[:30].decode(),
)
def test_a_head_that_could_be_read_in_two_ways_is_a_400_or_501_and_the_end(scripted, head):
    url, desk = scripted(how=serving)
    said, closed = received(opened(url, POST + head + b"\r\n{}   "))
    assert closed and said.split(b" ")[1] in (b"400", b"501") and not desk.jobs, said


@pytest.mark.slow
def test_requests_in_a_row_on_one_connection_are_answered_in_order_and_what_is_no_http_is_refused(scripted):
    url, body = scripted(how=serving)[0], json.dumps(ASKED).encode()
    one = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = b"GET /health HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"
    answer, closed = received(opened(url, one * 3 + last))
    assert closed and answer.count(b"HTTP/1.1 200") == 4
    assert answer.rindex(b"chat.completion") < answer.index(b'"status":"ok"')
    answer, closed = received(opened(url, b"\x16\x03\x01 hello\r\n\r\n"))
    assert closed and answer.startswith(b"HTTP/1.1 400")


@pytest.mark.slow
def test_the_operator_hears_of_requests_that_were_refused_but_not_what_they_said(scripted):
    records = []
    url, _ = scripted(how=serving, records=records)
    httpx.post(f"{url}/v1/chat/completions", json={"messages": "my secret"})
    httpx.post(f"{url}/v1/chat/completions", json={"messages": []}, headers={"Host": "evil.example"})
    httpx.post(f"{url}/v1/nothing/%1b[2J" + "x" * 500, json={})
    httpx.get(f"{url}/health")
    assert [(record.status, record.refused) for record in records] == [(400, "messages"), (403, "host"), (404, "")]
    lines = [reply_line("12:00:00", record.facts) for record in records]
    assert all("secret" not in line and "\x1b" not in line and len(line) < 140 for line in lines)
