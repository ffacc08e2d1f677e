"""The port: taken before any model, refused in words, and quick for small answers."""

import socket

import pytest

from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.serve.http.guard import is_loopback
from specdec_cli.serve.http.server import listen


def test_small_writes_do_not_wait_for_each_other():
    """asyncio switches Nagle's delay off only for sockets that say they are TCP; each answer once took 40 ms more."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_port_is_taken_once():
    with listen("127.0.0.1", 0) as first, pytest.raises(SpecdecError, match="is in use by another program"):
        listen("127.0.0.1", first.getsockname()[1])


@pytest.mark.parametrize("host", ["no.such.invalid", "192.0.2.1"])
def test_an_address_that_is_not_this_machine_s_is_a_usage_error(host):
    with pytest.raises(UsageError, match=f"--host {host} is no address"):
        listen(host, 0)


@pytest.mark.parametrize(
    "host, alone", [("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.8.8.8", True), ("0.0.0.0", False)]
)
def test_only_addresses_of_the_loopback_need_no_key(host, alone):
    assert is_loopback(host) is alone and not is_loopback("192.168.0.9") and not is_loopback("example.org")
