"""What a pull brings: the model of one commit, byte for byte, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fakes.hub_client import CLIENT, ask, environment
from fakes.hub_model import (
    LOCATE,
    MODEL_BYTES,
    MODEL_FILES,
    NAME,
    ONE,
    PULL,
    SHARD_BYTES,
    TWO,
    expected,
    held,
    model,
    partly,
    shard,
    unavailable,
    wait_for,
)

pytestmark = pytest.mark.slow  # a server, and a process for each question


def test_a_pull_fetches_no_code_no_pickle_and_nothing_below_the_top_folder(server, home):
    commit = server.commit(NAME, model())
    assert ask(server, home, PULL) == commit
    assert held(home, commit) == expected(model())
    assert server.fetched() == {path: len(model()[path]) for path in MODEL_FILES}


def test_a_second_pull_asks_for_the_commit_and_fetches_no_bytes(server, home):
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    server.forget()
    assert ask(server, home, PULL) == commit
    assert server.calls() == ["GET /api/models/org/tiny"]


def test_a_new_commit_fetches_only_the_files_that_changed(server, home):
    server.commit(NAME, model())
    ask(server, home, PULL)
    server.forget()
    newer = model(two=shard(3), merges=b"c d\n")
    commit = server.commit(NAME, newer)
    code = "s = hub.resolve('org/tiny'); result = [s.download_bytes, hub.fetch(s).name]"
    assert ask(server, home, code) == [SHARD_BYTES + 4, commit]
    assert server.fetched() == {TWO: SHARD_BYTES, "merges.txt": 4}
    assert held(home, commit) == expected(newer)
    assert ask(server, home, LOCATE) == commit


def test_a_pinned_commit_is_fetched_although_main_moved_and_then_costs_no_call(server, home):
    old = server.commit(NAME, model())
    server.commit(NAME, model(one=shard(9)))
    code = f"result = hub.fetch(hub.resolve('org/tiny', '{old}')).name"
    assert ask(server, home, code) == old
    assert held(home, old) == expected(model())
    server.forget()
    assert ask(server, home, code) == old
    assert ask(server, home, f"result = hub.locate('org/tiny', '{old}').name") == old
    assert ask(server, home, LOCATE) == old  # the only one here
    assert server.calls() == []


def test_all_files_come_from_the_commit_that_was_resolved(server, home):
    """main moves between resolving and fetching."""
    old = server.commit(NAME, model())
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, "s = hub.resolve('org/tiny'); input(); result = hub.fetch(s).name"],
        env=environment(server, home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(server.calls)
    server.commit(NAME, model(one=shard(9), two=shard(8)))
    out, err = process.communicate("\n")
    assert (json.loads(out), err) == (old, "")
    assert held(home, old) == expected(model())


def test_progress_never_goes_back_and_ends_with_every_file_whole(server, home):
    server.commit(NAME, model())
    server.fail("slow", "GET /cdn", seconds=0.004)
    server.fail("cut", f"GET /cdn.*{TWO}", times=1, at=2 << 20)
    heard = ask(server, home, "hub.fetch(hub.resolve('org/tiny'), hear); result = heard")
    done: dict[str, list[int]] = {}
    for path, done_bytes, total_bytes in heard:
        assert total_bytes == len(model()[path])
        done.setdefault(path, []).append(done_bytes)
    assert {path: values[-1] for path, values in done.items()} == {p: len(model()[p]) for p in MODEL_FILES}
    assert all(values == sorted(values) for values in done.values())
    assert len(set(done[ONE])) >= 3


def test_a_verification_says_how_many_bytes_it_has_read(server, home):
    server.commit(NAME, model())
    ask(server, home, PULL)
    verified = "hub.verify(hub.resolve('org/tiny', offline=True), heard.append)"
    code = f"heard = []\n{verified}\nresult = [(step.done, step.of, step.unit, step.note) for step in heard]"
    steps = ask(server, home, code)
    done = [sum(len(model()[path]) for *_, path in steps[:at]) for at in range(len(steps))]
    assert [tuple(step[:3]) for step in steps] == [(bytes_, MODEL_BYTES, "bytes") for bytes_ in done]
    assert sorted(path for *_, path in steps) == sorted(MODEL_FILES)


# No connection of any kind can be made from here on.
BLOCKED = """
import socket

class Opened(BaseException): pass
def refuse(*_, **__): raise Opened('a socket was opened')
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
"""


def test_a_cached_model_opens_no_socket(server, home):
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    code = f"""{BLOCKED}
result = [hub.locate('org/tiny').name, hub.locate('org/tiny', '{commit}').name]
for snapshot in (hub.resolve('org/tiny', offline=True), hub.resolve('org/tiny', '{commit}')):
    result += [hub.fetch(snapshot).name, hub.verify(snapshot), hub.removal('org/tiny').freed_bytes]
"""
    assert ask(server, home, code) == [commit, commit] + [commit, [], MODEL_BYTES] * 2


def test_the_block_on_sockets_blocks(server, home):
    """Negative control: the same block stops a call that must use the network."""
    code = f"{BLOCKED}\ntry: hub.resolve('org/tiny')\nexcept Opened as error: result = str(error)"
    assert ask(server, home, code) == "a socket was opened"


@pytest.mark.parametrize(("code", "extra"), [("offline=True", {}), ("", {"HF_HUB_OFFLINE": "1"})])
def test_offline_a_missing_model_is_refused_without_a_call(server, home, code, extra):
    server.commit(NAME, model())
    assert ask(server, home, f"hub.resolve('org/tiny', None, {code})", **extra) == unavailable(
        f"{NAME} is neither a folder here nor in the model cache", f"specdec pull --target {NAME}"
    )
    assert server.calls() == []


def test_another_tools_partial_download_is_seen_through_its_listing(server, home):
    """`hf download` leaves the tree of the commit: weights are whole, and the tokenizer lacks all the same."""
    server.commit(NAME, model())
    code = (
        "from huggingface_hub import snapshot_download\n"
        "snapshot_download('org/tiny', allow_patterns=['config.json', '*.index.json', 'model-*'])\n" + LOCATE
    )
    answer = ask(server, home, code, HF_HUB_DISABLE_PROGRESS_BARS="1")
    assert answer == partly("3 files missing, first chat_template.jinja", f"specdec pull --target {NAME}")
    assert sum("/tree/" in call for call in server.calls()) == 4
