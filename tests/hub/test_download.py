"""The Hub's door against a real HTTP server on loopback, through the real huggingface_hub client.

HF_ENDPOINT and HF_HOME are read when huggingface_hub is imported, so every call runs in a process of its own;
each must also leave stderr empty: no bars, no warnings, no traceback.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.hub_client import CLIENT, ask, environment, finish, start
from fakes.hub_server import HubServer
from fakes.models import tiny_folder
from specdec_cli.hub.progress import bar_class
from specdec_cli.hub.snapshot import RemoteFile

NAME = "org/tiny"
SHARD_BYTES = 3 << 20
PULL = "result = hub.fetch(hub.resolve('org/tiny'), hear).name"
LOCATE = "result = hub.locate('org/tiny').name"
VERIFY = "result = [p.path for p in hub.verify(hub.resolve('org/tiny'))]"
# No connection of any kind can be made from here on.
BLOCKED = """
import socket

pytestmark = pytest.mark.slow  # a server, and a process for each question

def refuse(*_, **__): raise AssertionError('a socket was opened')
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
"""
AGAIN = "the same command again: complete files are kept, the one in progress restarts"


def shard(seed: int, size: int = SHARD_BYTES) -> bytes:
    return (seed.to_bytes(4, "big") * (size // 4 + 1))[:size]


def model(**changed: bytes) -> dict[str, bytes]:
    """A repository of two shards with everything a careless author adds; `changed` replaces by stem."""
    weights = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"weight_map": {"a": weights[0], "b": weights[1]}}
    return {
        "config.json": b'{"model_type": "qwen3"}',
        "tokenizer.json": b'{"model": {}}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        weights[0]: changed.get("one", shard(1)),
        weights[1]: changed.get("two", shard(2)),
        "merges.txt": changed.get("merges", b"a b\n"),
        "chat_template.jinja": b"{{ messages }}",
        "README.md": b"# tiny",
        "modeling_tiny.py": b"raise SystemExit('code ran')",
        "pytorch_model.bin": b"pickle",
        "onnx/config.json": b"{}",
        "original/model-a.safetensors": b"twice",
    }


MODEL_FILES = sorted(p for p in model() if "/" not in p and not p.endswith((".md", ".py", ".bin")))
MODEL_BYTES = sum(len(model()[path]) for path in MODEL_FILES)
ONE, TWO = (path for path in MODEL_FILES if path.endswith(".safetensors"))


@pytest.fixture
def server():
    with HubServer() as hub:
        yield hub


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def repository(home: Path) -> Path:
    return home / "hub" / "models--org--tiny"


def held(home: Path, commit: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (repository(home) / "snapshots" / commit).iterdir()}


def blob_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in repository(home).glob("blobs/*"))


def expected(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: files[path] for path in MODEL_FILES}


def wait_for(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def unavailable(message: str, hint: str) -> dict[str, object]:
    return {"error": "NotAvailable", "message": message, "hint": hint, "exit": 3}


def unanswered(message: str, hint: str) -> dict[str, object]:
    return unavailable(message, hint) | {"error": "Unanswered"}


def partly(message: str, hint: str) -> dict[str, object]:
    return unavailable(f"{NAME} is only partly here: {message}", hint) | {"error": "PartlyHere"}


# What a pull brings


def test_a_pulled_random_model_is_the_servers_byte_for_byte_and_is_located(server, home, tmp_path):
    folder = tiny_folder(tmp_path / "model")
    commit = server.commit(NAME, folder)
    assert ask(server, home, PULL) == commit
    assert held(home, commit) == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert ask(server, home, LOCATE) == commit


def test_a_pull_fetches_no_code_no_pickle_and_nothing_below_the_top_folder(server, home):
    commit = server.commit(NAME, model())
    assert ask(server, home, PULL) == commit
    assert held(home, commit) == expected(model())
    assert server.fetched() == {path: len(model()[path]) for path in MODEL_FILES}


def test_a_pull_asks_about_the_model_and_nothing_else(server, home):
    """With telemetry on, huggingface_hub also asks for /api/agent-harnesses."""
    server.commit(NAME, model())
    ask(server, home, PULL)
    assert [call for call in server.calls() if "/org/tiny" not in call and "/cdn/" not in call] == []


def test_a_second_pull_asks_for_the_commit_and_fetches_no_bytes(server, home):
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    server.forget()
    assert ask(server, home, PULL) == commit
    assert server.calls() == ["GET /api/models/org/tiny"]


def test_what_will_be_downloaded_is_known_before_it_is(server, home):
    commit = server.commit(NAME, model())
    code = "s = hub.resolve('org/tiny'); result = [s.commit, s.revision, s.total_bytes, s.download_bytes, s.files]"
    *sizes, files = ask(server, home, code)
    assert sizes == [commit, "main", MODEL_BYTES, MODEL_BYTES]
    assert server.calls() == ["GET /api/models/org/tiny"]
    ask(server, home, PULL)
    *sizes, files_after = ask(server, home, code)
    assert sizes == [commit, "main", MODEL_BYTES, 0]
    assert files_after == [text.replace("cached=False", "cached=True") for text in files]


def test_configs_and_tokenizers_come_without_a_byte_of_weights(server, home):
    commit = server.commit(NAME, model())
    assert ask(server, home, "result = hub.fetch_small(hub.resolve('org/tiny')).name") == commit
    small = {path: data for path, data in expected(model()).items() if not path.endswith(".safetensors")}
    assert held(home, commit) == small
    assert server.fetched() == {path: len(data) for path, data in small.items()}


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


def test_a_tag_means_its_commit_and_leaves_main_alone(server, home):
    tagged = server.commit(NAME, model(), "v1")
    server.commit(NAME, model(one=shard(9)))
    assert ask(server, home, "result = hub.fetch(hub.resolve('org/tiny', 'v1')).name") == tagged
    refs = repository(home) / "refs"
    assert {path.name: path.read_text() for path in refs.iterdir()} == {"v1": tagged}
    assert ask(server, home, "result = hub.locate('org/tiny', 'v1').name") == tagged


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


# Progress


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


def test_a_server_that_ignores_ranges_does_not_make_progress_go_back():
    heard: list[tuple[str, int, int]] = []
    bar = bar_class(RemoteFile("w", 100, None, False), lambda *values: heard.append(values))()
    with bar:
        for step in (40, 30, -70, 50, 40, 10, 5):
            bar.update(step)
    assert heard == [("w", 40, 100), ("w", 70, 100), ("w", 90, 100), ("w", 100, 100)]


def test_xet_reports_the_files_bytes_through_the_same_bar():
    """The library's own Xet reporter, fed as hf_xet feeds it: 90 bytes on disk of 60 on the wire."""
    reporter = pytest.importorskip("huggingface_hub.utils._xet_progress_reporting")
    heard: list[tuple[str, int, int]] = []
    bar = bar_class(RemoteFile("w", 90, None, False), lambda *values: heard.append(values))

    class Report:
        total_bytes = 90
        total_bytes_completion_rate = total_transfer_bytes_completion_rate = 1.0

        def __init__(self, done: int, wire: int) -> None:
            self.total_bytes_completed, self.total_transfer_bytes_completed = done, wire

    with reporter.XetDownloadProgressReporter(
        reconstruction_desc="", total=90, log_level=30, tqdm_class=bar
    ) as progress:
        for done, wire in ((0, 30), (50, 60), (90, 60)):
            progress.update_progress(Report(done, wire))
    assert heard == [("w", 50, 90), ("w", 90, 90)]


def test_a_mirror_that_tells_no_sizes_still_serves(server, home):
    commit = server.commit(NAME, model())
    server.tells_sizes = False
    assert ask(server, home, PULL) == commit
    assert held(home, commit) == expected(model())


# The line fails


def test_one_cut_connection_is_survived_from_where_it_broke(server, home):
    commit = server.commit(NAME, model())
    server.fail("cut", f"GET /cdn.*{ONE}", times=1, at=2 << 20)
    assert ask(server, home, PULL) == commit
    assert held(home, commit) == expected(model())
    ranges = [r.range for r in server.log if r.method == "GET" and r.path.endswith(ONE) and "/cdn/" in r.path]
    assert ranges == [None, f"bytes={2 << 20}-"]


def test_a_stalled_connection_is_given_up_and_the_file_completed_on_a_new_one(server, home):
    commit = server.commit(NAME, model())
    server.fail("stall", f"GET /cdn.*{ONE}", times=1, at=1 << 20, seconds=3.0)
    assert ask(server, home, PULL, HF_HUB_DOWNLOAD_TIMEOUT="1") == commit
    assert held(home, commit) == expected(model())


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


def test_a_body_shorter_than_the_file_is_refused_and_leaves_no_blob(server, home):
    commit = server.commit(NAME, model())
    server.fail("short", f"GET /cdn.*{TWO}", at=SHARD_BYTES - 1)
    assert ask(server, home, PULL) == unavailable(
        f"a file of {NAME} ended after {SHARD_BYTES - 1} of its {SHARD_BYTES} bytes", AGAIN
    )
    assert sorted(path.suffix for path in repository(home).glob("blobs/*")) == [""] * (len(MODEL_FILES) - 1)
    server.forget()
    assert ask(server, home, PULL) == commit
    assert held(home, commit) == expected(model())


def test_a_bit_that_flips_on_the_disk_is_found_by_verify_and_mended_by_discard_and_pull(server, home):
    commit = server.commit(NAME, model())
    assert ask(server, home, PULL) == commit
    blob = repository(home) / "blobs" / hashlib.sha256(shard(2)).hexdigest()
    blob.write_bytes(shard(2)[:-1] + b"!")
    server.forget()
    assert ask(server, home, LOCATE) == commit  # weights of the right size are read by --verify alone
    offline = "s = hub.resolve('org/tiny', offline=True); p = hub.verify(s); hub.discard(s, p); result = p[0].path"
    assert ask(server, home, offline) == TWO
    assert server.calls() == []
    assert ask(server, home, LOCATE)["message"] == f"{NAME} is only partly here: 1 file missing, first {TWO}"
    assert ask(server, home, PULL) == commit
    assert server.fetched() == {TWO: SHARD_BYTES}
    assert ask(server, home, VERIFY) == []


def test_a_cached_file_of_the_wrong_size_is_fetched_again(server, home):
    """The library takes whatever lies under a commit for the file."""
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    server.forget()
    (repository(home) / "snapshots" / commit / ONE).write_bytes(b"half")
    assert ask(server, home, PULL) == commit
    assert server.fetched() == {ONE: SHARD_BYTES}
    assert held(home, commit) == expected(model())


@pytest.mark.parametrize("store", ["knows nothing", "is not there"])
def test_a_xet_store_that_fails_is_explained_and_told_nothing(server, home, store):
    """The real hf_xet. Unless told not to, it posts a summary of every download to /v1/telemetry."""
    pytest.importorskip("hf_xet")
    commit = server.commit(NAME, model())
    server.xet_url = server.url if store == "knows nothing" else "http://127.0.0.1:1"
    answer = ask(server, home, PULL, HF_HUB_DISABLE_XET="0", HF_XET_CLIENT_RETRY_MAX_ATTEMPTS="1")
    message, hint = answer.pop("message"), answer.pop("hint")
    assert answer == {"error": "NotAvailable", "exit": 3}
    assert message.startswith(f"the Xet transport failed while {NAME} was coming: ")
    assert hint == "the same command again, or with HF_HUB_DISABLE_XET=1 to fetch over plain HTTP"
    digest = hashlib.sha256(shard(1)).hexdigest()
    store_calls = [f"GET /v2/reconstructions/{digest}", f"GET /v1/reconstructions/{digest}"]
    assert [call for call in server.calls() if "/resolve" not in call] == [
        "GET /api/models/org/tiny",
        f"GET /api/models/org/tiny/xet-read-token/{commit}",
    ] + (store_calls if store == "knows nothing" else [])


# The Hub says no


GATED = {"X-Error-Code": "GatedRepo"}
NOT_FOUND = {"X-Error-Code": "RepoNotFound"}
LOGIN = "hf auth whoami, then hf auth login with a valid token"
SPELLING = "check the spelling; if it is private: hf auth login"
ACCEPT = "accept it at {page}, then: hf auth login"
LIMITED = "the Hub takes no more requests from here for now (429, asked for {name})"
TROUBLE = "the Hub is in trouble: it answers {status} for {name}"
# What the Hub answers, and the two lines a person reads.
REFUSALS = [
    (401, GATED, "{name} is gated: the Hub answers 401 until you accept its licence", ACCEPT),
    (403, GATED, "{name} is gated: the Hub answers 403 until you accept its licence", ACCEPT),
    (401, NOT_FOUND, "no such repository on {url}: {name}, or it is private (401)", SPELLING),
    (404, NOT_FOUND, "no such repository on {url}: {name}, or it is private (404)", SPELLING),
    (404, {}, "no such repository on {url}: {name}, or it is private (404)", SPELLING),
    (401, {}, "the Hub refuses {name} to your login (401)", LOGIN),
    (403, {}, "the Hub refuses {name} to your login (403)", LOGIN),
    (
        403,
        {"X-Error-Message": "Access to this resource is disabled."},
        "the Hub has disabled {name} (403)",
        "read why at {page}, or use another model",
    ),
    (429, {}, LIMITED, "wait a few minutes; hf auth login raises the limit"),
    (429, {"Retry-After": "17"}, LIMITED, "wait 17 s and try again"),
    (429, {"RateLimit": '"api";r=0;t=55', "Retry-After": "1"}, LIMITED, "wait 55 s and try again"),
    (500, {}, TROUBLE, "try later, {url} is not well now"),
    (503, {}, TROUBLE, "try later, {url} is not well now"),
    (418, {}, "the Hub answers 418 for {name}: Client error '418 I'm a Teapot' for url '{api}'", "look at {page}"),
]


def test_each_refusal_by_the_hub_is_two_lines_with_the_next_step_and_leaves_nothing(server, home):
    asked = {}
    for i, (status, headers, *lines) in enumerate(REFUSALS):
        name = f"org/m{i}"
        server.fail("status", f"{name}$", status=status, headers=headers)
        values = {"name": name, "status": status, "url": server.url, "page": f"{server.url}/{name}"}
        values["api"] = f"{server.url}/api/models/{name}?blobs=true"
        asked[name] = [line.format(**values) for line in lines] + [3]
    code = f"""
result = {{}}
for name in {list(asked)}:
    try: hub.fetch(hub.resolve(name))
    except SpecdecError as error: result[name] = [error.message, error.hint, error.exit_code]
"""
    assert ask(server, home, code) == asked
    assert not (home / "hub").exists()


def test_a_file_refused_after_the_listing_is_explained_too(server, home):
    """A gated repository lists its files to everybody and refuses their bytes."""
    server.commit(NAME, model())
    server.fail("status", "/resolve/", status=403, headers={"X-Error-Code": "GatedRepo"})
    assert ask(server, home, PULL) == unavailable(
        f"{NAME} is gated: the Hub answers 403 until you accept its licence",
        f"accept it at {server.url}/{NAME}, then: hf auth login",
    )


def test_a_short_rate_limit_in_the_middle_of_a_pull_is_waited_out(server, home):
    commit = server.commit(NAME, model())
    server.fail("status", f"GET /cdn.*{ONE}", times=1, status=429, headers={"Retry-After": "0"})
    assert ask(server, home, PULL) == commit


def test_a_revision_that_is_not_there_is_named(server, home):
    server.commit(NAME, model())
    assert ask(server, home, "hub.resolve('org/tiny', 'v9')") == unavailable(
        f"{NAME} has no revision v9", f"see {server.url}/{NAME}/commits/main, or leave the revision out"
    )


def test_a_login_page_in_between_is_not_taken_for_the_hub(server, home):
    server.fail("html")
    assert ask(server, home, PULL) == unavailable(
        f"{server.url} does not answer like a Hub when asked for {NAME}",
        "check HF_ENDPOINT, and whether a proxy or a login page stands in between",
    )


def test_a_closed_port_is_a_network_problem(server, home):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert ask(server, home, PULL, HF_ENDPOINT=url) == unanswered(
            f"cannot reach {url} for {NAME}: [Errno {errno.ECONNREFUSED}] {os.strerror(errno.ECONNREFUSED)}",
            "check the network; a model that is already here runs with --offline",
        )


def test_a_hub_that_never_answers_is_given_up_after_the_timeout(server, home):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        answer = ask(server, home, PULL, HF_ENDPOINT=url, HF_HUB_ETAG_TIMEOUT="1")
    assert answer == unanswered(f"{url} stopped answering while {NAME} was asked for", AGAIN)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody", "no folder nobody here"),
        ("a/b/c", "no folder a/b/c here"),
        ("org/a..b", "org/a..b is no Hub id: Cannot have -- or .. in repo_id: 'org/a..b'."),
    ],
)
def test_a_name_that_cannot_be_a_hub_id_is_refused_without_a_call(server, home, name, message):
    answer = ask(server, home, f"hub.resolve({name!r})")
    assert (answer["error"], answer["message"], server.calls()) == ("NotAvailable", message, [])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"p"}, "has no model*.safetensors, only pytorch_model.bin"),
        ({"README.md": b""}, "has no model*.safetensors, only 1 other files"),
        ({"model.safetensors": b"w"}, "has weights but no config.json"),
    ],
)
def test_a_repository_without_a_model_is_refused_before_a_byte(server, home, files, message):
    server.commit(NAME, files)
    answer = ask(server, home, PULL)
    assert (answer["error"], answer["message"], server.fetched()) == ("NotAvailable", f"{NAME} {message}", {})


# The disk says no


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 5 MB, which only root can make."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "t", folder]).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_model_bigger_than_the_disk_is_refused_with_both_numbers_before_the_first_byte(server, small_disk):
    server.commit(NAME, model())
    answer = ask(server, small_disk, PULL)
    assert answer == {
        "error": "DoesNotFit",
        "message": f"{NAME} needs 6.3 MB, and the disk of {small_disk}/hub has 5.2 MB free",
        "hint": "free some space (specdec rm NAME), or set HF_HOME to a folder on a bigger disk",
        "exit": 5,
    }
    assert server.calls() == ["GET /api/models/org/tiny"]


def test_free_space_is_compared_for_both_models_together(server, home):
    """Injected free space, so that it runs without root as well."""
    for name in ("org/tiny", "org/draft"):
        server.commit(name, model())
    code = (
        "from specdec_cli.hub import download; download.free_bytes = lambda: 7_000_000\n"
        "both = [hub.resolve('org/tiny'), hub.resolve('org/draft')]\n"
        "hub.check_space(both[:1]); hub.check_space(both)"
    )
    assert ask(server, home, code) == {
        "error": "DoesNotFit",
        "message": f"org/tiny and org/draft needs 12.6 MB, and the disk of {home}/hub has 7.0 MB free",
        "hint": "free some space (specdec rm NAME), or set HF_HOME to a folder on a bigger disk",
        "exit": 5,
    }


def test_a_disk_that_fills_up_during_a_pull_is_no_traceback_and_loses_no_complete_file(server, small_disk):
    """The check before it is told that there is room, as when another program fills the disk meanwhile."""
    commit = server.commit(NAME, model())
    code = "from specdec_cli.hub import download; download.free_bytes = lambda: 10**12\n" + PULL
    assert ask(server, small_disk, code) == {
        "error": "DoesNotFit",
        "message": f"the disk of {small_disk}/hub is full, and {NAME} is not all there",
        "hint": f"free some space, or set HF_HOME to a folder on a bigger disk; {AGAIN}",
        "exit": 5,
    }
    assert held(small_disk, commit) == {p: data for p, data in expected(model()).items() if p != TWO}
    assert ask(server, small_disk, LOCATE)["error"] == "NotAvailable"


def test_a_cache_that_may_not_be_written_is_named(server, small_disk):
    server.commit(NAME, model())
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    answer = ask(server, small_disk, "hub.fetch_small(hub.resolve('org/tiny'))")
    assert answer == unavailable(
        f"no permission for {small_disk}/hub, where {NAME} belongs",
        "make it yours, or set HF_HOME to a folder of yours",
    )


def test_a_cache_for_reading_only_still_serves_what_it_holds(server, small_disk):
    small = {"config.json": b"{}", "model.safetensors": b"w" * 1000}
    commit = server.commit(NAME, small)
    ask(server, small_disk, PULL)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert [ask(server, small_disk, code) for code in (PULL, LOCATE, VERIFY)] == [commit, commit, []]


# Interruption and company


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
        f"specdec pull --target {NAME} --target-revision {commit}",
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


def test_control_c_ends_a_pull_at_once_and_leaves_no_partial_file(server, home):
    server.commit(NAME, model())
    server.fail("stall", f"GET /cdn.*{TWO}", at=2 << 20, seconds=30.0)
    process = start(server, home, "try: " + PULL + "\nexcept KeyboardInterrupt: result = 'interrupted'")
    wait_for(lambda: server.fetched().get(TWO) == 2 << 20)
    process.send_signal(signal.SIGINT)
    assert finish(process) == "interrupted"
    assert list(repository(home).glob("blobs/*.incomplete")) == []


def test_what_a_killed_pull_left_behind_is_removed_once_it_is_old(server, home):
    server.commit(NAME, model())
    ask(server, home, "hub.fetch_small(hub.resolve('org/tiny'))")
    old, fresh = (repository(home) / "blobs" / f"{'a' * 64}.{n}.incomplete" for n in ("old", "fresh"))
    old.write_bytes(b"left")
    fresh.write_bytes(b"another process is writing this")
    os.utime(old, (time.time() - 3600,) * 2)
    ask(server, home, PULL)
    assert (old.exists(), fresh.exists()) == (False, True)


def test_two_pulls_at_once_both_end_well_with_one_cache(server, home):
    commit = server.commit(NAME, model())
    server.fail("slow", "GET /cdn", seconds=0.005)
    both = [start(server, home, PULL) for _ in range(2)]
    assert [finish(process) for process in both] == [commit, commit]
    assert held(home, commit) == expected(model())
    assert ask(server, home, VERIFY) == []
    assert {path: server.fetched()[path] for path in (ONE, TWO)} == {ONE: SHARD_BYTES, TWO: SHARD_BYTES}


# Without the network


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
    code = f"{BLOCKED}\ntry: hub.resolve('org/tiny')\nexcept AssertionError as error: result = str(error)"
    assert ask(server, home, code) == "a socket was opened"


@pytest.mark.parametrize(("code", "extra"), [("offline=True", {}), ("", {"HF_HUB_OFFLINE": "1"})])
def test_offline_a_missing_model_is_refused_without_a_call(server, home, code, extra):
    server.commit(NAME, model())
    assert ask(server, home, f"hub.resolve('org/tiny', None, {code})", **extra) == unavailable(
        f"{NAME} is neither a folder here nor in the model cache", f"specdec pull --target {NAME}"
    )
    assert server.calls() == []


def test_a_snapshot_that_lost_a_shard_is_never_half_a_model(server, home):
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    (repository(home) / "snapshots" / commit / ONE).unlink()
    told = partly(f"1 file missing, first {ONE}", f"specdec pull --target {NAME}")
    assert ask(server, home, LOCATE) == told
    assert ask(server, home, "hub.resolve('org/tiny', offline=True)") == told
    server.forget()
    assert ask(server, home, PULL) == commit
    assert server.fetched() == {}  # the blob was still there


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


# Removal

PLAN = "plan = hub.removal('org/tiny'{}); result = plan"


def test_removing_a_model_frees_what_it_said(server, home):
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    (repository(home) / "blobs" / "dead.incomplete").write_bytes(b"x" * 1000)
    before = blob_bytes(home)
    assert before == MODEL_BYTES + 1000
    assert ask(server, home, PLAN.format("")) == (
        f"Removal(name='{NAME}', commits=('{commit}',), kept_commits=(), freed_bytes={before}, "
        "shared_bytes=0, shared_files=())"
    )
    assert blob_bytes(home) == before
    assert ask(server, home, "result = hub.remove(hub.removal('org/tiny'))") == before
    assert not repository(home).exists()


def test_removing_one_commit_keeps_what_the_other_shares(server, home):
    old = server.commit(NAME, model())
    ask(server, home, PULL)
    newer = model(two=shard(3), merges=b"c d\n")
    new = server.commit(NAME, newer)
    ask(server, home, PULL)
    before = blob_bytes(home)
    shared = [path for path in MODEL_FILES if path not in (TWO, "merges.txt")]
    code = f"p = hub.removal('org/tiny', '{old}')\nresult = [p.commits, p.kept_commits, p.freed_bytes, "
    code += "p.shared_bytes, p.shared_files, hub.remove(p)]"
    freed, kept = SHARD_BYTES + 4, sum(len(newer[path]) for path in shared)
    assert ask(server, home, code) == [[old], [new], freed, kept, shared, freed]
    assert before - blob_bytes(home) == freed
    assert held(home, new) == expected(newer)
    assert ask(server, home, LOCATE) == new
    assert ask(server, home, VERIFY) == []


def test_a_broken_repository_folder_can_still_be_removed(server, home):
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    (repository(home) / "snapshots" / commit / ONE).resolve().unlink()
    plan = "p = hub.removal('org/tiny'); result = [p.commits, p.freed_bytes == hub.remove(p)]"
    assert ask(server, home, plan) == [[], True]
    assert not repository(home).exists()


def test_removing_what_is_not_here_says_so(server, home):
    assert ask(server, home, "hub.removal('org/tiny')") == unavailable(
        f"{NAME} is not in the model cache {home}/hub", "specdec pairs"
    )
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    assert ask(server, home, "hub.removal('org/tiny', 'f00')") == unavailable(
        f"{NAME} has no commit f00 here, only {commit[:7]}", f"specdec rm {NAME}"
    )
