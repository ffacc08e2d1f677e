"""The port: taken before any model, refused in words, and quick for small answers."""

import socket

import httpx
import pytest

from fakes.desk import ScriptedDesk
from fakes.server import serving
from fakes.servers import plant
from specdec_cli.apps.serve.http.access import is_loopback
from specdec_cli.apps.serve.http.server import listen
from specdec_cli.apps.serve.log import reply_line
from specdec_cli.core.errors import SpecdecError, UsageError

pytestmark = pytest.mark.slow  # a server that listens


def test_small_writes_do_not_wait_for_each_other():
    """asyncio switches Nagle's delay off only for sockets that say they are TCP; each answer once took 40 ms more."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_port_is_taken_once():
    with listen("127.0.0.1", 0) as first, pytest.raises(SpecdecError, match="is in use by another program"):
        listen("127.0.0.1", first.getsockname()[1])


def test_a_port_that_specdec_itself_has_is_told_with_what_is_served_there():
    """It was "another program"."""
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with plant(port=port), pytest.raises(SpecdecError) as refused:
            listen("127.0.0.1", port)
        assert refused.value.message == f"tiny is served at http://127.0.0.1:{port} already"
        assert refused.value.hint == f"see specdec ps; or use another: --port {port + 1}"
        with plant(port=port + 1), pytest.raises(SpecdecError, match="by another program"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no.such.invalid", "192.0.2.1"])
def test_an_address_that_is_not_this_machine_s_is_a_usage_error(host):
    with pytest.raises(UsageError, match=f"--host {host} is not an address"):
        listen(host, 0)


@pytest.mark.parametrize(
    "host, alone", [("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.8.8.8", True), ("0.0.0.0", False)]
)
def test_only_addresses_of_the_loopback_need_no_key(host, alone):
    assert is_loopback(host) is alone and not is_loopback("192.168.0.9") and not is_loopback("example.org")


def test_the_operator_hears_of_requests_that_were_refused_but_not_what_they_said(tooled):
    desk, records = ScriptedDesk(["ok"]), []
    with serving(tooled, desk, records) as (url, _):
        httpx.post(f"{url}/v1/chat/completions", json={"messages": "my secret"})
        httpx.post(f"{url}/v1/chat/completions", json={"messages": []}, headers={"Host": "evil.example"})
        httpx.post(f"{url}/v1/nothing/%1b[2J" + "x" * 500, json={})
        httpx.get(f"{url}/health")
    desk.close()
    assert [(record.status, record.refused) for record in records] == [(400, "messages"), (403, "host"), (404, "")]
    lines = [reply_line("12:00:00", record.facts) for record in records]
    assert all("secret" not in line and "\x1b" not in line and len(line) < 140 for line in lines)
