"""The machines that a command line names."""

import pytest

from specdec_cli.apps.several.hosts import read_hosts
from specdec_cli.core.errors import UsageError


def test_addresses_are_machines_and_those_of_this_one_need_no_ssh():
    found = read_hosts("10.0.0.1, 10.0.0.2")
    assert (found.names, found.addresses) == (("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.0.0.2"))
    assert not found.is_local(1)
    assert read_hosts("127.0.0.1,127.0.0.1").is_local(1)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("10.0.0.1", "--hosts 10.0.0.1 names 1 machine, and a target is shared by 2 or more"),
        ("127.0.0.1,10.0.0.2", "127.0.0.1 is 127.0.0.1 here, where 10.0.0.2 cannot reach it"),
    ],
)
def test_machines_that_cannot_meet_are_refused(hosts, message):
    with pytest.raises(UsageError, match=message):
        read_hosts(hosts)
