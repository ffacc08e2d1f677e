"""Single tensors of a repository by byte ranges, from a real server on loopback."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from fakes.hub_client import ask

pytestmark = pytest.mark.slow

NAME = "org/original"
BIG, LAST = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
RANDOM = np.random.default_rng(0)
TRUNK = {f"model.layers.{i}.weight": RANDOM.normal(size=(300, 400)).astype(np.float32) for i in range(2)}
HEAD = {
    "mtp.fc.weight": RANDOM.normal(size=(64, 128)).astype(np.float32),
    "mtp.norm.weight": RANDOM.normal(size=64).astype(np.float16),
    "mtp.layers.0.q.weight": np.arange(60_000, dtype=np.int32).reshape(300, 200),
}
FETCH = """
found = hub.resolve('org/original')
tensors = [one for header in hub.remote_headers(found).values() for one in header.tensors.values()]
head = [one for one in tensors if one.name.startswith('mtp.')]
result = str(hub.keep_head(found, hub.read_config(found), head, 'pt', hear))
"""


def repository(**changed):
    files = {
        "config.json": b'{"model_type": "qwen3_5"}',
        BIG: save({**TRUNK, "mtp.fc.weight": HEAD["mtp.fc.weight"]}),
        LAST: save({name: value for name, value in HEAD.items() if name != "mtp.fc.weight"}),
    }
    return files | changed


@pytest.fixture
def place(tmp_path):
    return tmp_path / "data" / "specdec" / "heads" / "org--original" / "model.safetensors"


def fetch(server, home, place):
    return ask(server, home, FETCH, XDG_DATA_HOME=str(place.parents[3]), HOME=str(place.parents[3]))


def header_bytes(data):
    return 8 + int.from_bytes(data[:8], "little")


def test_the_head_comes_and_nothing_else_does(server, home, place):
    files = repository()
    commit = server.commit(NAME, files)
    assert fetch(server, home, place) == str(place.parent)
    found = load_file(place)
    assert set(found) == set(HEAD) and all((found[name] == HEAD[name]).all() for name in HEAD)
    head_bytes = sum(value.nbytes for value in HEAD.values())
    sent = server.fetched()
    config = len(files["config.json"])
    assert sum(sent.values()) == config + head_bytes + header_bytes(files[BIG]) + header_bytes(files[LAST])
    assert sum(sent.values()) < 0.5 * sum(map(len, files.values()))
    header = json.loads(place.read_bytes()[8 : header_bytes(place.read_bytes())])
    assert header["__metadata__"]["repository"] == NAME and header["__metadata__"]["commit"] == commit
    assert sorted(path.name for path in place.parent.iterdir()) == ["config.json", "model.safetensors", "source.json"]


def test_a_server_that_ignores_ranges_is_refused_before_its_bytes_flow(server, home, place):
    server.commit(NAME, repository())
    server.fail("whole", f"GET .*{BIG}")
    found = fetch(server, home, place)
    assert found["exit"] == 3 and f"{BIG} ignores byte ranges: it sends the whole file" in found["message"]
    assert not place.exists()


def test_a_header_that_is_none_is_refused(server, home, place):
    server.commit(NAME, repository(**{LAST: b"<html>no</html>" + b" " * 500}))
    found = fetch(server, home, place)
    assert found["exit"] == 3 and "announces a header of" in found["message"]
    assert not place.exists()
