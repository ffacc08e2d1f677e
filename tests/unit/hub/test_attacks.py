"""A hostile mirror against the real client: whatever it says, nothing outside the cache is made, changed or removed.

Every attack runs through the real huggingface_hub against a real HTTP server; the whole temporary tree but the cache
is compared before and after.
"""

from __future__ import annotations

import pytest

from fakes.hub_client import ask, tree

pytestmark = pytest.mark.slow  # a server, and a process for each question


# From a blob's folder this leads to the folder that holds the cache's home.
OUT = "../../../../victim.txt"
FILES = {
    "config.json": b'{"model_type": "qwen3"}',
    "tokenizer.json": b'{"model": {}}',
    "model.safetensors": b"weights" * 1000,
}
COMMITS = pytest.mark.parametrize("where", ["listing", "header", "header of a 404"])
# Pulls every repository named in {names}, and verifies it as `pull --verify` does; what became of each.
EACH = """
result = {{}}
for name in {names}:
    try:
        snapshot = hub.resolve(name)
        hub.fetch(snapshot)
        result[name] = [p.path for p in hub.verify(snapshot)]
    except SpecdecError as error:
        result[name] = [error.exit_code, error.message]
"""


def hostile_words(home) -> list[str]:
    """What is said in place of a digest."""
    victim = str(home.parent / "victim.txt")
    return [OUT, victim, "..", "", "a" * 10_000, "A" * 40]


def attack(server, home, names, **extra) -> dict[str, list[object]]:
    """What became of each repository, after the tree around the cache was seen to be unchanged."""
    before = tree(home.parent, home / "hub")
    answers = ask(server, home, EACH.format(names=list(names)), **extra)
    assert tree(home.parent, home / "hub") == before
    return answers


def publish(server, count: int) -> list[str]:
    names = [f"org/m{i}" for i in range(count)]
    for name in names:
        server.commit(name, FILES)
    return names


@pytest.mark.parametrize("path", ["config.json", "model.safetensors"])
def test_a_digest_that_is_none_is_refused_with_the_files_name(server, home, path):
    """`"blobId": "../../../../victim.txt"` made `pull --verify` delete that file: the digest was joined to a path."""
    words = [*hostile_words(home), "a\0b", 7]
    lies = dict(zip(publish(server, len(words)), words, strict=True))

    def lie(info):
        for sibling in info["siblings"]:
            if sibling["rfilename"] == path:
                place, key = (sibling["lfs"], "sha256") if "lfs" in sibling else (sibling, "blobId")
                place[key] = lies[info["id"]]
        return info

    server.lie_listed = lie
    answers = attack(server, home, lies)
    assert {answer[0] for answer in answers.values()} == {3}
    assert all(f"the Hub gives {path} of {name} the digest " in answers[name][1] for name in lies)
    assert max(len(answer[1]) for answer in answers.values()) < 200
    assert server.fetched() == {}


@pytest.mark.parametrize("path", ["config.json", "model.safetensors"])
def test_an_etag_that_is_no_digest_is_refused_with_the_files_name(server, home, path):
    """The library writes to blobs/<ETag>: a crafted header makes it write, and make folders, outside the cache."""
    words = [word for word in hostile_words(home) if word]
    lies = dict(zip(publish(server, len(words)), words, strict=True))

    def lie(asked, headers):
        if asked.startswith("/cdn/") or not asked.endswith("/" + path):
            return headers
        word = next(word for name, word in lies.items() if f"{name}/" in asked)
        return {key: value for key, value in headers.items() if "etag" not in key.lower()} | {"ETag": f'"{word}"'}

    server.lie_headers = lie
    answers = attack(server, home, lies)
    assert {answer[0] for answer in answers.values()} == {3}
    assert all(f"the Hub gives {path} of {name} the digest " in answers[name][1] for name in lies)


SWAPPED = [("config.json", "tokenizer.json"), ("model-1-of-2.safetensors", "model-2-of-2.safetensors")]


@pytest.mark.parametrize(("path", "other"), SWAPPED)
def test_the_etag_of_another_file_is_refused_and_leaves_nothing_altered(server, home, path, other):
    """The library keeps bytes under their ETag. Those of one shard came to lie under the other's, were compared, and
    made room for the other's: one shard stood for both. Of small files, fetched at once, the order decided."""
    name, files = "org/m", {key: value for key, value in FILES.items() if key != "model.safetensors"}
    files |= {shard: shard.encode() * 1000 for shard in SWAPPED[1]}  # of one size, so no lookup tells them apart
    commit = server.commit(name, files)
    wrong = server.repos[name][commit][other].etag
    server.lie_headers = lambda asked, headers: (
        headers | {key: wrong for key in headers if key in ("ETag", "X-Linked-Etag")} if path in asked else headers
    )
    code, message = attack(server, home, [name])[name]
    told = f"the Hub sends {path} of {name} under the digest of another of its files, {wrong[:12]}"
    assert (code, message) == (3, told)
    kept = {place.name: place.read_bytes() for place in (home / "hub").glob("*/snapshots/*/*")}
    assert kept.items() <= files.items() - {(path, files[path])}
    server.lie_headers = lambda asked, headers: headers
    assert attack(server, home, [name]) == {name: []}
    assert {place.name: place.read_bytes() for place in (home / "hub").glob("*/snapshots/*/*")} == files


@COMMITS
def test_a_commit_that_is_none_is_refused(server, home, where):
    """A 404 with a crafted `X-Repo-Commit` made the client leave an empty file wherever that led."""
    words = ["../../../../neighbour", str(home.parent), "main", "A" * 40, "b" * 40]
    lies = dict(zip(publish(server, len(words)), words, strict=True))

    def header(asked, headers):
        lie = next((word for name, word in lies.items() if f"{name}/" in asked), None)
        return headers | {"X-Repo-Commit": lie} if lie and "X-Repo-Commit" in headers else headers

    if where == "listing":
        lies.pop("org/m4")  # a commit by its looks
        server.lie_listed = lambda info: info | {"sha": lies[info["id"]]}
    else:
        server.lie_headers = header
    if where == "header of a 404":
        headers = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": ""}
        server.fail("status", "resolve.*config.json", status=404, headers=headers)
    answers = attack(server, home, lies)
    assert {answer[0] for answer in answers.values()} == {3}
    told = "commit" if where == "listing" else "config.json"
    assert all(told in answers[name][1] for name in lies)


def test_an_answer_that_is_json_but_no_models_is_told_in_two_lines(server, home):
    """A list in place of an object, or a file without a name, was a traceback."""
    bodies = [[], {"siblings": [{}]}, {"siblings": [{"rfilename": 5}], "sha": "a" * 40}, {"siblings": 3}, "x", None]
    lies = dict(zip(publish(server, len(bodies)), bodies, strict=True))
    server.lie_listed = lambda info: lies[info["id"]]
    answers = attack(server, home, lies)
    assert {answer[0] for answer in answers.values()} == {3}
    assert sum("does not answer like a Hub" in answer[1] for answer in answers.values()) >= 5


def test_a_pinned_commit_answered_with_another_is_refused(server, home):
    (name,) = publish(server, 1)
    asked, (given,) = "c" * 40, server.repos[name]
    server.refs[name, asked] = given
    answer = ask(server, home, f"hub.resolve({name!r}, {asked!r})")
    assert answer["message"] == f'the Hub answers with commit "{given}" of {name} when asked for {asked}'
