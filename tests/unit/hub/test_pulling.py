"""Pulls and removals over a Hub on loopback: the model of one commit, byte for byte, and nothing else.

What lies, is damaged or breaks off at any moment is played by `laws/test_broken_bytes`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from pathlib import Path

import pytest

from fakes.hub_client import BLOCKED, Person, ask, own, tree
from fakes.models import tiny_folder

pytestmark = pytest.mark.slow  # servers and processes

NAME = "org/tiny"
SHARD_BYTES = 3 << 20
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
PULL = "result = hub.fetch(hub.resolve('org/tiny')).name"
LOCATE = "result = hub.locate('org/tiny').name"
VERIFY = "result = [x.path for x in hub.verify(hub.resolve('org/tiny'))]"
MEND = f"specdec pull --target {NAME}"


def shard(seed):
    return (seed.to_bytes(4, "big") * (SHARD_BYTES // 4 + 1))[:SHARD_BYTES]


def model(one=1, two=2, merges=b"a b\n"):
    """A repository of two shards, with everything that a careless author adds."""
    index = {"weight_map": {"a": ONE, "b": TWO}}
    needed = {"config.json": b'{"model_type": "qwen3"}', "tokenizer.json": b'{"model": {}}', "merges.txt": merges}
    needed |= {"model.safetensors.index.json": json.dumps(index).encode(), ONE: shard(one), TWO: shard(two)}
    beside = {"modeling_tiny.py": b"raise SystemExit('code ran')", "pytorch_model.bin": b"pickle", "README.md": b"#"}
    beside |= {"onnx/config.json": b"{}", "original/model-a.safetensors": b"twice"}
    return needed | {"chat_template.jinja": b"{{ messages }}"} | beside


def wanted(files):
    return {path: data for path, data in files.items() if "/" not in path and not path.endswith((".md", ".py", ".bin"))}


MODEL_BYTES = sum(map(len, wanted(model()).values()))


def repository(home: Path) -> Path:
    return home / "hub" / "models--org--tiny"


def held(home, commit):
    return {path.name: path.read_bytes() for path in (repository(home) / "snapshots" / commit).iterdir()}


def blob_bytes(home):
    return sum(path.stat().st_size for path in repository(home).glob("blobs/*"))


def refused(message, hint, error="NotAvailable", code=3):
    return {"error": error, "message": message, "hint": hint, "exit": code}


# What comes


def test_a_pull_brings_what_the_model_needs_and_a_later_one_what_changed(hub, person):
    """No code, no pickle, and nothing below the top folder."""
    commit = hub.commit(NAME, model())
    assert person(PULL) == commit
    assert held(person.home, commit) == wanted(model())
    assert hub.fetched() == {path: len(data) for path, data in wanted(model()).items()}
    hub.forget()
    left = repository(person.home) / "blobs" / "of a killed pull.incomplete"
    left.touch()
    os.utime(left, (time.time() - 3600,) * 2)
    assert (person(PULL), hub.calls(), left.exists()) == (commit, ["GET /api/models/org/tiny"], False)
    hub.forget()
    newer = model(two=3, merges=b"c d\n")
    other = hub.commit(NAME, newer)
    code = "s = hub.resolve('org/tiny'); result = [s.download_bytes, hub.fetch(s).name]"
    assert person(code) == [SHARD_BYTES + 4, other]
    assert hub.fetched() == {TWO: SHARD_BYTES, "merges.txt": 4}
    assert held(person.home, other) == wanted(newer) and person(LOCATE) == other


def test_all_files_come_from_the_commit_that_was_resolved(hub, person):
    """main moves between resolving and fetching."""
    old = hub.commit(NAME, model())
    person("heard.append(hub.resolve('org/tiny'))")
    hub.commit(NAME, model(one=9, two=8))
    assert person("result = hub.fetch(heard.pop()).name") == old
    assert held(person.home, old) == wanted(model())


def test_progress_never_goes_back_and_ends_with_every_file_whole_and_a_verification_says_what_it_reads(hub, person):
    hub.commit(NAME, model())
    hub.fail("slow", "GET /cdn", seconds=0.004)
    hub.fail("cut", f"GET /cdn.*{TWO}", times=1, at=2 << 20)
    done: dict[str, list[int]] = {}
    for path, done_bytes, total_bytes in person("hub.fetch(hub.resolve('org/tiny'), hear); result = [*heard]"):
        assert total_bytes == len(model()[path])
        done.setdefault(path, []).append(done_bytes)
    assert {path: values[-1] for path, values in done.items()} == {p: len(data) for p, data in wanted(model()).items()}
    assert all(values == sorted(values) for values in done.values()) and len(set(done[ONE])) >= 3
    hub.forget()
    verified = "heard.clear()\nhub.verify(hub.resolve('org/tiny', offline=True), heard.append)\n"
    steps = person(verified + "result = [(step.done, step.of, step.unit, step.note) for step in heard]")
    before = [sum(len(model()[path]) for *_, path in steps[:at]) for at in range(len(steps))]
    assert [tuple(step[:3]) for step in steps] == [(bytes_, MODEL_BYTES, "bytes") for bytes_ in before]
    assert sorted(path for *_, path in steps) == sorted(wanted(model())) and hub.calls() == []


def test_before_a_verdict_it_is_heard_how_much_of_the_small_files_came(hub, person):
    """It was told to be a few hundred kB, and is 16 MB of some tokenizers, of which nothing was said."""
    hub.commit(NAME, model())
    read = "heard.clear()\nhub.fetch_small(hub.resolve('org/tiny'), heard.append)\n"
    read += "result = [(step.done, step.of, step.unit) for step in heard]"
    whole, steps = MODEL_BYTES - 2 * SHARD_BYTES, person(read)
    assert steps == sorted(steps) and steps[-1] == [whole, whole, "bytes"]
    assert person(read) == []


def test_a_cached_model_opens_no_socket(hub, person):
    commit = hub.commit(NAME, model())
    person(PULL)
    code = f"""{BLOCKED}
result = [hub.locate('org/tiny').name, hub.locate('org/tiny', '{commit}').name]
for snapshot in (hub.resolve('org/tiny', offline=True), hub.resolve('org/tiny', '{commit}')):
    result += [hub.fetch(snapshot).name, hub.verify(snapshot), hub.removal('org/tiny').freed_bytes]
"""
    assert ask(hub, person.home, code) == [commit, commit] + [commit, [], MODEL_BYTES] * 2
    # Control: the same block stops a call that must use the network.
    code = f"{BLOCKED}\ntry: hub.resolve('org/tiny')\nexcept Opened as error: result = str(error)"
    assert ask(hub, person.home, code) == "a socket was opened"


def test_a_header_that_is_none_is_refused(hub, person):
    hub.commit(NAME, {"config.json": b"{}", "model.safetensors": b"<html>no</html>" + b" " * 500})
    found = person("hub.remote_headers(hub.resolve('org/tiny'))")
    assert found["exit"] == 3 and "announces a header of" in found["message"]


# Other tools, and disks without links


def fetch_by_another_tool(hub, person, more=""):
    code = f"from huggingface_hub import snapshot_download\nresult = Path(snapshot_download('org/tiny'{more})).name"
    return ask(hub, person.home, code, HF_HUB_DISABLE_PROGRESS_BARS="1")


def test_another_tools_partial_download_is_seen_through_its_listing(hub, person):
    """`hf download` leaves the tree of the commit: weights are whole, and the tokenizer lacks all the same."""
    hub.commit(NAME, model())
    fetch_by_another_tool(hub, person, ", allow_patterns=['config.json', '*.index.json', 'model-*']")
    told = f"{NAME} is only partly here: 3 files missing, first chat_template.jinja"
    assert person(LOCATE) == refused(told, MEND, "PartlyHere")
    assert sum("/tree/" in call for call in hub.calls()) == 4


def test_another_tools_bytes_are_compared_by_the_first_pull_and_mended(hub, person):
    """Bytes that lay under the right name were taken for the model, whatever they were."""
    commit = hub.commit(NAME, model())
    hub.fail("corrupt", f"GET .*{TWO}", at=5000)
    assert fetch_by_another_tool(hub, person, ", ignore_patterns=['o*/*']") == commit
    assert held(person.home, commit)[TWO] != shard(2)
    hub.forget()
    assert person(PULL) == commit and held(person.home, commit)[TWO] == shard(2)


def test_a_cache_without_links_holds_the_same_files_and_is_compared_as_well(server, home):
    """Some disks know no symbolic links: a file then lies in the snapshot itself."""
    files = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"w" * 5000}
    commit = server.commit(NAME, files)
    snapshot = repository(home) / "snapshots" / commit
    with Person(server, home, HF_HUB_DISABLE_SYMLINKS="1") as person:
        assert person(PULL) == commit
        assert {path.name: path.read_bytes() for path in snapshot.iterdir() if not path.is_symlink()} == files
        server.forget()
        assert (person(PULL), server.fetched()) == (commit, {})
        (snapshot / "model.safetensors").write_bytes(b"x" * 5000)
        assert person(VERIFY) == ["model.safetensors"]
        assert person(PULL) == commit and (snapshot / "model.safetensors").read_bytes() == b"w" * 5000


# What goes


def test_removing_a_model_frees_what_it_said(hub, person):
    gone = refused(f"{NAME} is not in the model cache {person.home}/hub", "specdec pairs lists all")
    assert person("hub.removal('org/tiny')") == gone
    commit = hub.commit(NAME, model())
    person(PULL)
    (repository(person.home) / "blobs" / "dead.incomplete").write_bytes(b"x" * 1000)
    before = blob_bytes(person.home)
    assert before == MODEL_BYTES + 1000
    none = refused(f"{NAME} has no commit f00 here, only {commit[:7]}", f"specdec rm {NAME}")
    assert person("hub.removal('org/tiny', 'f00')") == none
    assert person("result = hub.removal('org/tiny')") == (
        f"Removal(name='{NAME}', commits=('{commit}',), kept_commits=(), freed_bytes={before})"
    )
    assert blob_bytes(person.home) == before
    assert person("result = hub.remove(hub.removal('org/tiny'))") == before
    assert not repository(person.home).exists()


def test_removing_one_commit_keeps_what_the_other_shares(hub, person):
    old, newer = hub.commit(NAME, model()), model(two=3, merges=b"c d\n")
    person(PULL)
    new = hub.commit(NAME, newer)
    person(PULL)
    before = blob_bytes(person.home)
    code = f"p = hub.removal('org/tiny', '{old}')\nresult = [p.commits, p.kept_commits, p.freed_bytes, hub.remove(p)]"
    freed = SHARD_BYTES + 4
    assert person(code) == [[old], [new], freed, freed]
    assert before - blob_bytes(person.home) == freed
    assert held(person.home, new) == wanted(newer) and (person(LOCATE), person(VERIFY)) == (new, [])


def test_removing_one_commit_removes_no_file_that_its_links_lead_to(server, home):
    """The library removes what a snapshot's links lead to, wherever that is."""
    with Person(server, home) as person:
        snapshot = repository(home) / "snapshots" / server.commit(NAME, model())
        person(PULL)
        server.commit(NAME, model(one=9))
        person(PULL)
        (snapshot / "config.json").unlink()
        (snapshot / "config.json").symlink_to(home.parent / "victim.txt")
        before = tree(home.parent, home / "hub")
        answer = person(f"hub.remove(hub.removal('org/tiny', '{snapshot.name}'))")
        assert (answer["exit"], "victim.txt of org/tiny lies outside the model cache" in answer["message"]) == (3, True)
        assert tree(home.parent, home / "hub") == before
        person("hub.remove(hub.removal('org/tiny'))")  # all of it: links are removed, not what they lead to
        assert tree(home.parent, home / "hub") == before and not snapshot.exists()


# As huggingface_hub leaves a file that came over Xet: its bytes are in a store beside all repositories.
SHARE = """
from huggingface_hub.utils import _shared_blobs as shared
cache = Path(hub.cache_folder())
def share(name):
    blob = (cache / f"models--org--{name}" / "blobs" / "%s").absolute()
    size = blob.stat().st_size
    return shared.publish_blob_to_shared_store(blob_path=str(blob), xet_hash=64 * "a", cache_dir=cache,
                                               expected_size=size)
"""


def shared(files, *names):
    return SHARE % hashlib.sha256(files[ONE]).hexdigest() + f"result = [*map(share, {names!r})]"


def test_altered_bytes_in_the_store_of_xet_files_are_removed_and_come_again(hub, person):
    """The link alone was removed; the library linked the same bytes again, and every pull said "arrived altered"."""
    commit = hub.commit(NAME, model())
    person(PULL)
    assert person(shared(model(), "tiny")) == [True]
    payload = (repository(person.home) / "snapshots" / commit / ONE).resolve()
    assert payload.parents[2] == person.home / "hub"
    payload.chmod(0o644)
    payload.write_bytes(shard(9))
    assert (person(VERIFY), payload.exists()) == ([ONE], False)
    assert (person(PULL), held(person.home, commit)) == (commit, wanted(model()))


def test_a_damaged_model_takes_its_files_out_of_the_store_of_xet_files_and_no_others(hub, person):
    """The library cannot say whose files are whose; 49 kB of 2.6 MB were freed, and nothing else freed the rest."""
    for name in ("tiny", "twin"):
        hub.commit(f"org/{name}", model())
        person(PULL.replace("tiny", name))
    assert person(shared(model(), "tiny", "twin")) == [True, True]
    (payload,) = (person.home / "hub" / "blobs").glob(f"*/{64 * 'a'}")
    for config in (person.home / "hub").glob("models--*/snapshots/*/config.json"):
        config.resolve().unlink()
    left = {}
    for name in ("tiny", "twin"):
        freed, same = person(f"p = hub.removal('org/{name}')\nresult = [p.freed_bytes, hub.remove(p)]")
        assert freed == same
        left[name] = payload.exists(), freed // SHARD_BYTES
    assert left == {"tiny": (True, 1), "twin": (False, 2)}


# Commands as a person types them, on a tiny model that really answers

WEIGHTS = "model.safetensors"
RUN = ["run", "-p", "tiny", "-n", "2", "hi"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("model") / "tiny", seed=1)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def typist(server, home):
    """A person with a pair of their own, the default."""
    entry = f'schema_version = 1\ndefault_pair = "tiny"\n[pairs.tiny]\ntarget = "{NAME}"\n'
    (home.parent / "models.toml").write_text(entry)
    with Person(server, home, **own(home.parent)) as person:
        yield person


def said_no(done) -> tuple[str, str]:
    """Message and hint of a command that must have ended with exit 3 and said nothing."""
    code, out, err = done
    assert (code, out) == (3, ""), err
    assert [line.split(": ")[0] for line in err[-2:]] == ["error", "hint"]
    return err[-2].removeprefix("error: "), err[-1].removeprefix("hint: ")


@pytest.mark.parametrize("file", [WEIGHTS, "config.json"])
def test_one_flipped_byte_on_the_way_is_refused_with_the_files_name_and_never_speaks(server, typist, files, file):
    """The default pull compared sizes alone: the altered model was here, and answered."""
    commit = server.commit(NAME, files)
    (served,) = server.repos[NAME].values()
    server.fail("corrupt", rf"GET .*{file}", at=len(files[file]) // 2)
    first, spoken = typist.specdec("pull", "tiny"), typist.specdec(*RUN)
    message, hint = said_no(first)
    digest = served[file].etag[:12]
    assert re.fullmatch(rf"{file} of {NAME} arrived altered, and was discarded: \w{{12}} instead of {digest}", message)
    assert hint == "run the same command again; if it is altered again, suspect a proxy or HF_ENDPOINT's mirror"
    folder = repository(typist.home)
    assert not (folder / "snapshots" / commit / file).exists()
    assert not (folder / "blobs" / served[file].etag).exists()
    # Where nothing of it is here, the whole pair is named.
    assert said_no(spoken)[1] in (MEND, "specdec pull tiny, or another default: specdec pairs use NAME")
    server.forget()
    assert typist.specdec("pull", "tiny")[0] == typist.specdec(*RUN)[0] == 0
