"""Pulls that are killed, interrupted or run twice at once: no half file, and the old model stays."""

from __future__ import annotations

import hashlib
import os
import signal
import time

import pytest

from fakes.hub_client import ask, start
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
    partly,
    repository,
    shard,
    unanswered,
    unavailable,
    wait_for,
)

pytestmark = pytest.mark.slow  # a server, and a process for each question


def test_after_kill_9_in_mid_file_the_half_is_refused_and_the_next_pull_completes_it(server, home):
    commit = server.commit(NAME, model())
    server.fail("stall", f"GET /cdn.*{TWO}", at=2 << 20, seconds=30.0)
    process = start(server, home, PULL)
    wait_for(lambda: server.fetched().get(TWO) == 2 << 20)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert ask(server, home, LOCATE) == unavailable(
        f"{NAME} is neither a folder here nor in the model cache", f"specdec pull --target {NAME}"
    )
    assert ask(server, home, f"result = hub.locate('org/tiny', '{commit}').name") == partly(
        f"1 file missing, first {TWO}",
        "specdec pull NAME, the pair that pins this revision",
    )
    server.forget()
    assert ask(server, home, PULL) == commit
    assert server.fetched() == {TWO: SHARD_BYTES}
    assert ask(server, home, VERIFY) == []


def test_an_interrupted_update_leaves_the_model_that_worked_before(server, home):
    """huggingface_hub moves the branch before the files come; then a broken pull takes the old model away."""
    old = server.commit(NAME, model())
    ask(server, home, PULL)
    server.commit(NAME, model(two=shard(7)))
    server.fail("status", "/cdn/", status=500)
    assert ask(server, home, PULL)["error"] == "Unanswered"
    assert ask(server, home, LOCATE) == old


def test_what_a_killed_pull_left_behind_is_removed_once_it_is_old(server, home):
    server.commit(NAME, model())
    ask(server, home, "hub.fetch_small(hub.resolve('org/tiny'))")
    old, fresh = (repository(home) / "blobs" / f"{'a' * 64}.{n}.incomplete" for n in ("old", "fresh"))
    old.write_bytes(b"left")
    fresh.write_bytes(b"another process is writing this")
    os.utime(old, (time.time() - 3600,) * 2)
    ask(server, home, PULL)
    assert (old.exists(), fresh.exists()) == (False, True)


def test_after_a_pull_that_was_cut_for_good_only_the_unfinished_file_is_fetched_again(server, home):
    commit = server.commit(NAME, model())
    server.fail("cut", f"GET /cdn.*{TWO}", at=1 << 20)
    failure = ask(server, home, PULL)
    assert failure == unanswered(
        f"{NAME} cannot be fetched from {server.url}: peer closed connection without sending complete message "
        f"body (received 0 bytes, expected {2 << 20})",
        f"check the network, then {AGAIN}; whole models run with --offline",
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
