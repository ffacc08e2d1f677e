"""A connection that breaks, stalls or alters bytes: what is whole is kept, what is not is fetched again."""

from __future__ import annotations

import hashlib

import pytest

from fakes.hub_client import ask
from fakes.hub_model import (
    AGAIN,
    LOCATE,
    NAME,
    PULL,
    SHARD_BYTES,
    TWO,
    VERIFY,
    expected,
    held,
    model,
    repository,
    shard,
    unanswered,
)

pytestmark = pytest.mark.slow  # a server, and a process for each question


def test_after_a_pull_that_was_cut_for_good_only_the_unfinished_file_is_fetched_again(server, home):
    commit = server.commit(NAME, model())
    server.fail("cut", f"GET /cdn.*{TWO}", at=1 << 20)
    failure = ask(server, home, PULL)
    assert failure == unanswered(
        f"the connection broke while {NAME} was coming: peer closed connection without sending complete message body "
        f"(received 0 bytes, expected {2 << 20})",
        AGAIN,
    )
    assert ask(server, home, LOCATE)["message"] == f"{NAME} is neither a folder here nor in the model cache"
    server.forget()
    assert ask(server, home, PULL) == commit
    assert server.fetched() == {TWO: SHARD_BYTES}
    assert held(home, commit) == expected(model())


def test_a_bit_that_flips_on_the_disk_is_found_by_verify_and_mended_by_a_pull(server, home):
    commit = server.commit(NAME, model())
    assert ask(server, home, PULL) == commit
    blob = repository(home) / "blobs" / hashlib.sha256(shard(2)).hexdigest()
    blob.write_bytes(shard(2)[:-1] + b"!")
    server.forget()
    assert ask(server, home, LOCATE) == commit  # weights of the right size are read by --verify alone
    offline = "result = hub.verify(hub.resolve('org/tiny', offline=True))[0].path"
    assert ask(server, home, offline) == TWO
    assert server.calls() == []
    assert ask(server, home, LOCATE)["message"] == f"{NAME} is only partly here: 1 file missing, first {TWO}"
    assert ask(server, home, PULL) == commit
    assert server.fetched() == {TWO: SHARD_BYTES}
    assert ask(server, home, VERIFY) == []
