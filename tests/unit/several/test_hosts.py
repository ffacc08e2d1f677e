"""The machines that a command line or a hostfile of mlx's names."""

import json

import pytest

from specdec_cli.core.errors import UsageError
from specdec_cli.several.hosts import read_hosts

RDMA = [[None, "rdma_en2"], ["rdma_en2", None]]


def hostfile(tmp_path, value):
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps(value))
    return path


def test_addresses_are_machines_and_those_of_this_one_need_no_ssh():
    found = read_hosts("10.0.0.1, 10.0.0.2", None)
    assert (found.names, found.addresses) == (("10.0.0.1", "10.0.0.2"), (("10.0.0.1",), ("10.0.0.2",)))
    assert not found.is_local(1)
    assert read_hosts("127.0.0.1,127.0.0.1", None).is_local(1)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_hostfile_may_have_a_byte_order_mark(tmp_path, encoding):
    """It was refused, as the only file of its kind."""
    path = tmp_path / "hosts.json"
    path.write_text('[["10.0.0.1:1"], ["10.0.0.2:1"]]', encoding=encoding)
    assert read_hosts(None, path).addresses == (("10.0.0.1",), ("10.0.0.2",))


@pytest.mark.parametrize("backend", ["ring", "jaccl"])
def test_a_hostfile_is_what_mlx_distributed_config_writes(tmp_path, backend):
    machines = [{"ssh": f"mac{i}", "ips": [f"10.0.0.{i}"], "rdma": row} for i, row in enumerate(RDMA)]
    value = {"backend": backend, "envs": ["MLX_METAL_FAST_SYNCH=1"], "hosts": machines}
    found = read_hosts(None, hostfile(tmp_path, value))
    assert (found.backend, found.names) == (backend, ("mac0", "mac1"))
    assert (found.rdma, found.envs) == (tuple(RDMA), ("MLX_METAL_FAST_SYNCH=1",))


@pytest.mark.parametrize("value", [[["10.0.0.1:500"], ["10.0.0.2:501"]], [{"ssh": "10.0.0.1"}, {"ssh": "10.0.0.2"}]])
def test_a_hostfile_may_be_a_list(tmp_path, value):
    assert read_hosts(None, hostfile(tmp_path, value)).addresses == (("10.0.0.1",), ("10.0.0.2",))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "is no hostfile of mlx's: 'hosts' is missing"),
        ([["10.0.0.1:500"]], "names 1 machine"),
        ({"backend": "mpi", "hosts": [["10.0.0.1"], ["10.0.0.2"]]}, "asks for mpi"),
        ({"backend": "jaccl", "hosts": [["10.0.0.1"], ["10.0.0.2"]]}, "lacks rdma devices for 2 machines"),
    ],
)
def test_what_is_no_hostfile_is_refused_with_the_reason(tmp_path, value, message):
    with pytest.raises(UsageError, match=message):
        read_hosts(None, hostfile(tmp_path, value))


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("10.0.0.1", "--hosts 10.0.0.1 names 1 machine, and a target is shared by 2 or more"),
        ("127.0.0.1,10.0.0.2", "127.0.0.1 is 127.0.0.1 here, where 10.0.0.2 cannot reach it"),
    ],
)
def test_machines_that_cannot_meet_are_refused(hosts, message):
    with pytest.raises(UsageError, match=message):
        read_hosts(hosts, None)
