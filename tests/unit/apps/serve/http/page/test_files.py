"""The page at `/` on the wire: who may have it, and what its headers let it do."""

from contextlib import ExitStack

import httpx
import pytest

from fakes.desk import ScriptedDesk
from fakes.server import raw, serving
from specdec_cli.apps.serve.page import page_files

pytestmark = pytest.mark.slow  # a server that listens

FILES = page_files()


@pytest.fixture
def start(tooled):
    """Starts a server with the page and such an access policy."""
    with ExitStack() as stack:

        def begin(**access):
            desk = ScriptedDesk(["ok"] * 9)
            stack.callback(desk.close)
            return stack.enter_context(serving(tooled, desk, page=FILES, **access))[0]

        yield begin


def test_a_browser_gets_every_file_with_its_type(start):
    url = start()
    kinds = {path: httpx.get(url + path).headers["content-type"] for path in FILES}
    assert kinds["/"] == "text/html; charset=utf-8" and kinds["/page/main.js"] == "text/javascript; charset=utf-8"
    assert kinds["/page/chat.css"] == "text/css; charset=utf-8" and "svg" in kinds["/page/icon.svg"]
    assert {path: httpx.get(url + path).content for path in FILES} == FILES


def test_the_page_may_do_nothing_but_ask_its_own_server(start):
    url = start()
    for path in FILES:
        headers = httpx.get(url + path).headers
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
        assert policy.pop("form-action") == policy.pop("trusted-types") == "'none'"
        assert policy.pop("require-trusted-types-for") == "'script'" and set(policy.values()) == {"'self'"}
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == headers["cross-origin-opener-policy"] == "same-origin"


def test_the_page_is_had_without_the_key_and_nothing_else_is(start):
    url = start(host="0.0.0.0", key="secret")
    assert [httpx.get(url + path).status_code for path in FILES] == [200] * len(FILES)
    assert [httpx.get(url + path).status_code for path in ("/v1/models", "/props", "/metrics", "/page")] == [401] * 4


@pytest.mark.parametrize("path", ["/page/../v1/models", "/page/%2e%2e/v1/models", "/page//v1/models", "//v1/models"])
def test_no_spelling_of_an_address_gets_past_the_key(start, path):
    ask = f"GET {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n".encode()
    answer, _ = raw(start(host="0.0.0.0", key="secret"), ask)
    assert answer.split()[1] in (b"401", b"404") and b"tiny/tool" not in answer


def test_the_page_s_own_origin_may_ask_and_no_other(start):
    url = start()
    port = int(url.rpartition(":")[2])
    asked = {"messages": [{"role": "user", "content": "Hi"}]}
    status = {}
    others = [f"http://127.0.0.1:{port + 1}", f"http://localhost:{port}", f"{url}.evil.example", url + "/"]
    for origin in (url, *others, "null"):
        status[origin] = httpx.post(f"{url}/v1/chat/completions", json=asked, headers={"Origin": origin}).status_code
    assert status.pop(url) == 200 and set(status.values()) == {403}
