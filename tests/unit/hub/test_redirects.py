"""Where a token goes: to the Hub that was chosen, whatever its answers point to.

The Hub and its CDN are two servers on two ports of the loopback, as two hosts are in life.
"""

from __future__ import annotations

import pytest

from fakes.hub_client import ask

pytestmark = pytest.mark.slow  # a server, and a process for each question


NAME = "org/tiny"
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"w" * 5000}
TOKEN = {"HF_TOKEN": "hf_a_persons_own_token"}
PULL = "result = hub.fetch(hub.resolve('org/tiny')).name"


def tokens(server) -> dict[str, set[str | None]]:
    """What each host was told, by its name in the test."""
    hosts = {server.url.removeprefix("http://"): "hub", server.cdn_url.removeprefix("http://"): "elsewhere"}
    heard: dict[str, set[str | None]] = {"hub": set(), "elsewhere": set()}
    for request in server.log:
        heard[hosts[request.host]].add(request.token)
    return heard


ONLY_THE_HUB = {"hub": {f"Bearer {TOKEN['HF_TOKEN']}"}, "elsewhere": {None}}


def test_the_cdn_that_holds_the_weights_never_hears_the_token(server, home):
    commit = server.commit(NAME, FILES)
    assert ask(server, home, PULL, **TOKEN) == commit
    assert tokens(server) == ONLY_THE_HUB


def test_a_mirror_s_xet_store_is_not_asked(server, home):
    """hf_xet takes any folder for a store, and the token to any address that a header names."""
    pytest.importorskip("hf_xet")
    commit = server.commit(NAME, FILES)
    server.xet_url = f"local://{home.parent / 'neighbour'}"
    assert ask(server, home, PULL, HF_HUB_DISABLE_XET="0", **TOKEN) == commit
    assert not any("xet-read-token" in call for call in server.calls())


def test_a_password_in_the_hubs_address_is_in_no_message(server, home):
    url = server.url.replace("http://", "http://me:secret@")
    server.fail("status", status=503)
    answer = ask(server, home, PULL, HF_ENDPOINT=url)
    assert answer["exit"] == 3
    assert "secret" not in str(answer)
    server.forget()
    server.fail("status", status=418)
    assert "secret" not in str(ask(server, home, PULL, HF_ENDPOINT=url))
