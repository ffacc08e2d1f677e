"""The machines that a command line names; what it refuses of them is in `tests/golden`."""

import json

import pytest

from specdec_cli.apps.several.launch import read_hosts
from specdec_cli.core.errors import UsageError


def test_addresses_are_machines_and_those_of_this_one_need_no_ssh():
    found = read_hosts("203.0.113.1, 203.0.113.2")
    assert found.names == found.addresses == ("203.0.113.1", "203.0.113.2")
    assert not found.is_local(1)
    assert read_hosts("127.0.0.1,127.0.0.1").is_local(1)


@pytest.mark.slow
def test_the_ring_starts_at_a_free_port_of_this_machine():
    first, second = json.loads(read_hosts("127.0.0.1,127.0.0.1").ring())
    assert first[0].startswith("127.0.0.1:")
    assert second[0].startswith("127.0.0.1:")
    with pytest.raises(UsageError, match=r"^203\.0\.113\.1 \(203\.0\.113\.1\) is not this machine: "):
        read_hosts("203.0.113.1,203.0.113.2").ring()
